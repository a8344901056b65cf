//! Addresses of stores that the environment names. Pure.

use object_store::{aws::AmazonS3ConfigKey, gcp::GoogleConfigKey};

use crate::config::{StorageConfigError, Stores, names_user};

/// What the variables of S3 and of Google's store begin with.
pub(crate) const S3: &str = "AWS_";
pub(crate) const GCS: &str = "GOOGLE_";

/// Fails where the address of a store that is used has a user or a password, which errors and statuses would show.
pub(crate) fn check(
    stores: &Stores,
    environment: &[(String, String)],
) -> Result<(), StorageConfigError> {
    for (name, value) in environment {
        let is_s3 = stores.s3.is_some() && is_address_of_s3(name);
        let is_gcs = stores.gcs.is_some() && is_address_of_gcs(name);
        if (is_s3 || is_gcs) && names_user(value) {
            return Err(StorageConfigError::UserInVariable {
                name: name.clone(),
                keys: if is_s3 {
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                } else {
                    "GOOGLE_SERVICE_ACCOUNT_KEY"
                },
            });
        }
    }
    Ok(())
}

/// `AWS_ENDPOINT`, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_S3` and others, under each name that the library knows.
fn is_address_of_s3(name: &str) -> bool {
    let key = name
        .starts_with(S3)
        .then(|| name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>());
    matches!(
        key,
        Some(Ok(AmazonS3ConfigKey::Endpoint
            | AmazonS3ConfigKey::S3Endpoint
            | AmazonS3ConfigKey::StsEndpoint
            | AmazonS3ConfigKey::MetadataEndpoint
            | AmazonS3ConfigKey::ContainerCredentialsFullUri))
    )
}

/// `GOOGLE_BASE_URL`.
fn is_address_of_gcs(name: &str) -> bool {
    let key = name
        .starts_with(GCS)
        .then(|| name.to_ascii_lowercase().parse::<GoogleConfigKey>());
    matches!(key, Some(Ok(GoogleConfigKey::BaseUrl)))
}

#[cfg(test)]
mod tests {
    use crate::{Storage, StorageConfig};

    const S3_STORE: &str = "{type: s3, connection: {auth-type: iam}}";
    const GCS_STORE: &str = "{type: stow, stow: {kind: google, config: {json: '{}'}}}";

    fn refusal(store: &str, name: &str, value: &str) -> Option<String> {
        let config: StorageConfig = serde_saphyr::from_str(store).unwrap();
        let environment = [(name.to_owned(), value.to_owned())];
        let refused = Storage::of_cluster(&config, environment).err();
        refused.map(|error| error.to_string())
    }

    #[test]
    fn a_user_in_an_address_of_the_environment_is_refused_without_its_password() {
        for (store, name) in [
            (S3_STORE, "AWS_ENDPOINT"),
            (S3_STORE, "AWS_ENDPOINT_URL"),
            (S3_STORE, "AWS_ENDPOINT_URL_S3"),
            (S3_STORE, "AWS_ENDPOINT_URL_STS"),
            (S3_STORE, "AWS_METADATA_ENDPOINT"),
            (S3_STORE, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
            (GCS_STORE, "GOOGLE_BASE_URL"),
        ] {
            for value in [
                "https://id:canary@minio:9000",
                "id:canary@minio:9000",
                "http://id:can/ary@minio",
            ] {
                let refused = refusal(store, name, value);
                let refused = refused.unwrap_or_else(|| panic!("{name}={value}"));
                assert!(refused.contains(name), "{refused}");
                assert!(!refused.contains("can"), "{refused}");
            }
            assert_eq!(refusal(store, name, "http://minio:9000/x"), None, "{name}");
        }
    }

    #[test]
    fn variables_of_stores_that_are_not_used_and_keys_may_have_any_value() {
        let url = "https://id:canary@minio";
        for (store, name, value) in [
            ("{}", "AWS_ENDPOINT", url),
            (S3_STORE, "GOOGLE_BASE_URL", url),
            (GCS_STORE, "AWS_ENDPOINT_URL", url),
            (S3_STORE, "AWS_ENDPOINT_URL_DYNAMODB", url),
            (S3_STORE, "AWS_SECRET_ACCESS_KEY", "a://b@c"),
        ] {
            assert_eq!(refusal(store, name, value), None, "{name}");
        }
    }
}
