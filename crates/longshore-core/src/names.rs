//! Names that follow from a text alone: a creation that is repeated after a crash has the same name.

use sha2::{Digest, Sha256};

/// A letter and 19 characters of base32 of the SHA-256 of a text (95 bits): for names that have to be short and alike.
pub fn hashed(letter: char, text: &str) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    const LENGTH: usize = 19;
    let number = hash(text);
    let digits = (0..LENGTH).map(|at| char::from(DIGITS[(number >> (5 * at)) as usize % 32]));
    [letter].into_iter().chain(digits).collect()
}

/// Eight characters of base36 of the SHA-256 of a text (41 bits): for the end of a name that people read.
pub fn suffix(text: &str) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    const LENGTH: usize = 8;
    let mut number = hash(text);
    let mut suffix = String::with_capacity(LENGTH);
    for _ in 0..LENGTH {
        suffix.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
    }
    suffix
}

/// A UUID of the SHA-256 of a text (version 8): an id that is the same whenever it is made of the same text.
pub fn hashed_uuid(text: &str) -> String {
    let number = hash(text);
    let number = number & !(0xf_u128 << 76) | 0x8 << 76;
    let number = number & !(0x3_u128 << 62) | 0x2 << 62;
    let hex = format!("{number:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

/// 128 bits of the SHA-256 of a text.
fn hash(text: &str) -> u128 {
    let hash = Sha256::digest(text.as_bytes());
    hash[..16]
        .iter()
        .fold(0_u128, |number, byte| number << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_names_are_a_letter_and_19_characters_of_base32() {
        let name = hashed('r', "etl/manual");
        assert_eq!(name, hashed('r', "etl/manual"));
        assert_ne!(name, hashed('r', "etl/manual2"));
        assert_eq!((name.len(), &name[..1]), (20, "r"));
        let is_base32 = |b: u8| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b);
        assert!(name.bytes().all(is_base32), "{name}");
    }

    #[test]
    fn suffixes_are_8_characters_of_base36() {
        let suffix = suffix("etl/manual");
        assert_eq!(suffix, super::suffix("etl/manual"));
        assert_ne!(suffix, super::suffix("etl/manual2"));
        let is_base36 = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        assert!(
            suffix.len() == 8 && suffix.bytes().all(is_base36),
            "{suffix}"
        );
    }
}
