//! Where the certificates of a webhook are kept, and the names that are in them.

/// Where certificates are kept, and the names that they are issued for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// DNS names or addresses under which API servers reach the webhook.
    pub names: Vec<String>,
}

impl Identity {
    /// A webhook behind a Service, with the names that it has in the cluster.
    pub fn of_service(namespace: &str, secret: &str, service: &str) -> Self {
        let short = format!("{service}.{namespace}");
        Self {
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            names: vec![
                service.to_owned(),
                short.clone(),
                format!("{short}.svc"),
                format!("{short}.svc.cluster.local"),
            ],
        }
    }
}
