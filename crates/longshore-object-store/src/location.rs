//! Where a URL leads.

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This machine.
    File,
    /// Amazon's S3, or what speaks like it.
    S3,
    /// Google's.
    Gcs,
    /// Microsoft's.
    Azure,
}

/// Where a URL leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location<'a> {
    pub(crate) kind: Kind,
    /// That the URL itself names behind its bucket, as `account.dfs.core.windows.net` of Azure; else empty.
    pub(crate) host: &'a str,
    /// Empty on this machine.
    pub(crate) bucket: &'a str,
    /// Within the bucket, or below the root of this machine's.
    pub(crate) key: &'a str,
}

impl<'a> Location<'a> {
    /// `None` for an unknown kind of store, and for a bucket that cannot be one.
    pub(crate) fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("file", url));
        let kind = match scheme {
            "file" => Kind::File,
            "s3" => Kind::S3,
            "gs" => Kind::Gcs,
            "abfs" | "abfss" => Kind::Azure,
            _ => return None,
        };
        let (authority, key) = match kind {
            Kind::File => ("", rest),
            Kind::S3 | Kind::Gcs | Kind::Azure => rest.split_once('/').unwrap_or((rest, "")),
        };
        let (bucket, host) = match kind {
            Kind::Azure => authority.split_once('@').unwrap_or((authority, "")),
            Kind::File | Kind::S3 | Kind::Gcs => (authority, ""),
        };
        // They become parts of the URL that is asked.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_bad = |part: &str| !part.chars().all(is_plain) || part.starts_with('.');
        if is_bad(bucket) || is_bad(host) {
            return None;
        }
        let key = key.trim_start_matches('/');
        Some(Self {
            kind,
            host,
            bucket,
            key,
        })
    }
}

/// Whether a text begins with the scheme of a URL and goes on without `//`: `file:path` would mean a directory `file:`.
pub(crate) fn is_without_slashes(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once(':') else {
        return false;
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    is_scheme && scheme.chars().all(is_plain) && !rest.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_without_slashes_is_found_and_a_path_with_a_colon_is_none() {
        for (url, expected) in [
            ("file:relative", true),
            ("file:/tmp/x", true),
            ("s3:bucket/key", true),
            ("file://host/x", false),
            ("/tmp/a:b", false),
            ("a/b:c", false),
            ("relative", false),
        ] {
            assert_eq!(is_without_slashes(url), expected, "{url}");
        }
    }

    #[test]
    fn urls_lead_to_stores() {
        for (url, expected) in [
            ("/tmp/x", Some((Kind::File, "", "tmp/x"))),
            ("file:///tmp/x", Some((Kind::File, "", "tmp/x"))),
            ("file://data/x", Some((Kind::File, "", "data/x"))),
            ("s3://b/k/1", Some((Kind::S3, "b", "k/1"))),
            ("s3://b", Some((Kind::S3, "b", ""))),
            ("gs://b//k", Some((Kind::Gcs, "b", "k"))),
            ("abfs://b/k", Some((Kind::Azure, "b", "k"))),
            ("az://b/k", None),
            ("abfs://b@a@c/k", None),
            ("abfs://b@h:1/k", None),
            ("s3://b?x=/k", None),
            ("s3://a@b/k", None),
            ("gs://../k", None),
        ] {
            let found = Location::parse(url).map(|it| (it.kind, it.bucket, it.key));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn a_url_of_azure_may_name_its_account() {
        let host = "acme.dfs.core.windows.net";
        for (url, expected) in [
            (format!("abfs://data@{host}/k/1"), (host, "data", "k/1")),
            (format!("abfss://data@{host}"), (host, "data", "")),
            ("abfss://data/k/1".to_owned(), ("", "data", "k/1")),
        ] {
            let found = Location::parse(&url).map(|it| (it.host, it.bucket, it.key));
            assert_eq!(found, Some(expected), "{url}");
        }
    }
}
