//! Writes gob.

use super::builtin;

/// The type of a struct's field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Int,
    Uint,
    Bytes,
    String,
    /// A value with its type.
    Interface,
    /// A type that the stream describes.
    Described(i64),
}

impl Kind {
    fn id(self) -> i64 {
        match self {
            Self::Int => builtin::INT,
            Self::Uint => builtin::UINT,
            Self::Bytes => builtin::BYTES,
            Self::String => builtin::STRING,
            Self::Interface => builtin::INTERFACE,
            Self::Described(id) => id,
        }
    }
}

/// The message that describes a struct.
pub(crate) fn struct_type(id: i64, name: &str, fields: &[(&str, Kind)]) -> Vec<u8> {
    type_message(id, |definition| {
        // `StructT` is the third field of a description: its common part, then its fields.
        definition.uint(3);
        definition.common(id, name);
        definition.uint(1);
        definition.uint(fields.len() as u64);
        for (name, kind) in fields {
            definition.uint(1);
            definition.bytes(name.as_bytes());
            definition.uint(1);
            definition.int(kind.id());
            definition.end();
        }
    })
}

/// The message that describes `time.Time`, which encodes itself.
pub(crate) fn time_type(id: i64) -> Vec<u8> {
    type_message(id, |definition| {
        // `GobEncoderT` is the fifth field of a description.
        definition.uint(5);
        definition.common(id, "Time");
    })
}

/// The message that describes a map of texts.
pub(crate) fn texts_type(id: i64) -> Vec<u8> {
    type_message(id, |definition| {
        // `MapT` is the fourth field of a description.
        definition.uint(4);
        definition.common(id, "map[string]string");
        for part in [builtin::STRING, builtin::STRING] {
            definition.uint(1);
            definition.int(part);
        }
    })
}

fn type_message(id: i64, define: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut message = Writer::default();
    message.int(-id);
    define(&mut message);
    message.end();
    message.end();
    message.into_message()
}

/// One message, or a part of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    /// Messages that are written.
    done: Vec<u8>,
    out: Vec<u8>,
    /// Number of the last field of the struct that is being written, from 1.
    last_field: u64,
}

impl Writer {
    /// A message with a value of this described type; its fields follow, then [`end`](Self::end).
    pub(crate) fn value_of(id: i64) -> Self {
        let mut writer = Self::default();
        writer.int(id);
        writer
    }

    /// Begins a field of the struct by its number from 1; numbers ascend.
    pub(crate) fn field(&mut self, number: u64) -> &mut Self {
        self.uint(number - self.last_field);
        self.last_field = number;
        self
    }

    /// A struct within a struct, always written.
    pub(crate) fn struct_field(&mut self, number: u64, write: impl FnOnce(&mut Self)) {
        self.field(number);
        let mut inner = Self::default();
        write(&mut inner);
        inner.end();
        self.out.extend(inner.out);
    }

    /// A struct in an interface: the name of its Go type, the messages that describe it, its id, and its fields. Not
    /// in a struct in a struct.
    ///
    /// The first description stands where the value is expected, the others are messages of their own, and the rest
    /// of this message is one more.
    pub(crate) fn interface_field(
        &mut self,
        number: u64,
        name: &str,
        types: &[Vec<u8>],
        id: i64,
        write: impl FnOnce(&mut Self),
    ) {
        self.field(number).bytes(name.as_bytes());
        if let Some((first, others)) = types.split_first() {
            self.out.extend(&first[length_of_length(first)..]);
            let begun = std::mem::take(&mut self.out);
            self.bytes(&begun);
            self.done.append(&mut self.out);
            self.done.extend(others.concat());
        }
        let mut fields = Self::default();
        write(&mut fields);
        fields.end();
        self.int(id);
        self.bytes(&fields.out);
    }

    /// Texts by name, unless there are none.
    pub(crate) fn texts_field(
        &mut self,
        number: u64,
        texts: &std::collections::BTreeMap<String, String>,
    ) {
        if texts.is_empty() {
            return;
        }
        self.field(number).uint(texts.len() as u64);
        for (name, text) in texts {
            self.bytes(name.as_bytes());
            self.bytes(text.as_bytes());
        }
    }

    /// An unsigned field, unless it is zero.
    pub(crate) fn uint_field(&mut self, number: u64, value: u64) {
        if value != 0 {
            self.field(number).uint(value);
        }
    }

    /// A signed field, unless it is zero.
    pub(crate) fn int_field(&mut self, number: u64, value: i64) {
        if value != 0 {
            self.field(number).int(value);
        }
    }

    /// A text, or what encodes itself, unless it is empty.
    pub(crate) fn bytes_field(&mut self, number: u64, value: &[u8]) {
        if !value.is_empty() {
            self.field(number).bytes(value);
        }
    }

    /// Ends a struct.
    pub(crate) fn end(&mut self) {
        self.out.push(0);
    }

    /// The message, or several where an interface is in it, each with its length in front.
    pub(crate) fn into_message(mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.out);
        self.bytes(&rest);
        self.done.append(&mut self.out);
        self.done
    }

    /// One byte below 128; else how many bytes follow, negated, and these, the highest first.
    pub(crate) fn uint(&mut self, value: u64) {
        if let Ok(byte @ 0..=127) = u8::try_from(value) {
            self.out.push(byte);
            return;
        }
        let n_zeros = value.leading_zeros() as usize / 8;
        let bytes = value.to_be_bytes();
        self.out.push(!(7 - n_zeros as u8));
        self.out.extend(&bytes[n_zeros..]);
    }

    /// The sign is the lowest bit.
    pub(crate) fn int(&mut self, value: i64) {
        self.uint(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    /// A text or bytes, with the length in front.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.uint(bytes.len() as u64);
        self.out.extend(bytes);
    }

    fn common(&mut self, id: i64, name: &str) {
        self.uint(1);
        self.uint(1);
        self.bytes(name.as_bytes());
        self.uint(1);
        self.int(id);
        self.end();
    }
}

/// The number of bytes that hold the length of a message.
fn length_of_length(message: &[u8]) -> usize {
    match message.first() {
        Some(first) if *first >= 128 => 1 + usize::from(!*first) + 1,
        _ => 1,
    }
}
