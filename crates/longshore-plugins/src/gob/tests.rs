use super::*;

/// `type T struct { A int; More []string; B string }`, by a process whose first free id is 70.
fn with_a_list() -> Vec<u8> {
    let mut stream = struct_type(
        70,
        "T",
        &[
            ("A", Kind::Int),
            ("More", Kind::Described(71)),
            ("B", Kind::String),
        ],
    );
    let mut list = Writer::default();
    list.int(-71);
    list.uint(2); // SliceT
    list.uint(1); // its common part
    list.end();
    list.uint(1); // its element
    list.int(builtin::STRING);
    list.end();
    list.end();
    stream.extend(list.into_message());
    let mut value = Writer::value_of(70);
    value.int_field(1, -3);
    value.field(2).uint(2);
    value.bytes(b"x");
    value.bytes(b"");
    value.bytes_field(3, b"yes");
    value.end();
    stream.extend(value.into_message());
    stream
}

#[test]
fn values_that_nobody_looks_at_are_read_past() {
    let fields = read_struct(&with_a_list()).unwrap();
    assert_eq!(fields["A"], Gob::Int(-3));
    assert_eq!(fields["More"], Gob::Ignored);
    assert_eq!(fields["B"], Gob::Bytes(b"yes".to_vec()));
}

#[test]
fn a_stream_that_is_cut_anywhere_is_an_error() {
    let stream = with_a_list();
    for end in 0..stream.len() {
        read_struct(&stream[..end]).unwrap_err();
    }
}

#[test]
fn numbers_have_the_encoding_of_the_language() {
    let written = |write: fn(&mut Writer)| {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.into_message()
    };
    assert_eq!(written(|w| w.uint(7)), [1, 7]);
    assert_eq!(written(|w| w.uint(256)), [3, 0xfe, 1, 0]);
    assert_eq!(written(|w| w.uint(u64::MAX))[..2], [9, 0xf8]);
    assert_eq!(written(|w| w.int(-129)), [3, 0xfe, 1, 1]);
    assert_eq!(written(|w| w.int(i64::MIN))[..2], [9, 0xf8]);
}

#[test]
fn nonsense_is_refused() {
    for (stream, expected) in [
        (vec![], GobError::TooShort),
        (vec![2, 0x80, 0], GobError::NumberTooLong),
        (vec![2, 4, 0], GobError::NoStruct),
        (vec![2, 0x7f, 9], GobError::BadDescription),
    ] {
        assert_eq!(read_struct(&stream).unwrap_err(), expected, "{stream:?}");
    }
    let mut unknown_field = struct_type(64, "T", &[("A", Kind::Int)]);
    unknown_field.extend([4, 0xff, 0x80, 2, 0]);
    assert_eq!(
        read_struct(&unknown_field).unwrap_err(),
        GobError::UnknownField
    );
}

#[test]
fn a_type_that_holds_itself_cannot_exhaust_the_stack() {
    let mut stream = struct_type(64, "T", &[("A", Kind::Described(64))]);
    let mut value = Writer::value_of(64);
    for _ in 0..100_000 {
        value.uint(1);
    }
    stream.extend(value.into_message());
    assert_eq!(read_struct(&stream).unwrap_err(), GobError::TooDeep);
}
