//! From messages to JSON: what Go's encoder would have written of the same object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::{Map, Number, Value, json};

use super::{
    DecodeError,
    catalog::{Catalog, Field, Shape, When},
    wire::{Piece, Reader, packed},
};

/// Most values in one object: two bytes of a message can stand for hundreds of bytes of JSON. The
/// largest objects that can be stored have far fewer.
const VALUE_LIMIT: usize = 1 << 18;

/// Most values inside of each other: schemas may be nested. JSON parsers of servers and clients refuse a few more levels.
const LEVEL_LIMIT: usize = 120;

const TOO_DEEP: DecodeError = DecodeError::TooDeep { limit: LEVEL_LIMIT };

/// Decodes one object.
pub(super) struct Decoder<'a> {
    catalog: &'a Catalog,
    /// Values that may still come.
    n_left: usize,
    /// Values that may still be inside of the one that is decoded.
    n_levels_left: usize,
    /// The path of the field that is decoded: `spec.containers`.
    path: Vec<&'a str>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(catalog: &'a Catalog) -> Decoder<'a> {
        Decoder {
            catalog,
            n_left: VALUE_LIMIT,
            n_levels_left: LEVEL_LIMIT,
            path: Vec::new(),
        }
    }

    /// The members of an object.
    pub(super) fn object(
        &mut self,
        place: usize,
        message: &[u8],
    ) -> Result<Map<String, Value>, DecodeError> {
        self.message(place, &[Piece::Bytes(message)])
    }

    /// The members of a message. Pieces of one message are one message: so protobuf has it.
    fn message(
        &mut self,
        place: usize,
        pieces: &[Piece<'_>],
    ) -> Result<Map<String, Value>, DecodeError> {
        let mut found = self.fields_of(pieces)?;
        let mut members = Map::new();
        for field in self.catalog.fields(place) {
            let pieces = found.remove(&field.number).unwrap_or_default();
            self.path.push(&field.name);
            let value = self.field(field, &pieces)?;
            self.path.pop();
            match (field.when, value) {
                (When::Inline, Some(Value::Object(inner))) => members.extend(inner),
                (_, Some(value)) => {
                    members.insert(field.name.clone(), value);
                }
                (_, None) => {}
            }
        }
        Ok(members)
    }

    /// The pieces of each field.
    fn fields_of<'m>(
        &self,
        pieces: &[Piece<'m>],
    ) -> Result<BTreeMap<u32, Vec<Piece<'m>>>, DecodeError> {
        let mut found: BTreeMap<u32, Vec<Piece<'m>>> = BTreeMap::new();
        for piece in pieces {
            for field in Reader::new(self.bytes(*piece)?) {
                let (number, piece) = field?;
                found.entry(number).or_default().push(piece);
            }
        }
        Ok(found)
    }

    /// The JSON value of a field; `None` for a field that JSON leaves out.
    fn field(&mut self, field: &Field, pieces: &[Piece<'_>]) -> Result<Option<Value>, DecodeError> {
        if matches!(field.when, When::Present | When::Nonzero) && pieces.is_empty() {
            return Ok(None);
        }
        let value = self.value(&field.shape, pieces)?;
        let is_shown = match field.when {
            When::Always | When::Present => true,
            When::Nonzero => !is_zero(&value),
            When::Inline => value.is_object(),
        };
        Ok(is_shown.then_some(value))
    }

    /// Decodes the value of a field. Without pieces this is the zero value that Go has for the
    /// field.
    fn value(&mut self, shape: &Shape, pieces: &[Piece<'_>]) -> Result<Value, DecodeError> {
        self.n_left = self
            .n_left
            .checked_sub(1)
            .ok_or(DecodeError::TooManyFields { limit: VALUE_LIMIT })?;
        self.n_levels_left = self.n_levels_left.checked_sub(1).ok_or(TOO_DEEP)?;
        let value = match (shape, pieces.last()) {
            (Shape::Message(place), _) => Value::Object(self.message(*place, pieces)?),
            (_, Some(last)) => self.sent(shape, pieces, *last)?,
            (_, None) => zero(shape),
        };
        self.n_levels_left += 1;
        Ok(value)
    }

    /// The value of a field that was sent, with its last piece: of a single value, the last one counts.
    fn sent(
        &mut self,
        shape: &Shape,
        pieces: &[Piece<'_>],
        last: Piece<'_>,
    ) -> Result<Value, DecodeError> {
        Ok(match shape {
            Shape::Message(place) => Value::Object(self.message(*place, pieces)?),
            Shape::Pointer(inner) => self.sent(inner, pieces, last)?,
            Shape::List(inner) => self.list(inner, pieces)?,
            Shape::Map(inner) => self.map(inner, pieces)?,
            Shape::Text => self.text(last)?.into(),
            Shape::Boolean => (self.number(last)? != 0).into(),
            Shape::Integer => self.number(last)?.into(),
            Shape::Double => self.double(last)?,
            Shape::Bytes => json!(ByteString(self.bytes(last)?.to_vec())),
            Shape::Time => self.time(last, "%Y-%m-%dT%H:%M:%SZ")?,
            Shape::MicroTime => self.time(last, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
            Shape::Quantity => self.quantity(last)?,
            Shape::IntOrString => self.int_or_string(last)?,
            Shape::Json => self.json(last)?,
            Shape::Texts => {
                let items = self.fields_of(&[last])?.remove(&1).unwrap_or_default();
                self.list(&Shape::Text, &items)?
            }
            Shape::SchemaOrBoolean(place) => self.schema_or_boolean(*place, pieces)?,
            Shape::SchemaOrList(place) => {
                self.schema_or_list(*place, &Shape::Message(*place), pieces)?
            }
            Shape::SchemaOrTexts(place) => self.schema_or_list(*place, &Shape::Text, pieces)?,
        })
    }

    /// A message of whether anything is allowed, and of a schema.
    fn schema_or_boolean(
        &mut self,
        place: usize,
        pieces: &[Piece<'_>],
    ) -> Result<Value, DecodeError> {
        let mut fields = self.fields_of(pieces)?;
        match fields.remove(&2) {
            Some(schema) => self.value(&Shape::Message(place), &schema),
            None => self.value(&Shape::Boolean, &fields.remove(&1).unwrap_or_default()),
        }
    }

    /// A message of a schema, and of a list.
    fn schema_or_list(
        &mut self,
        place: usize,
        inner: &Shape,
        pieces: &[Piece<'_>],
    ) -> Result<Value, DecodeError> {
        let mut fields = self.fields_of(pieces)?;
        match (fields.remove(&2), fields.remove(&1)) {
            (Some(items), _) => self.list(inner, &items),
            (None, Some(schema)) => self.value(&Shape::Message(place), &schema),
            (None, None) => Ok(Value::Null),
        }
    }

    fn list(&mut self, inner: &Shape, pieces: &[Piece<'_>]) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        for piece in pieces {
            match (inner, piece) {
                (Shape::Integer, Piece::Bytes(bytes)) => {
                    for number in packed(bytes)? {
                        items.push(self.value(inner, &[Piece::Number(number)])?);
                    }
                }
                _ => items.push(self.value(inner, &[*piece])?),
            }
        }
        Ok(items.into())
    }

    /// Each entry is a message of a key and a value.
    fn map(&mut self, inner: &Shape, pieces: &[Piece<'_>]) -> Result<Value, DecodeError> {
        let mut members = Map::new();
        for piece in pieces {
            let mut entry = self.fields_of(&[*piece])?;
            let key = match entry.remove(&1).unwrap_or_default().last() {
                Some(piece) => self.text(*piece)?,
                None => String::new(),
            };
            let value = self.value(inner, &entry.remove(&2).unwrap_or_default())?;
            members.insert(key, value);
        }
        Ok(members.into())
    }

    fn unexpected(&self, expected: &'static str) -> DecodeError {
        let field = self.place();
        DecodeError::Unexpected { field, expected }
    }

    /// The path of the field that is being read.
    fn place(&self) -> String {
        let named: Vec<&str> = self
            .path
            .iter()
            .copied()
            .filter(|it| !it.is_empty())
            .collect();
        named.join(".")
    }

    fn bytes<'m>(&self, piece: Piece<'m>) -> Result<&'m [u8], DecodeError> {
        match piece {
            Piece::Bytes(bytes) => Ok(bytes),
            Piece::Number(_) | Piece::Fixed(_) => Err(self.unexpected("bytes")),
        }
    }

    fn text(&self, piece: Piece<'_>) -> Result<String, DecodeError> {
        let bytes = self.bytes(piece)?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.unexpected("UTF-8"))
    }

    /// Negative numbers are their two's complement.
    fn number(&self, piece: Piece<'_>) -> Result<i64, DecodeError> {
        match piece {
            Piece::Number(number) => Ok(number.cast_signed()),
            Piece::Bytes(_) | Piece::Fixed(_) => Err(self.unexpected("a number")),
        }
    }

    /// Go writes whole numbers without a fraction.
    fn double(&self, piece: Piece<'_>) -> Result<Value, DecodeError> {
        /// Whole numbers up to this one are exact.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let Piece::Fixed(bits) = piece else {
            return Err(self.unexpected("a floating point number"));
        };
        let number = f64::from_bits(bits);
        if number.fract() == 0.0 && number.abs() < EXACT {
            return Ok((number as i64).into());
        }
        let number = Number::from_f64(number);
        number
            .map(Value::Number)
            .ok_or_else(|| self.unexpected("a finite number"))
    }

    /// A message of seconds since 1970 and nanoseconds; an empty one is no time at all.
    fn time(&self, piece: Piece<'_>, format: &str) -> Result<Value, DecodeError> {
        let fields = self.fields_of(&[piece])?;
        if fields.is_empty() {
            return Ok(Value::Null);
        }
        let number = |field: u32| match fields.get(&field).and_then(|pieces| pieces.last()) {
            Some(piece) => self.number(*piece),
            None => Ok(0),
        };
        let (seconds, nanoseconds) = (number(1)?, number(2)?);
        let time = i32::try_from(nanoseconds)
            .ok()
            .and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok());
        match time {
            Some(time) => Ok(time.strftime(format).to_string().into()),
            None => Err(DecodeError::Time {
                field: self.place(),
                seconds,
            }),
        }
    }

    fn quantity(&self, piece: Piece<'_>) -> Result<Value, DecodeError> {
        match self
            .fields_of(&[piece])?
            .remove(&1)
            .unwrap_or_default()
            .last()
        {
            Some(text) => Ok(self.text(*text)?.into()),
            None => Ok("0".into()),
        }
    }

    /// A message of which one it is, the number, and the text.
    fn int_or_string(&self, piece: Piece<'_>) -> Result<Value, DecodeError> {
        let fields = self.fields_of(&[piece])?;
        let last = |field: u32| fields.get(&field).and_then(|pieces| pieces.last()).copied();
        let which = last(1).map_or(Ok(0), |piece| self.number(piece))?;
        Ok(match (which, last(2), last(3)) {
            (0, Some(number), _) => self.number(number)?.into(),
            (0, None, _) => 0.into(),
            (_, _, Some(text)) => self.text(text)?.into(),
            (_, _, None) => "".into(),
        })
    }

    fn json(&self, piece: Piece<'_>) -> Result<Value, DecodeError> {
        let fields = self.fields_of(&[piece])?;
        let Some(raw) = fields.get(&1).and_then(|pieces| pieces.last()) else {
            return Ok(Value::Null);
        };
        let value = serde_json::from_slice(self.bytes(*raw)?);
        let value = value.map_err(|error| DecodeError::Json {
            field: self.place(),
            what: error.to_string(),
        })?;
        if n_levels(&value) > self.n_levels_left {
            return Err(TOO_DEEP);
        }
        Ok(value)
    }
}

/// The value that Go has for a field that was not sent; messages have none.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Text => "".into(),
        Shape::Boolean => false.into(),
        Shape::Integer | Shape::Double | Shape::IntOrString => 0.into(),
        Shape::Quantity => "0".into(),
        Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::Json
        | Shape::Texts
        | Shape::List(_)
        | Shape::Map(_)
        | Shape::Pointer(_)
        | Shape::Message(_)
        | Shape::SchemaOrBoolean(_)
        | Shape::SchemaOrList(_)
        | Shape::SchemaOrTexts(_) => Value::Null,
    }
}

/// How many lists and objects are inside of each other.
fn n_levels(value: &Value) -> usize {
    let deepest = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
        Value::Array(items) => items.iter().map(n_levels).max(),
        Value::Object(members) => members.values().map(n_levels).max(),
    };
    1 + deepest.unwrap_or(0)
}

/// Whether `omitempty` leaves the value out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_set) => !is_set,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
