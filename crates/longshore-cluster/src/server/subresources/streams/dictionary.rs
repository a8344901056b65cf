//! The preset dictionary of SPDY/3 header blocks, as its specification has it.

/// Names and values that are written with their lengths in front.
const WORDS: &[&str] = &[
    "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|a",
    "ccept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encodin",
    "g|content-language|content-length|content-location|content-md5|content-range|content-type|",
    "date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-un",
    "modified-since|last-modified|location|max-forwards|pragma|proxy-authenticate|proxy-authori",
    "zation|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|user-agent|va",
    "ry|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-c",
    "ookie|keep-alive|origin",
];

/// Texts that are written as they are.
const TEXTS: &[&str] = &[
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505",
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Una",
    "uthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service",
    " UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, ",
    "Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,applicat",
    "ion/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf",
    "-8charset=iso-8859-1,utf-,*,enq=0.",
];

/// The dictionary.
pub(super) fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for word in WORDS.concat().split('|') {
        dictionary.extend((word.len() as u32).to_be_bytes());
        dictionary.extend(word.as_bytes());
    }
    dictionary.extend(TEXTS.concat().as_bytes());
    dictionary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_that_clients_name() {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in dictionary() {
            low = (low + u32::from(byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        // The checksum (Adler-32) in the first header block of each client.
        assert_eq!((high << 16) | low, 0xe3c6_a7c2);
    }
}
