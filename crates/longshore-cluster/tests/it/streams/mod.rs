//! The way into pods as clients use it: over real sockets, with a fake node behind the server.

mod client;
mod forwarding;
mod logs;
mod node;
mod processes;
mod proxying;
