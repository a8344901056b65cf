mod build;
mod phase;
mod sdk;
