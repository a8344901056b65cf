//! Reads gob. Whatever the bytes are, the result is a value or an error.

use std::collections::BTreeMap;

use super::builtin;

/// How deep values may nest: far beyond any state, and far from the end of the stack.
const MAX_DEPTH: usize = 32;

/// Bytes that are no gob of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GobError {
    #[error("the stream ends too early")]
    TooShort,
    #[error("a number has more than 64 bits")]
    NumberTooLong,
    #[error("type {0} is not described before it is used")]
    UnknownType(i64),
    #[error("a type is described in a way that no version of Go writes")]
    BadDescription,
    #[error("a field has a number that its struct does not have")]
    UnknownField,
    #[error("values nest too deep")]
    TooDeep,
    #[error("the stream holds no struct")]
    NoStruct,
}

/// A value, as far as this crate reads values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gob {
    Int(i64),
    Uint(u64),
    /// A text, bytes, or what encodes itself.
    Bytes(Vec<u8>),
    /// Fields by name; zero values are absent. A struct in an interface is the same.
    Struct(BTreeMap<String, Gob>),
    /// Texts by name.
    Texts(BTreeMap<String, String>),
    /// Anything else: read past.
    Ignored,
}

/// What the stream says about a type.
#[derive(Clone, Debug)]
enum Described {
    Struct(Vec<(String, i64)>),
    /// An array or a slice.
    List(i64),
    Map(i64, i64),
    /// Encodes itself, in one of three ways that look the same here.
    Opaque,
}

/// The fields of the first value in a stream, which is to be a struct.
pub(crate) fn read_struct(stream: &[u8]) -> Result<BTreeMap<String, Gob>, GobError> {
    let mut types = Types::default();
    let mut stream = Reader { rest: stream };
    loop {
        let length = stream.length()?;
        // A value with an interface in it goes on in the messages that come next, after the descriptions in between.
        let mut value = Reader { rest: stream.rest };
        let mut message = Reader {
            rest: stream.take(length)?,
        };
        let id = message.int()?;
        if id < 0 {
            types.describe(id, &mut message)?;
            continue;
        }
        let Some(Described::Struct(_)) = types.described.get(&id) else {
            return Err(GobError::NoStruct);
        };
        value.int()?;
        return match types.value(id, &mut value, 0)? {
            Gob::Struct(fields) => Ok(fields),
            Gob::Int(_) | Gob::Uint(_) | Gob::Bytes(_) | Gob::Texts(_) | Gob::Ignored => {
                Err(GobError::NoStruct)
            }
        };
    }
}

#[derive(Debug, Default)]
struct Types {
    described: BTreeMap<i64, Described>,
}

impl Types {
    /// Reads a description, whose id is negated.
    fn describe(&mut self, id: i64, reader: &mut Reader<'_>) -> Result<(), GobError> {
        let id = id.checked_neg().ok_or(GobError::BadDescription)?;
        // Which field of the description is set says what kind of type it is; one is, the end follows.
        let described = match reader.uint()? {
            1 | 2 => Described::List(read_ids(reader)?.first),
            3 => Described::Struct(read_fields(reader)?),
            4 => {
                let ids = read_ids(reader)?;
                Described::Map(ids.first, ids.second)
            }
            5..=7 => {
                read_ids(reader)?;
                Described::Opaque
            }
            _ => return Err(GobError::BadDescription),
        };
        if reader.uint()? != 0 {
            return Err(GobError::BadDescription);
        }
        self.described.insert(id, described);
        Ok(())
    }

    fn value(&mut self, id: i64, reader: &mut Reader<'_>, depth: usize) -> Result<Gob, GobError> {
        if depth > MAX_DEPTH {
            return Err(GobError::TooDeep);
        }
        match id {
            builtin::INT => reader.int().map(Gob::Int),
            builtin::UINT => reader.uint().map(Gob::Uint),
            builtin::BYTES | builtin::STRING => reader.bytes().map(|b| Gob::Bytes(b.to_vec())),
            builtin::BOOL | builtin::FLOAT => reader.uint().map(|_| Gob::Ignored),
            builtin::COMPLEX => reader
                .uint()
                .and_then(|_| reader.uint())
                .map(|_| Gob::Ignored),
            builtin::INTERFACE => self.interface(reader, depth),
            _ => self.described_value(id, reader, depth),
        }
    }

