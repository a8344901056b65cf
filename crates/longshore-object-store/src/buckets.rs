//! The buckets of stores that are reached over HTTP, each with a client of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use longshore_outbound::Permit;
use object_store::{
    BackoffConfig, Error, ObjectStore, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey},
};

use crate::{
    config::{Azure, Gcs, S3, Stores},
    environment,
    location::Kind,
    store_client::OperatorNamed,
};

/// How long a request is repeated. The round that asked comes again with back-off of its own.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RETRIES: usize = 3;

/// The buckets of the stores of a configuration. Those of Azure are called containers.
#[derive(Debug)]
pub(crate) struct Buckets {
    pub(crate) stores: Stores,
    /// Requests are sent for as long as it holds.
    pub(crate) permit: Permit,
    /// What the stores' libraries would take from the environment.
    environment: Vec<(String, String)>,
    open: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>,
}

impl Buckets {
    pub(crate) fn new(stores: Stores, environment: Vec<(String, String)>) -> Self {
        Self {
            stores,
            permit: Permit::always(),
            environment,
            open: Mutex::default(),
        }
    }

    /// A bucket by its name.
    pub(crate) fn get(&self, kind: Kind, bucket: &str) -> Result<Arc<dyn ObjectStore>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{kind:?} {bucket}");
        if let Some(store) = open.get(&name) {
            return Ok(Arc::clone(store));
        }
        let Stores { s3, gcs, azure, .. } = &self.stores;
        let store: Arc<dyn ObjectStore> = match (kind, s3, gcs, azure) {
            (Kind::S3, Some(s3), _, _) => Arc::new(self.s3(s3, bucket)?),
            (Kind::Gcs, _, Some(gcs), _) => Arc::new(self.gcs(gcs, bucket)?),
            (Kind::Azure, _, _, Some(azure)) => Arc::new(self.azure(azure, bucket)?),
            // Such a URL is not located.
            (Kind::File | Kind::S3 | Kind::Gcs | Kind::Azure, _, _, _) => {
                return Err(Error::NotSupported {
                    source: "no such store is configured".into(),
                });
            }
        };
        open.insert(name, Arc::clone(&store));
        Ok(store)
    }

    fn s3(&self, s3: &S3, bucket: &str) -> Result<AmazonS3, Error> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in self.variables::<AmazonS3ConfigKey>(environment::S3) {
            builder = builder.with_config(name, value);
        }
        if !s3.endpoint.is_empty() {
            builder = builder
                .with_endpoint(&s3.endpoint)
                // The library prefers this one, which `AWS_ENDPOINT_URL_S3` has set: the keys of the configuration are
                // for the address of the configuration.
                .with_config(AmazonS3ConfigKey::S3Endpoint, &s3.endpoint)
                .with_allow_http(s3.endpoint.starts_with("http://"));
        }
        if !s3.region.is_empty() {
            builder = builder.with_region(&s3.region);
        }
        if let Some((id, secret)) = &s3.key {
            builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
        }
        builder
            .with_bucket_name(bucket)
            .with_retry(retries())
            .with_http_connector(OperatorNamed(self.permit.clone()))
            .build()
    }

    fn gcs(&self, gcs: &Gcs, bucket: &str) -> Result<GoogleCloudStorage, Error> {
        let mut builder = GoogleCloudStorageBuilder::new();
        for (name, value) in self.variables::<GoogleConfigKey>(environment::GCS) {
            builder = builder.with_config(name, value);
        }
        if !gcs.key.is_empty() {
            builder = builder.with_service_account_key(&gcs.key);
        }
        builder
            .with_bucket_name(bucket)
            .with_retry(retries())
            .with_http_connector(OperatorNamed(self.permit.clone()))
            .build()
    }

    fn azure(&self, azure: &Azure, container: &str) -> Result<MicrosoftAzure, Error> {
        let mut builder = MicrosoftAzureBuilder::new();
        let identity = self
            .environment
            .iter()
            .find(|(name, _)| name == environment::AZURE_IDENTITY);
        if let Some((_, endpoint)) = identity {
            builder = builder.with_msi_endpoint(endpoint);
        }
        for (name, value) in self.variables::<AzureConfigKey>(environment::AZURE) {
            if environment::counts_for_azure(name, value) {
                // The webhook of workload identities leaves a slash there, and the library adds another one.
                let is_host = name == AzureConfigKey::AuthorityHost;
                let value = if is_host {
                    value.trim_end_matches('/')
                } else {
                    value
                };
                builder = builder.with_config(name, value);
            }
        }
        if let Some(endpoint) = azure.endpoint() {
            let is_plain = endpoint.starts_with("http://");
            builder = builder.with_endpoint(endpoint).with_allow_http(is_plain);
        }
        if !azure.key.is_empty() {
            // Whatever else the environment has.
            builder = builder
                .with_access_key(&azure.key)
                .with_credential_type("access_key")
                .with_skip_signature(false);
        }
        builder
            .with_account(&azure.account)
            .with_container_name(container)
            .with_retry(retries())
            .with_http_connector(OperatorNamed(self.permit.clone()))
            .build()
    }

    /// The variables of the environment that a library knows.
    fn variables<K: std::str::FromStr>(
        &self,
        prefix: &'static str,
    ) -> impl Iterator<Item = (K, &String)> {
        let theirs = self.environment.iter();
        let theirs = theirs.filter(move |(name, _)| name.starts_with(prefix));
        theirs.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
    }
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: MAX_RETRIES,
        retry_timeout: RETRY_TIMEOUT,
    }
}
