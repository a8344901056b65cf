use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[test]
fn every_text_is_read_as_upstream_reads_it() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../testdata/quantities.json")).unwrap();
    for vector in vectors {
        let text = vector["in"].as_str().unwrap();
        let read = Quantity::parse(text);
        let Some(canonical) = vector["canonical"].as_str() else {
            assert_eq!(read, None, "{text:?}");
            continue;
        };
        let read = read.unwrap_or_else(|| panic!("{text:?} is refused"));
        let Ok(nanos) = vector["nanos"].as_str().unwrap().parse::<i128>() else {
            assert_eq!(read.nanos.abs(), i128::MAX, "{text:?} is too large");
            continue;
        };
        assert_eq!(read.nanos, nanos, "{text:?}");
        assert_eq!(read.to_string(), canonical, "{text:?}");
        for (field, found) in [
            ("value", read.rounded_up()),
            ("milli", read.milli_rounded_up()),
        ] {
            if let Some(expected) = vector[field].as_i64() {
                assert_eq!(found, i128::from(expected), "{field} of {text:?}");
            }
        }
    }
}

#[test]
fn amounts_are_rounded_away_from_zero() {
    for (text, whole, milli) in [
        ("0", 0, 0),
        ("1n", 1, 1),
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("-1n", -1, -1),
    ] {
        let quantity = Quantity::parse(text).unwrap();
        let found = (quantity.rounded_up(), quantity.milli_rounded_up());
        assert_eq!(found, (whole, milli), "{text}");
    }
}

#[test]
fn amounts_are_divided_and_rounded_up() {
    for (amount, divisor, expected) in [
        ("500m", "1", Some(1)),
        ("1500m", "1", Some(2)),
        ("500m", "1m", Some(500)),
        ("1.5", "1m", Some(1500)),
        ("64Mi", "1Mi", Some(64)),
        ("1G", "1", Some(1_000_000_000)),
        ("1e9", "1", Some(1_000_000_000)),
        ("1e9", "1Mi", Some(954)),
        ("1", "0", None),
        ("1", "-1", None),
    ] {
        let [amount, divisor] = [amount, divisor].map(|text| Quantity::parse(text).unwrap());
        assert_eq!(amount.divided_by(divisor), expected, "{amount} / {divisor}");
    }
}

#[test]
fn an_amount_beyond_all_bounds_is_the_largest_one() {
    let largest = Quantity::parse("1e4000").unwrap();
    for text in ["1e99999999999", &"9".repeat(500), "1e400"] {
        assert_eq!(Quantity::parse(text), Some(largest), "{text}");
        assert!(Quantity::parse(&format!("-{text}")) < Quantity::parse("-1E"));
    }
    assert_eq!(Quantity::parse("0e99999999999").unwrap().to_string(), "0");
    assert_eq!(
        Quantity::parse("1e-99999999999").unwrap().to_string(),
        "1e-9"
    );
    assert_eq!(Quantity::parse(&largest.to_string()), Some(largest));
    assert_eq!(Quantity::parse("1000E").unwrap().to_string(), "1e21");
}

fn quantities() -> impl Strategy<Value = Quantity> {
    let format = prop_oneof![
        Just(Format::Binary),
        Just(Format::Decimal),
        Just(Format::Exponent)
    ];
    let amount = prop_oneof![
        -5_000_i128..5_000,
        (-5_000_i128..5_000).prop_map(|units| units * NANOS),
        (-5_000_i128..5_000, 0_u32..5).prop_map(|(n, power)| n * 1024_i128.pow(power) * NANOS),
        -MAX_BINARY * NANOS..MAX_BINARY * NANOS,
    ];
    (amount, format).prop_map(|(nanos, format)| Quantity { nanos, format })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(quantity in quantities()) {
        let text = quantity.to_string();
        let read = Quantity::parse(&text).unwrap();
        prop_assert_eq!(read, quantity);
        prop_assert_eq!(read.to_string(), text, "the canonical form stays");
    }

    #[test]
    fn the_order_is_total_and_that_of_the_amounts(one in quantities(), other in quantities()) {
        prop_assert_eq!(one.cmp(&other), one.nanos.cmp(&other.nanos));
        prop_assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
        prop_assert_eq!(one == other, one.cmp(&other).is_eq());
        let [one, other] = [one, other].map(|it| Quantity::parse(&it.to_string()).unwrap());
        prop_assert_eq!(one.partial_cmp(&other), Some(one.cmp(&other)));
    }

    #[test]
    fn no_text_makes_it_panic(text in "[+-]?[0-9.]{0,45}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,20}") {
        if let Some(quantity) = Quantity::parse(&text) {
            prop_assert_eq!(Quantity::parse(&quantity.to_string()), Some(quantity));
        }
    }
}
