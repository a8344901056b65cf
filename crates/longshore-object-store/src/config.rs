//! The section `storage`, as the peer has it (task action spec §10).

mod azure;

use std::{collections::BTreeMap, path::PathBuf};

use longshore_outbound::is_service_url;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use azure::Azure;

const MIB: u64 = 1024 * 1024;

/// The section `storage`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StorageConfig {
    /// `stow`, `s3`, `minio` or `local`; the section `stow` counts before `connection`. Default: `stow` where there is a section `stow`, else `local`.
    pub r#type: String,
    /// The bucket that others put things into; any bucket is read.
    pub container: String,
    /// Any bucket is read, whatever this says.
    pub enable_multicontainer: bool,
    /// How the store is reached, where the type says which it is.
    pub connection: Connection,
    /// How the store is reached, where the type is `stow`.
    pub stow: Stow,
    /// Ours: the directory below which `file://` URLs and paths are. A cluster's executor takes none without it, or
    /// without `stow: {kind: local, config: {path: …}}`.
    pub files_root: Option<PathBuf>,
    /// Ours: what the actions of a namespace may name, as beginnings of URLs. Without this table they may name whatever
    /// is configured; with it, a namespace that is not in it may name what `*` may.
    pub namespaces: Option<BTreeMap<String, Vec<String>>>,
    /// How much is read.
    pub limits: StorageLimits,
    /// The peer's; nothing is kept in memory here.
    pub cache: Value,
    /// The peer's.
    #[serde(rename = "defaultHttpClient")]
    pub default_http_client: Value,
    /// The peer's; nothing is signed here.
    #[serde(rename = "signedUrl", alias = "signedURL")]
    pub signed_url: Value,
}

/// `storage.connection`.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Connection {
    /// Of a store that is not Amazon's, as `http://minio:9000`.
    pub endpoint: String,
    /// `iam` or `accesskey`.
    pub auth_type: String,
    /// With `accesskey`.
    pub access_key: String,
    /// With `accesskey`.
    pub secret_key: String,
    /// Of the buckets. Default: `us-east-1`.
    pub region: String,
    /// An endpoint without scheme is `http://`.
    pub disable_ssl: bool,
}

/// `storage.stow`.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stow {
    /// `s3`, `google`, `azure` or `local`.
    pub kind: String,
    /// What that kind needs: `auth_type`, `access_key_id`, `secret_key`, `region`, `endpoint`, `disable_ssl` of S3;
    /// `json` of Google; `account`, `key`, `domain_suffix` of Azure, and `endpoint`, which is ours; `path` of this machine.
    pub config: BTreeMap<String, Value>,
}

/// `storage.limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageLimits {
    /// No file is read beyond this, in MiB; 0 for no limit. Default: 2.
    #[serde(rename = "maxDownloadMBs")]
    pub max_download_mbs: u64,
}

impl Default for StorageLimits {
    fn default() -> Self {
        Self {
            max_download_mbs: 2,
        }
    }
}

impl StorageLimits {
    /// In bytes.
    pub(crate) fn max_download(self) -> u64 {
        match self.max_download_mbs {
            0 => u64::MAX,
            mib => mib.saturating_mul(MIB),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.endpoint)
            .field("auth_type", &self.auth_type)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Stow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stow")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A section `storage` that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageConfigError {
    /// A kind of store that is not there.
    #[error("storage: expected {field} to be one of {expected}, found {found:?}")]
    Unknown {
        /// The key.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// An endpoint with a user, which would be shown in errors and statuses. Its keys are not sent so.
    #[error(
        "storage: expected an endpoint as https://host:port, found one with a user or a password; keys belong into access-key and secret-key"
    )]
    UserInEndpoint,
    /// An endpoint that is no address.
    #[error("storage: expected an endpoint as https://host:port, found {0:?}")]
    BadEndpoint(String),
    /// The same in a variable of the environment, which the library of the store would read.
    #[error(
        "storage: expected an address as https://host:port in the variable {name}, found one with a user, a password or a query; keys belong into {keys}"
    )]
    UserInVariable {
        /// Of the variable.
        name: String,
        /// The variables of keys.
        keys: &'static str,
    },
    /// A store of Azure whose account is not named.
    #[error(
        "storage: expected the name of a storage account of Azure in stow.config.account, found {0:?}"
    )]
    NoAccount(String),
    /// A key of an account of Azure that is none.
    #[error(
        "storage: expected an access key of the storage account in stow.config.key, as base64, found something else"
    )]
    BadKey,
    /// An endpoint with a query, in which tokens are.
    #[error(
        "storage: expected an endpoint as https://host:port, found one with a query; a SAS token belongs into the variable AZURE_STORAGE_SAS_TOKEN"
    )]
    QueryInEndpoint,
    /// A key with half of what is needed.
    #[error("storage: {field} is empty, and auth type accesskey needs it")]
    NoKey {
        /// The key.
        field: &'static str,
    },
}

