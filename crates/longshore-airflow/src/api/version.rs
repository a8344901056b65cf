//! Versions of the Execution API: a date, in a header of each request.

use std::fmt;

use jiff::civil::Date;

use super::error::ApiError;

/// Header of a request: the version that the client speaks. Header of its answer: the version that was served.
pub const HEADER_VERSION: &str = "airflow-api-version";

/// A served version. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiVersion {
    /// Task SDK 1.1.8 (Airflow 3.1.8).
    V2025_11_05,
    /// Task SDK 1.2 (Airflow 3.2).
    V2026_04_06,
    /// Task SDK 1.3 (Airflow 3.3).
    V2026_06_30,
}

impl ApiVersion {
    /// All served versions, oldest first.
    pub const ALL: [Self; 3] = [Self::V2025_11_05, Self::V2026_04_06, Self::V2026_06_30];
    /// What a client without the header gets.
    pub const LATEST: Self = Self::V2026_06_30;
    /// The oldest served version.
    pub const OLDEST: Self = Self::V2025_11_05;

    /// The date that names the version: `2026-06-30`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2025_11_05 => "2025-11-05",
            Self::V2026_04_06 => "2026-04-06",
            Self::V2026_06_30 => "2026-06-30",
        }
    }

    /// The version that serves a request with this header.
    ///
    /// A date between two versions, or after the last one, gets the version before it. Without the header, the latest one
    /// answers. Upstream: Cadwyn, `_get_routes_from_closest_suitable_version`.
    ///
    /// # Errors
    /// 422 for a text that is no date, 404 for a date before [`Self::OLDEST`], as upstream.
    pub fn negotiate(header: Option<&str>) -> Result<Self, ApiError> {
        let Some(header) = header else {
            return Ok(Self::LATEST);
        };
        let is_date = header.len() == "2026-06-30".len() && header.parse::<Date>().is_ok();
        if !is_date {
            return Err(ApiError::invalid_version(header));
        }
        // Dates in this form sort as text.
        let served = Self::ALL.into_iter().rev().find(|it| it.as_str() <= header);
        served.ok_or_else(|| ApiError::version_too_old(header))
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_gets_the_version_before_it() {
        for (header, expected) in [
            (None, ApiVersion::V2026_06_30),
            (Some("2026-06-30"), ApiVersion::V2026_06_30),
            (Some("2027-02-28"), ApiVersion::V2026_06_30),
            (Some("2026-06-29"), ApiVersion::V2026_04_06),
            (Some("2026-04-06"), ApiVersion::V2026_04_06),
            (Some("2026-04-05"), ApiVersion::V2025_11_05),
            (Some("2025-11-05"), ApiVersion::V2025_11_05),
        ] {
            assert_eq!(ApiVersion::negotiate(header), Ok(expected), "{header:?}");
        }
    }

    #[test]
    fn a_header_that_is_no_version_is_refused() {
        for (header, status) in [
            ("2025-11-04", 404),
            ("2025-04-11", 404),
            ("latest", 422),
            ("2026-13-01", 422),
            ("2026-6-30", 422),
            ("2026-06-30T00:00:00", 422),
            ("", 422),
        ] {
            let refused = ApiVersion::negotiate(Some(header)).unwrap_err();
            assert_eq!(refused.status(), status, "{header:?}");
        }
    }

    #[test]
    fn versions_sort_as_their_dates() {
        assert!(ApiVersion::ALL.is_sorted_by_key(|it| it.as_str()));
        assert!(ApiVersion::ALL.is_sorted());
        assert_eq!(ApiVersion::ALL.first(), Some(&ApiVersion::OLDEST));
        assert_eq!(ApiVersion::ALL.last(), Some(&ApiVersion::LATEST));
    }
}
