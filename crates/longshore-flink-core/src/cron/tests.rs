use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn next(expression: &str, after: &str) -> Option<String> {
    let cron = CronExpression::parse(expression).unwrap();
    cron.next_after(at(after)).map(|it| it.to_string())
}

/// Expression, an instant, and the next ones after it.
const TABLE: &str = "
0 */10 * * * ?        | 2022-06-05T10:55:00Z | 2022-06-05T11:00:00Z 2022-06-05T11:10:00Z
0 0/15 10 ? * MON-FRI | 2024-01-05T10:40:00Z | 2024-01-05T10:45:00Z 2024-01-08T10:00:00Z
0 0 12 * * ?          | 2024-02-28T12:00:00Z | 2024-02-29T12:00:00Z 2024-03-01T12:00:00Z
0 0 12 * * ?          | 2024-02-28T11:59:59.5Z | 2024-02-28T12:00:00Z
* * * * * ?           | 2024-12-31T23:59:59Z | 2025-01-01T00:00:00Z 2025-01-01T00:00:01Z
30 59 23 31 12 ?      | 2024-06-01T00:00:00Z | 2024-12-31T23:59:30Z 2025-12-31T23:59:30Z
0 0 0 L * ?           | 2023-01-31T00:00:00Z | 2023-02-28T00:00:00Z 2023-03-31T00:00:00Z
0 0 0 L-2 * ?         | 2023-02-01T00:00:00Z | 2023-02-26T00:00:00Z 2023-03-29T00:00:00Z
0 0 0 L-30 * ?        | 2023-02-01T00:00:00Z | 2023-03-01T00:00:00Z 2023-05-01T00:00:00Z
0 0 0 LW * ?          | 2024-03-01T00:00:00Z | 2024-03-29T00:00:00Z 2024-04-30T00:00:00Z
0 0 0 L-1W * ?        | 2024-03-01T00:00:00Z | 2024-03-29T00:00:00Z 2024-04-29T00:00:00Z
0 0 0 15W * ?         | 2024-06-01T00:00:00Z | 2024-06-14T00:00:00Z 2024-07-15T00:00:00Z 2024-08-15T00:00:00Z 2024-09-16T00:00:00Z
0 0 0 1W * ?          | 2024-05-31T00:00:00Z | 2024-06-03T00:00:00Z 2024-07-01T00:00:00Z
0 0 0 31W 3 ?         | 2024-01-01T00:00:00Z | 2024-03-29T00:00:00Z 2025-03-31T00:00:00Z
0 0 0 10,1W,L 6 ?     | 2024-06-01T00:00:00Z | 2024-06-03T00:00:00Z 2024-06-10T00:00:00Z 2024-06-30T00:00:00Z
0 0 0 31 * ?          | 2024-01-31T00:00:00Z | 2024-03-31T00:00:00Z 2024-05-31T00:00:00Z
0 0 0 ? * L           | 2024-01-01T00:00:00Z | 2024-01-06T00:00:00Z 2024-01-13T00:00:00Z
0 0 0 ? * 6L          | 2024-01-01T00:00:00Z | 2024-01-26T00:00:00Z 2024-02-23T00:00:00Z
0 0 0 ? * FRIL        | 2024-01-26T00:00:00Z | 2024-02-23T00:00:00Z
0 0 0 ? * 6#3         | 2024-01-01T00:00:00Z | 2024-01-19T00:00:00Z 2024-02-16T00:00:00Z
0 0 0 ? * MON#5       | 2024-01-01T00:00:00Z | 2024-01-29T00:00:00Z 2024-04-29T00:00:00Z
0 0 0 ? * 6-2         | 2024-01-03T00:00:00Z | 2024-01-05T00:00:00Z 2024-01-06T00:00:00Z 2024-01-07T00:00:00Z 2024-01-08T00:00:00Z 2024-01-12T00:00:00Z
0 0 22-2/2 * * ?      | 2024-01-01T01:00:00Z | 2024-01-01T02:00:00Z 2024-01-01T22:00:00Z 2024-01-02T00:00:00Z
50-10/10 0 0 * * ?    | 2024-01-01T00:00:00Z | 2024-01-01T00:00:10Z 2024-01-01T00:00:50Z 2024-01-02T00:00:00Z
0 0 0 30-2 1 ?        | 2024-01-02T00:00:00Z | 2024-01-30T00:00:00Z 2024-01-31T00:00:00Z 2025-01-01T00:00:00Z
0 0 0 1 NOV-FEB ?     | 2024-01-01T00:00:00Z | 2024-02-01T00:00:00Z 2024-11-01T00:00:00Z
0 0 0 1 JAN,jul ?     | 2024-01-01T00:00:00Z | 2024-07-01T00:00:00Z 2025-01-01T00:00:00Z
0 0 0 1 1 ? 2030-2034/2 | 2024-01-01T00:00:00Z | 2030-01-01T00:00:00Z 2032-01-01T00:00:00Z 2034-01-01T00:00:00Z -
0 0 0 1 1 ? 2030/3    | 2030-01-01T00:00:00Z | 2033-01-01T00:00:00Z
0 0 0 1 1 ? 2025,2027 | 2024-01-01T00:00:00Z | 2025-01-01T00:00:00Z 2027-01-01T00:00:00Z -
0 0 0 1 1 ? */2       | 2024-01-01T00:00:00Z | 2026-01-01T00:00:00Z
5/0 0 0 1 1 ?         | 2024-01-01T00:00:00Z | 2024-01-01T00:00:05Z 2025-01-01T00:00:05Z
/20 0 0 1 1 ?         | 2024-01-01T00:00:00Z | 2024-01-01T00:00:20Z 2024-01-01T00:00:40Z
0 0 0 29 2 ? 1999     | 2024-01-01T00:00:00Z | -
0 0 0 30 2 ?          | 2024-01-01T00:00:00Z | -
";