/// What stores there are besides this machine's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stores {
    /// Below which `file://` URLs are; `None` where no directory is configured.
    pub(crate) root: Option<PathBuf>,
    /// `s3://`.
    pub(crate) s3: Option<S3>,
    /// `gs://`.
    pub(crate) gcs: Option<Gcs>,
    /// `abfs://` and `abfss://`.
    pub(crate) azure: Option<Azure>,
}

/// How S3 is reached.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct S3 {
    /// With its scheme; empty for Amazon's.
    pub(crate) endpoint: String,
    /// Empty for the environment's, or `us-east-1`.
    pub(crate) region: String,
    /// Id and secret; `None` for what the machine or the pod has.
    pub(crate) key: Option<(String, String)>,
}

/// How Google's store is reached.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Gcs {
    /// A service account's key, as JSON; empty for what the machine or the pod has.
    pub(crate) key: String,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Gcs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gcs").finish_non_exhaustive()
    }
}

impl StorageConfig {
    /// What a section says.
    ///
    /// # Errors
    /// What is wrong with it, without the values that were found: they may be keys.
    pub fn of(section: &Value) -> Result<Self, String> {
        let read = Self::deserialize(section);
        read.map_err(|error| without_value(&error.to_string()))
    }

    /// Whether there can be such stores.
    ///
    /// # Errors
    /// What they cannot be made of.
    pub fn check(&self) -> Result<(), StorageConfigError> {
        self.stores().map(drop)
    }

    pub(crate) fn stores(&self) -> Result<Stores, StorageConfigError> {
        let local = Stores {
            root: self.files_root.clone(),
            ..Stores::default()
        };
        // Upstream looks there first, whatever the type.
        let is_in_stow = !self.stow.kind.is_empty() && !self.stow.config.is_empty();
        match (self.r#type.as_str(), self.stow.kind.as_str()) {
            ("s3" | "minio", _) if is_in_stow => self.stow.stores(local),
            ("s3" | "minio", _) | ("stow", "") => Ok(Stores {
                s3: Some(s3(&self.connection)?),
                ..local
            }),
            ("" | "local", "") => Ok(local),
            ("stow" | "", _) => self.stow.stores(local),
            ("local", _) => Ok(local),
            (found, _) => Err(StorageConfigError::Unknown {
                field: "type",
                expected: "stow, s3, minio, local",
                found: found.to_owned(),
            }),
        }
    }
}

impl Stow {
    fn stores(&self, local: Stores) -> Result<Stores, StorageConfigError> {
        match self.kind.as_str() {
            "s3" => Ok(Stores {
                s3: Some(s3(&Connection {
                    endpoint: self.text("endpoint"),
                    auth_type: self.text("auth_type"),
                    access_key: self.text("access_key_id"),
                    secret_key: self.text("secret_key"),
                    region: self.text("region"),
                    disable_ssl: self.text("disable_ssl").eq_ignore_ascii_case("true"),
                })?),
                ..local
            }),
            "google" => Ok(Stores {
                gcs: Some(Gcs {
                    key: self.text("json"),
                }),
                ..local
            }),
            "azure" => Ok(Stores {
                azure: Some(Azure::of(|key| self.text(key))?),
                ..local
            }),
            "local" => Ok(Stores {
                root: match self.text("path").as_str() {
                    "" => local.root,
                    path => Some(PathBuf::from("/").join(path)),
                },
                ..local
            }),
            found => Err(StorageConfigError::Unknown {
                field: "stow.kind",
                expected: "s3, google, azure, local",
                found: found.to_owned(),
            }),
        }
    }

