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
}

/// Where a URL leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location<'a> {
    pub(crate) kind: Kind,
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
            _ => return None,
        };
        let (bucket, key) = match kind {
            Kind::File => ("", rest),
            Kind::S3 | Kind::Gcs => rest.split_once('/').unwrap_or((rest, "")),
        };
        // It becomes a part of the URL that is asked.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if !bucket.chars().all(is_plain) || bucket.starts_with('.') {
            return None;
        }
        let key = key.trim_start_matches('/');
        Some(Self { kind, bucket, key })
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
            ("abfs://b/k", None),
            ("s3://b?x=/k", None),
            ("s3://a@b/k", None),
            ("gs://../k", None),
        ] {
            let found = Location::parse(url).map(|it| (it.kind, it.bucket, it.key));
            assert_eq!(found, expected, "{url}");
        }
    }
}
