//! The formats of strings that Kubernetes checks; all others, `int32` and `int64` among them, are
//! only documentation there and so here.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use jiff::civil::Date;
use regex::Regex;

/// A format whose values are checked.
#[derive(Debug, Clone)]
pub(super) struct Format {
    /// As the schema spells it, for messages.
    pub(super) name: String,
    check: fn(&str) -> bool,
}

impl Format {
    /// A format by its name; hyphens do not count. `None` for a format that the server does not
    /// check.
    pub(super) fn named(name: &str) -> Option<Format> {
        let check: fn(&str) -> bool = match name.replace('-', "").as_str() {
            "bsonobjectid" => |text| text.len() == 24 && is_hex(text),
            "uri" => is_uri,
            "email" => is_email,
            "hostname" => is_hostname,
            "ipv4" => |text| text.parse::<Ipv4Addr>().is_ok(),
            "ipv6" => |text| text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
            "cidr" => is_cidr,
            "mac" => is_mac,
            "uuid" => |text| uuid_version(text).is_some(),
            "uuid3" => |text| uuid_version(text) == Some('3'),
            "uuid4" => |text| uuid_version(text) == Some('4') && has_uuid_variant(text),
            "uuid5" => |text| uuid_version(text) == Some('5') && has_uuid_variant(text),
            "isbn" => |text| is_isbn10(text) || is_isbn13(text),
            "isbn10" => is_isbn10,
            "isbn13" => is_isbn13,
            "creditcard" => is_credit_card,
            "ssn" => |text| SSN.is_match(text),
            "hexcolor" => |text| HEX_COLOR.is_match(text),
            "rgbcolor" => is_rgb_color,
            "byte" => is_base64,
            "password" => |_| true,
            "date" => |text| text.len() == 10 && text.parse::<Date>().is_ok(),
            "duration" => is_duration,
            "datetime" => is_date_time,
            _ => return None,
        };
        Some(Format {
            name: name.to_owned(),
            check,
        })
    }

    pub(super) fn accepts(&self, text: &str) -> bool {
        (self.check)(text)
    }
}

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($text).expect("compile a constant pattern"));
    };
}

pattern!(SSN, r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$");
pattern!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(
    DURATION,
    r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$"
);
pattern!(
    WORDY_DURATION,
    r"^[0-9]+\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)$"
);
pattern!(
    DATE_TIME,
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[-+][0-9]{2}:[0-9]{2})$"
);

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_uri(text: &str) -> bool {
    if text.starts_with('/') {
        return !text.contains(|c: char| c.is_ascii_control() || c == ' ');
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme && !rest.is_empty() && !rest.contains(|c: char| c.is_ascii_control() || c == ' ')
}

fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once('<') {
        Some((_, inner)) => inner.strip_suffix('>').unwrap_or(""),
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains(|c: char| c.is_whitespace() || "<>()[]:;@\\,\"".contains(c))
    };
    is_plain(local) && is_plain(domain)
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    text.len() <= 255 && text.split('.').all(is_label)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let is_at_most = |limit: u8| length.parse::<u8>().is_ok_and(|length| length <= limit);
    (address.parse::<Ipv4Addr>().is_ok() && is_at_most(32))
        || (address.parse::<Ipv6Addr>().is_ok() && is_at_most(128))
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let groups: Vec<&str> = text.split(separator).collect();
    let dotted: Vec<&str> = text.split('.').collect();
    let are =
        |groups: &[&str], width: usize| groups.iter().all(|it| it.len() == width && is_hex(it));
    ([6, 8, 20].contains(&groups.len()) && are(&groups, 2))
        || ([3, 4, 10].contains(&dotted.len()) && are(&dotted, 4))
}

/// The digit of the version; hyphens may be left out.
fn uuid_version(text: &str) -> Option<char> {
    let digits: String = text.split('-').collect();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let is_grouped = groups == [8, 4, 4, 4, 12] || groups == [32];
    (is_grouped && is_hex(&digits)).then(|| digits.chars().nth(12))?
}

fn has_uuid_variant(text: &str) -> bool {
    let digits: String = text.split('-').collect();
    digits
        .chars()
        .nth(16)
        .is_some_and(|digit| "89abAB".contains(digit))
}

fn isbn_digits(text: &str) -> Vec<u32> {
    let last = text.len().saturating_sub(1);
    text.chars()
        .filter(|c| !matches!(c, '-' | ' '))
        .filter_map(|c| match c {
            'X' | 'x' if text.ends_with(c) && last > 0 => Some(10),
            _ => c.to_digit(10),
        })
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    let weighted = digits
        .iter()
        .zip((1..=10).rev())
        .map(|(digit, weight)| digit * weight);
    digits.len() == 10 && weighted.sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    let weighted = digits
        .iter()
        .enumerate()
        .map(|(at, digit)| digit * if at % 2 == 0 { 1 } else { 3 });
    digits.len() == 13 && weighted.sum::<u32>() % 10 == 0
}

/// The check digit of card numbers.
fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let total: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    (13..=19).contains(&digits.len()) && total.is_multiple_of(10)
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text
        .strip_prefix("rgb(")
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return false;
    };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

fn is_duration(text: &str) -> bool {
    matches!(text, "0" | "+0" | "-0") || DURATION.is_match(text) || WORDY_DURATION.is_match(text)
}

fn is_date_time(text: &str) -> bool {
    DATE_TIME.is_match(text) && text.parse::<jiff::Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_what_they_should() {
        for (format, good, bad) in [
            ("date-time", "2026-11-21T00:59:22Z", "2026-11-21 00:59:22"),
            ("datetime", "2026-11-21T00:59:22.123+02:00", "yesterday"),
            ("date", "2026-11-21", "2026-13-21"),
            ("duration", "1h30m", "1 fortnight"),
            ("duration", "5 seconds", ""),
            ("byte", "Zm9v", "Zm9"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "fe80::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "01:23:45:67:89:ab", "01:23:45:67:89"),
            ("uuid", "83294095-5302-4266-9d6d-815d2b4f74b9", "83294095"),
            (
                "uuid4",
                "83294095-5302-4266-9d6d-815d2b4f74b9",
                "83294095-5302-3266-9d6d-815d2b4f74b9",
            ),
            ("hostname", "a.example.com", "a_b"),
            ("email", "a@example.com", "a.example.com"),
            ("uri", "s3://bucket/key", "bucket key"),
            ("isbn10", "0-306-40615-2", "0-306-40615-3"),
            ("isbn13", "978-0-306-40615-7", "978-0-306-40615-8"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("ssn", "111-22-3333", "111-22-333"),
            ("hexcolor", "#ff00aa", "#ff00a"),
            ("rgbcolor", "rgb(1, 2, 255)", "rgb(1,2,256)"),
            (
                "bsonobjectid",
                "60a7903427a1e6666d2b998c",
                "60a7903427a1e6666d2b998",
            ),
        ] {
            let checked = Format::named(format).unwrap();
            assert!(checked.accepts(good), "{format} {good}");
            assert!(!checked.accepts(bad), "{format} {bad}");
        }
    }

    #[test]
    fn formats_of_numbers_are_documentation() {
        for format in ["int32", "int64", "double", "quantity", "mine"] {
            assert!(Format::named(format).is_none(), "{format}");
        }
    }
}