    fn described_value(
        &mut self,
        id: i64,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Gob, GobError> {
        let described = self.described.get(&id).cloned();
        match described.ok_or(GobError::UnknownType(id))? {
            Described::Opaque => reader.bytes().map(|bytes| Gob::Bytes(bytes.to_vec())),
            Described::Struct(fields) => self.fields(&fields, reader, depth),
            Described::List(element) => {
                for _ in 0..reader.uint()? {
                    self.value(element, reader, depth + 1)?;
                }
                Ok(Gob::Ignored)
            }
            Described::Map(builtin::STRING, builtin::STRING) => {
                let mut texts = BTreeMap::new();
                for _ in 0..reader.uint()? {
                    let key = String::from_utf8_lossy(reader.bytes()?).into_owned();
                    texts.insert(key, String::from_utf8_lossy(reader.bytes()?).into_owned());
                }
                Ok(Gob::Texts(texts))
            }
            Described::Map(key, element) => {
                for _ in 0..reader.uint()? {
                    self.value(key, reader, depth + 1)?;
                    self.value(element, reader, depth + 1)?;
                }
                Ok(Gob::Ignored)
            }
        }
    }

    fn fields(
        &mut self,
        fields: &[(String, i64)],
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Gob, GobError> {
        let mut values = BTreeMap::new();
        let mut number = 0_usize;
        loop {
            let step = reader.length()?;
            if step == 0 {
                return Ok(Gob::Struct(values));
            }
            number = number.checked_add(step).ok_or(GobError::UnknownField)?;
            let (name, id) = fields.get(number - 1).ok_or(GobError::UnknownField)?;
            let value = self.value(*id, reader, depth + 1)?;
            values.insert(name.clone(), value);
        }
    }

    /// The name of the type, descriptions that it needs, its id, and the value with its length in front.
    fn interface(&mut self, reader: &mut Reader<'_>, depth: usize) -> Result<Gob, GobError> {
        if reader.bytes()?.is_empty() {
            return Ok(Gob::Ignored);
        }
        let id = loop {
            let id = reader.int()?;
            if id >= 0 {
                break id;
            }
            self.describe(id, reader)?;
            // The length of the message that comes next.
            reader.uint()?;
        };
        let mut value = Reader {
            rest: reader.bytes()?,
        };
        match self.described.get(&id) {
            Some(Described::Struct(_)) => self.value(id, &mut value, depth + 1),
            // No plugin state holds anything else in an interface.
            Some(Described::List(_) | Described::Map(..) | Described::Opaque) | None => {
                Ok(Gob::Ignored)
            }
        }
    }
}

/// The ids that follow the common part of a description; a missing one is no type.
#[derive(Debug, Default)]
struct Ids {
    first: i64,
    second: i64,
}

fn read_ids(reader: &mut Reader<'_>) -> Result<Ids, GobError> {
    let mut ids = Ids::default();
    let mut number = 0;
    loop {
        let step = reader.uint()?;
        if step == 0 {
            return Ok(ids);
        }
        number = step.checked_add(number).ok_or(GobError::BadDescription)?;
        match number {
            1 => read_common(reader)?,
            2 => ids.first = reader.int()?,
            // The length of an array, or what a map holds.
            3 => ids.second = reader.int()?,
            _ => return Err(GobError::BadDescription),
        }
    }
}

fn read_fields(reader: &mut Reader<'_>) -> Result<Vec<(String, i64)>, GobError> {
    let mut fields = Vec::new();
    let mut number = 0;
    loop {
        let step = reader.uint()?;
        if step == 0 {
            return Ok(fields);
        }
        number = step.checked_add(number).ok_or(GobError::BadDescription)?;
        match number {
            1 => read_common(reader)?,
            2 => {
                for _ in 0..reader.uint()? {
                    fields.push(read_name_and_id(reader)?);
                }
            }
            _ => return Err(GobError::BadDescription),
        }
    }
}

fn read_common(reader: &mut Reader<'_>) -> Result<(), GobError> {
    read_name_and_id(reader).map(|_| ())
}

/// A struct of a text and a type id: the common part of a description, and a field of a described struct.
fn read_name_and_id(reader: &mut Reader<'_>) -> Result<(String, i64), GobError> {
    let (mut name, mut id) = (String::new(), 0);
    let mut number = 0;
    loop {
        let step = reader.uint()?;
        if step == 0 {
            return Ok((name, id));
        }
        number = step.checked_add(number).ok_or(GobError::BadDescription)?;
        match number {
            1 => name = String::from_utf8_lossy(reader.bytes()?).into_owned(),
            2 => id = reader.int()?,
            _ => return Err(GobError::BadDescription),
        }
    }
}

#[derive(Debug)]
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], GobError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(GobError::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn uint(&mut self) -> Result<u64, GobError> {
        let (first, rest) = self.rest.split_first().ok_or(GobError::TooShort)?;
        self.rest = rest;
        if *first < 128 {
            return Ok(u64::from(*first));
        }
        let length = usize::from(!*first) + 1;
        if length > 8 {
            return Err(GobError::NumberTooLong);
        }
        let bytes = self.take(length)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn int(&mut self) -> Result<i64, GobError> {
        let bits = self.uint()?;
        let magnitude = (bits >> 1).cast_signed();
        Ok(if bits & 1 == 1 { !magnitude } else { magnitude })
    }

    fn length(&mut self) -> Result<usize, GobError> {
        usize::try_from(self.uint()?).map_err(|_| GobError::TooShort)
    }

    fn bytes(&mut self) -> Result<&'a [u8], GobError> {
        let length = self.length()?;
        self.take(length)
    }
}
