//! The pages behind the codes, shipped in the binary.

macro_rules! pages {
    ($($code:literal),* $(,)?) => {
        [$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),*]
    };
}

/// Every code that this build can print, with its page.
pub(crate) const PAGES: &[(&str, &str)] = &pages![
    "LS1001", "LS1002", "LS1003", "LS1004", "LS1005", "LS1006", "LS1007", "LS1008", "LS1009",
    "LS1010", "LS1020", "LS1021", "LS1022", "LS1023", "LS1024", "LS1025", "LS1026", "LS1030",
    "LS1031", "LS1032", "LS1101", "LS1102", "LS1103", "LS1104", "LS1105", "LS1106", "LS1107",
    "LS1108", "LS1109", "LS1201", "LS1202", "LS1203", "LS1204", "LS1205", "LS1206", "LS1300",
    "LS1301", "LS1302", "LS1303", "LS1304", "LS1305", "LS1306", "LS1307", "LS1308", "LS1309",
    "LS1310", "LS1311", "LS1312", "LS1313", "LS1314", "LS1315", "LS1316", "LS1380", "LS1381",
    "LS1382", "LS1383", "LS1384", "LS1385", "LS1386", "LS1390", "LS1391", "LS1392", "LS1393",
    "LS1394", "LS1395", "LS1396", "LS1397", "LS1398", "LS1401", "LS1402", "LS1403", "LS1480",
    "LS1481", "LS1501", "LS1502", "LS1601", "LS1602", "LS1701", "LS1702", "LS1703", "LS1704",
    "LS1705", "LS1706", "LS1707", "LS1708", "LS1709", "LS1801", "LS1802", "LS1901", "LS1902",
    "LS1903", "LS1904", "LS1905",
];

/// The page of a code.
pub(crate) fn page(code: &str) -> Option<&'static str> {
    let (_, page) = PAGES.iter().find(|(known, _)| *known == code)?;
    Some(page)
}

/// The title, what happened and what to do, as a page has them.
pub(crate) fn parts(page: &str) -> [&str; 3] {
    let (head, rest) = page.split_once("## What happened").unwrap_or((page, ""));
    let (_, title) = head.split_once(": ").unwrap_or(("", head));
    let (happened, todo) = rest.split_once("## What to do").unwrap_or((rest, ""));
    [title.trim(), happened.trim(), todo.trim()]
}

/// The code that was probably meant.
pub(crate) fn nearest(code: &str) -> Option<&'static str> {
    let (distance, nearest) = PAGES
        .iter()
        .map(|(known, _)| (strsim::levenshtein(known, code), *known))
        .min()?;
    (distance <= 2).then_some(nearest)
}
