//! Addresses of stores that the environment names. Pure.

use object_store::{aws::AmazonS3ConfigKey, azure::AzureConfigKey, gcp::GoogleConfigKey};

use crate::config::{StorageConfigError, Stores, names_user};

/// What the variables of S3, of Google's store and of Microsoft's store begin with.
pub(crate) const S3: &str = "AWS_";
pub(crate) const GCS: &str = "GOOGLE_";
pub(crate) const AZURE: &str = "AZURE_";
/// Where a machine of Azure asks for its own tokens, if not at the usual address.
pub(crate) const AZURE_IDENTITY: &str = "IDENTITY_ENDPOINT";

/// Fails where the address of a store that is used has a user or a password, which errors and statuses would show.
pub(crate) fn check(
    stores: &Stores,
    environment: &[(String, String)],
) -> Result<(), StorageConfigError> {
    for (name, value) in environment {
        let is_s3 = stores.s3.is_some() && is_address_of_s3(name);
        let is_gcs = stores.gcs.is_some() && is_address_of_gcs(name);
        let is_azure = stores.azure.is_some() && is_address_of_azure(name);
        // The portal of Azure offers addresses with a token in the query.
        let has_secret = names_user(value) || is_azure && value.contains('?');
        let keys = match (is_s3, is_gcs, is_azure) {
            (true, _, _) => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            (_, true, _) => "GOOGLE_SERVICE_ACCOUNT_KEY",
            (_, _, true) => "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
            (false, false, false) => continue,
        };
        if has_secret {
            let name = name.clone();
            return Err(StorageConfigError::UserInVariable { name, keys });
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

/// `AZURE_STORAGE_ENDPOINT`, `AZURE_AUTHORITY_HOST` and others.
fn is_address_of_azure(name: &str) -> bool {
    let key = name
        .starts_with(AZURE)
        .then(|| name.to_ascii_lowercase().parse::<AzureConfigKey>());
    let is_address = matches!(
        key,
        Some(Ok(AzureConfigKey::Endpoint
            | AzureConfigKey::AuthorityHost
            | AzureConfigKey::MsiEndpoint
            | AzureConfigKey::FabricTokenServiceUrl
            | AzureConfigKey::FabricWorkloadHost))
    );
    is_address || name == AZURE_IDENTITY
}

/// Whether a variable is one for us: the library would start `az` and hold its thread meanwhile, or ask an emulator
/// instead of the store that is configured.
pub(crate) fn counts_for_azure(key: AzureConfigKey, value: &str) -> bool {
    let is_cli = key == AzureConfigKey::CredentialType && value == "azure_cli";
    let is_left_out = matches!(
        key,
        AzureConfigKey::UseAzureCli | AzureConfigKey::UseEmulator
    );
    !is_cli && !is_left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Storage, StorageConfig};

    const S3_STORE: &str = "{type: s3, connection: {auth-type: iam}}";
    const GCS_STORE: &str = "{type: stow, stow: {kind: google, config: {json: '{}'}}}";
    const AZURE_STORE: &str = "{type: stow, stow: {kind: azure, config: {account: acme}}}";

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
            (AZURE_STORE, "AZURE_STORAGE_ENDPOINT"),
            (AZURE_STORE, "AZURE_AUTHORITY_HOST"),
            (AZURE_STORE, "AZURE_MSI_ENDPOINT"),
            (AZURE_STORE, "IDENTITY_ENDPOINT"),
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
        let signed = "https://acme.blob.core.windows.net/?sv=1&sig=canary";
        let refused = refusal(AZURE_STORE, "AZURE_STORAGE_ENDPOINT", signed).unwrap();
        let expected = "keys belong into AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN";
        assert!(refused.ends_with(expected), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }

    #[test]
    fn no_variable_has_the_library_start_a_program_or_ask_an_emulator() {
        for (name, value, expected) in [
            ("azure_storage_account_key", "a2V5", true),
            ("azure_credential_type", "workload_identity", true),
            ("azure_credential_type", "azure_cli", false),
            ("azure_use_azure_cli", "true", false),
            ("azure_storage_use_emulator", "true", false),
        ] {
            let key = name.parse().unwrap();
            assert_eq!(counts_for_azure(key, value), expected, "{name}={value}");
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
            (S3_STORE, "AZURE_STORAGE_ENDPOINT", url),
            (S3_STORE, "IDENTITY_ENDPOINT", url),
            (AZURE_STORE, "AZURE_STORAGE_SAS_TOKEN", "?sig=a@b"),
        ] {
            assert_eq!(refusal(store, name, value), None, "{name}");
        }
    }
}