    /// A value, however YAML read it.
    fn text(&self, key: &str) -> String {
        match self.config.get(key) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// What a parser says of a value that it did not expect, without that value.
pub fn without_value(why: &str) -> String {
    let begin = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|words| Some(why.find(words)? + words.len()));
    let (Some(begin), Some(end)) = (begin, why.rfind(", expected ")) else {
        return why.to_owned();
    };
    let Some(found) = why.get(begin..end) else {
        return why.to_owned();
    };
    let kind = found.split(['`', '"']).next().unwrap_or_default();
    format!("{}{}{}", &why[..begin], kind.trim_end(), &why[end..])
}

fn s3(connection: &Connection) -> Result<S3, StorageConfigError> {
    let Connection {
        access_key,
        secret_key,
        ..
    } = connection;
    let is_accesskey = match connection.auth_type.as_str() {
        "" => !access_key.is_empty(),
        "iam" => false,
        "accesskey" => true,
        found => {
            return Err(StorageConfigError::Unknown {
                field: "auth type",
                expected: "iam, accesskey",
                found: found.to_owned(),
            });
        }
    };
    for (field, value) in [("access key", access_key), ("secret key", secret_key)] {
        if is_accesskey && value.is_empty() {
            return Err(StorageConfigError::NoKey { field });
        }
    }
    let scheme = if connection.disable_ssl {
        "http"
    } else {
        "https"
    };
    let endpoint = match connection.endpoint.as_str() {
        "" => String::new(),
        whole if whole.contains("://") => whole.to_owned(),
        host => format!("{scheme}://{host}"),
    };
    if names_user(&endpoint) {
        return Err(StorageConfigError::UserInEndpoint);
    }
    if !endpoint.is_empty() && !is_service_url(&endpoint) {
        return Err(StorageConfigError::BadEndpoint(endpoint));
    }
    Ok(S3 {
        endpoint,
        region: connection.region.clone(),
        key: is_accesskey.then(|| (access_key.clone(), secret_key.clone())),
    })
}

/// Whether the address of a store has a user. A password with `/` in it ends the authority for a parser, which would show
/// the rest: no address of a store has `@` anywhere.
pub(crate) fn names_user(address: &str) -> bool {
    address.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(yaml: &str) -> Result<Stores, String> {
        let config: StorageConfig = serde_saphyr::from_str(yaml).map_err(|e| e.to_string())?;
        config.stores().map_err(|error| error.to_string())
    }

    fn minio() -> S3 {
        S3 {
            endpoint: "http://minio:9000".to_owned(),
            region: "us-east-1".to_owned(),
            key: Some(("id".to_owned(), "secret".to_owned())),
        }
    }

    #[test]
    fn every_way_to_say_s3_means_the_same() {
        let stow = "
type: stow
container: flyte-data
enable-multicontainer: true
stow:
  kind: s3
  config: {auth_type: accesskey, access_key_id: id, secret_key: secret, region: us-east-1, disable_ssl: true,
           endpoint: 'http://minio:9000', v2_signing: false}
limits: {maxDownloadMBs: 10}
cache: {max_size_mbs: 0}
";
        let minio_type = "
type: minio
connection: {auth-type: accesskey, access-key: id, secret-key: secret, region: us-east-1, disable-ssl: true,
             endpoint: 'minio:9000'}
";
        let minio_in_stow = stow.replace("type: stow", "type: minio");
        let without_kind = minio_type.replace("type: minio", "type: stow");
        for yaml in [stow, minio_type, &minio_in_stow, &without_kind] {
            assert_eq!(stores(yaml).unwrap().s3, Some(minio()), "{yaml}");
        }
        let iam = "{type: s3, connection: {auth-type: iam, region: eu-west-1}}";
        let iam = stores(iam).unwrap().s3.unwrap();
        assert_eq!((iam.endpoint.as_str(), iam.key), ("", None));
    }

    #[test]
    fn other_stores_are_found_too() {
        let google = "{type: stow, stow: {kind: google, config: {json: '{}', project_id: p}}}";
        assert_eq!(
            stores(google).unwrap().gcs,
            Some(Gcs {
                key: "{}".to_owned()
            })
        );
        let local = "{type: stow, stow: {kind: local, config: {path: /tmp/data}}}";
        assert_eq!(stores(local).unwrap().root, Some("/tmp/data".into()));
        let beside = "{type: s3, files-root: /tmp/data, connection: {auth-type: iam}}";
        let beside = stores(beside).unwrap();
        assert_eq!(
            (beside.root, beside.s3.is_some()),
            (Some("/tmp/data".into()), true)
        );
        assert_eq!(stores("{}").unwrap().root, None);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (yaml, expected) in [
            (
                "type: redis",
                "expected type to be one of stow, s3, minio, local, found \"redis\"",
            ),
            (
                "stow: {kind: swift}",
                "expected stow.kind to be one of s3, google, azure, local",
            ),
            (
                "{type: s3, connection: {auth-type: magic}}",
                "expected auth type",
            ),
            (
                "{type: s3, connection: {auth-type: accesskey, access-key: id}}",
                "secret key is empty",
            ),
            ("contaner: x", "unknown field `contaner`"),
            (
                "{type: s3, connection: {endpoint: 'http://id:hidden@minio:9000'}}",
                "found one with a user or a password",
            ),
            (
                "{type: s3, connection: {auth-type: iam, endpoint: '::bad::'}}",
                "expected an endpoint as https://host:port, found \"https://::bad::\"",
            ),
            (
                "{type: stow, stow: {kind: s3, config: {auth_type: iam, endpoint: 'ftp://minio'}}}",
                "expected an endpoint as https://host:port, found \"ftp://minio\"",
            ),
        ] {
            let error = stores(yaml).unwrap_err();
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_used_of_azure_is_named_without_its_key() {
        for (config, expected) in [
            ("{key: c2VjcmV0}", "stow.config.account, found \"\""),
            ("{account: 'a.b/c'}", "stow.config.account, found \"a.b/c\""),
            (
                "{account: acme, key: '!canary'}",
                "stow.config.key, as base64",
            ),
            (
                "{account: acme, domain_suffix: 'core/x'}",
                "found \"https://acme.blob.core/x\"",
            ),
            (
                "{account: acme, endpoint: 'https://id:canary@azurite:10000/acme'}",
                "found one with a user or a password",
            ),
            (
                "{account: acme, endpoint: 'https://azurite:10000/acme?sig=canary'}",
                "a SAS token belongs into the variable AZURE_STORAGE_SAS_TOKEN",
            ),
            (
                "{account: acme, endpoint: 'azurite'}",
                "expected an endpoint as https://host:port, found \"azurite\"",
            ),
        ] {
            let yaml = format!("{{type: stow, stow: {{kind: azure, config: {config}}}}}");
            let error = stores(&yaml).unwrap_err();
            assert!(error.contains(expected), "{config}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_is_not_repeated() {
        for value in ["12345", "[12345]", "{key: 12345}", "true"] {
            let yaml = format!("{{type: s3, connection: {{secret-key: {value}}}}}");
            let document: Value = serde_saphyr::from_str(&yaml).unwrap();
            let why = StorageConfig::of(&document).unwrap_err();
            assert!(!why.contains("12345"), "{why}");
            assert!(why.ends_with("expected a string"), "{why}");
        }
        let none = serde_json::json!({"connection": "id:hidden"});
        let why = StorageConfig::of(&none).unwrap_err();
        assert_eq!(why, "invalid type: string, expected struct Connection");
    }

    #[test]
    fn secrets_are_not_printed() {
        let config = "{type: s3, connection: {access-key: id, secret-key: hidden}}";
        let config: StorageConfig = serde_saphyr::from_str(config).unwrap();
        assert!(!format!("{config:?} {:?}", config.stores().unwrap()).contains("hidden"));
        let azure = "{type: stow, stow: {kind: azure, config: {account: acme, key: aGlkZGVu}}}";
        let azure: StorageConfig = serde_saphyr::from_str(azure).unwrap();
        assert!(!format!("{azure:?} {:?}", azure.stores().unwrap()).contains("aGlkZGVu"));
    }
}
