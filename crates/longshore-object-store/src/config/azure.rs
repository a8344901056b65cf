//! How Microsoft's store is reached.

use longshore_outbound::is_service_url;
use object_store::azure::AzureAccessKey;

use super::{StorageConfigError, names_user};

/// Of the public cloud.
const DOMAIN_SUFFIX: &str = "core.windows.net";

/// How Microsoft's store is reached.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Azure {
    /// The storage account: all containers are of this one.
    pub(crate) account: String,
    /// Of the account; empty for what the machine or the pod has.
    pub(crate) key: String,
    /// Behind `account.blob.` and `account.dfs.`; empty for that of the public cloud.
    domain_suffix: String,
    /// Of a store that is not Microsoft's, with its scheme.
    endpoint: String,
}

impl std::fmt::Debug for Azure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Azure")
            .field("account", &self.account)
            .field("endpoint", &self.endpoint())
            .finish_non_exhaustive()
    }
}

impl Azure {
    /// What `stow.config` says, of which `text` has the values.
    pub(super) fn of(text: impl Fn(&str) -> String) -> Result<Self, StorageConfigError> {
        // The second one is an older name of the first one.
        let suffix = [text("domain_suffix"), text("base_url")];
        let azure = Self {
            account: text("account"),
            key: text("key"),
            domain_suffix: suffix
                .into_iter()
                .find(|it| !it.is_empty())
                .unwrap_or_default(),
            endpoint: text("endpoint"),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if azure.account.is_empty() || !azure.account.chars().all(is_plain) {
            return Err(StorageConfigError::NoAccount(azure.account));
        }
        if !azure.key.is_empty() && AzureAccessKey::try_new(&azure.key).is_err() {
            return Err(StorageConfigError::BadKey);
        }
        let is_domain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let is_bad_suffix = !azure.domain_suffix.chars().all(is_domain);
        let Some(endpoint) = azure.endpoint() else {
            return Ok(azure);
        };
        if names_user(&endpoint) {
            return Err(StorageConfigError::UserInEndpoint);
        }
        if endpoint.contains('?') {
            return Err(StorageConfigError::QueryInEndpoint);
        }
        if is_bad_suffix || !is_service_url(&endpoint) {
            return Err(StorageConfigError::BadEndpoint(endpoint));
        }
        Ok(azure)
    }

    /// The address of the account, with its scheme; `None` for that of the environment, or of the public cloud.
    pub(crate) fn endpoint(&self) -> Option<String> {
        if !self.endpoint.is_empty() {
            return Some(self.endpoint.clone());
        }
        let suffix = Some(&self.domain_suffix).filter(|suffix| !suffix.is_empty())?;
        Some(format!("https://{}.blob.{suffix}", self.account))
    }

    /// Whether a URL that names this host is one of the account. No other account gets a token that was made for this one.
    pub(crate) fn has(&self, host: &str) -> bool {
        let suffix = match self.domain_suffix.as_str() {
            "" => DOMAIN_SUFFIX,
            suffix => suffix,
        };
        let of_account = ["dfs", "blob"].map(|kind| format!("{}.{kind}.{suffix}", self.account));
        host.is_empty() || of_account.iter().any(|it| it.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn azure(values: &[(&str, &str)]) -> Azure {
        let text = |key: &str| {
            let value = values.iter().find(|(name, _)| *name == key);
            value.map_or_else(String::new, |(_, value)| (*value).to_owned())
        };
        Azure::of(text).unwrap()
    }

    #[test]
    fn the_address_of_an_account_is_that_of_its_cloud() {
        type Row<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let table: [Row<'_>; 4] = [
            (&[], None),
            (
                &[("domain_suffix", "core.chinacloudapi.cn")],
                Some("https://acme.blob.core.chinacloudapi.cn"),
            ),
            (
                &[("base_url", "core.usgovcloudapi.net")],
                Some("https://acme.blob.core.usgovcloudapi.net"),
            ),
            (
                &[("endpoint", "http://azurite:10000/acme")],
                Some("http://azurite:10000/acme"),
            ),
        ];
        for (values, expected) in table {
            let values = [&[("account", "acme")][..], values].concat();
            assert_eq!(azure(&values).endpoint().as_deref(), expected, "{values:?}");
        }
    }

    #[test]
    fn only_the_account_of_the_configuration_is_asked() {
        let public = azure(&[("account", "acme")]);
        let china = azure(&[
            ("account", "acme"),
            ("domain_suffix", "core.chinacloudapi.cn"),
        ]);
        for (host, is_public, is_china) in [
            ("", true, true),
            ("acme.dfs.core.windows.net", true, false),
            ("ACME.blob.core.windows.net", true, false),
            ("acme.blob.core.chinacloudapi.cn", false, true),
            ("other.dfs.core.windows.net", false, false),
            ("acme.dfs.core.windows.net.example.com", false, false),
            ("acme.dfs.example.com", false, false),
        ] {
            let found = (public.has(host), china.has(host));
            assert_eq!(found, (is_public, is_china), "{host}");
        }
    }
}
