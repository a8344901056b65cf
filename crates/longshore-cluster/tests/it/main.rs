//! The cluster as its clients see it: through `kube::Client` and through raw requests.

mod harness;

mod crud;
mod watch;
