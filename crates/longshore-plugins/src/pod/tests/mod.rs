mod build;
mod laws;
mod phase;
mod sdk;
