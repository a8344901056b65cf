//! A Kubernetes API server in a library: an in-memory cluster behind an ordinary kube client.
