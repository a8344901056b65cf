//! The checksum of a row, so that a row that changed on the medium is found and named.

use crc::{CRC_32_ISCSI, Crc};

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Over everything that a row says; the parts cannot trade bytes with each other.
pub(super) fn checksum(collection: &str, key: &str, revisions: [u64; 2], json: &[u8]) -> u32 {
    let mut digest = CRC.digest();
    for part in [collection, key] {
        digest.update(part.as_bytes());
        digest.update(&[0]);
    }
    for revision in revisions {
        digest.update(&revision.to_le_bytes());
    }
    digest.update(json);
    digest.finalize()
}
