mod build;
mod laws;
mod phase;
mod scenarios;
mod sdk;