#[test]
fn the_next_instants_are_quartzs() {
    for row in TABLE.lines().filter(|row| !row.is_empty()) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [expression, after, expected] = cells[..] else {
            panic!("{row}");
        };
        let mut after = after.to_owned();
        for expected in expected.split(' ') {
            let found = next(expression, &after).unwrap_or_else(|| "-".to_owned());
            assert_eq!(found, expected, "{expression} after {after}");
            if expected != "-" {
                let cron = CronExpression::parse(expression).unwrap();
                assert!(cron.matches(at(expected)), "{expression} at {expected}");
            }
            after = found;
        }
    }
}

#[test]
fn an_expression_matches_its_seconds_only() {
    let cron = CronExpression::parse("0 30 9-11,14-16 * * ?").unwrap();
    for (instant, expected) in [
        ("2024-01-01T09:30:00Z", true),
        ("2024-01-01T09:30:00.999Z", true),
        ("2024-01-01T09:30:01Z", false),
        ("2024-01-01T12:30:00Z", false),
        ("2024-01-01T16:30:00Z", true),
    ] {
        assert_eq!(cron.matches(at(instant)), expected, "{instant}");
    }
    assert_eq!(cron.to_string(), "0 30 9-11,14-16 * * ?");
    assert_eq!(
        format!("{cron:?}"),
        "CronExpression(\"0 30 9-11,14-16 * * ?\")"
    );
}

/// A text, and what is wrong with it.
const ERRORS: &str = r##"
| it has 0 fields
* * * * * | it has 5 fields
0 0 0 1 1 ? 2024 x | it has 8 fields
0 0 0 * * * | one of both days must be `?`
0 0 0 ? * ? | only one of both days can be `?`
60 0 0 ? * 1 | seconds: expected a number from 0 to 59, found "60"
? 0 0 ? * 1 | seconds: expected a number from 0 to 59, found "?"
0 -1 0 ? * 1 | minutes: expected a number from 0 to 59, found ""
0 +1 0 ? * 1 | minutes: expected a number from 0 to 59, found "+1"
0 */60 0 ? * 1 | minutes: expected a step of at most 59, found "60"
0 0 24 ? * 1 | hours: expected a number from 0 to 23, found "24"
0 0 */24 ? * 1 | hours: expected a step of at most 23, found "24"
0 0 0 0 * ? | day of the month: expected a number from 1 to 31, found "0"
0 0 0 32W * ? | day of the month: expected a number from 1 to 31, found "32"
0 0 0 L-31 * ? | day of the month: expected `L` or `L-n` with n of at most 30, found "L-31"
0 0 0 1 13 ? | month: expected a number from 1 to 12, found "13"
0 0 0 1 XYZ ? | month: expected a number from 1 to 12, found "XYZ"
0 0 0 ? * 8 | day of the week: expected a number from 1 to 7, found "8"
0 0 0 ? * 2L,3L | day of the week: expected a number from 1 to 7, found "2L,3"
0 0 0 ? * 2#6 | day of the week: expected a number from 1 to 5 after `#`, found "6"
0 0 0 1 1 ? 2030-2029 | years: expected years, found "2030-2029"
0 0 0 1 1 ? x | years: expected years, found "X"
0 0/ 0 1 1 ? | minutes: expected a step of at most 59, found ""
0 0,,1 0 1 1 ? | minutes: expected a number from 0 to 59, found ""
"##;

#[test]
fn what_is_no_expression_is_an_error_that_says_why() {
    for row in ERRORS.lines().filter(|row| !row.is_empty()) {
        let (text, what) = row.split_once('|').unwrap();
        let (text, what) = (text.trim(), what.trim());
        let error = CronExpression::parse(text).unwrap_err().to_string();
        let expected = format!(
            "expected a cron expression of Quartz with six or seven fields, such as `0 0 */2 * * ?`, found {text:?}: {what}"
        );
        assert_eq!(error, expected);
    }
    assert_eq!(ERRORS.trim().lines().count(), 24);
}
