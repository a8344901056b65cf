//! An encoded message, taken apart into its fields. The whole of protobuf's wire format that
//! Kubernetes uses: it has no groups.

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Integers and booleans.
    Number(u64),
    /// Eight bytes: a floating point number.
    Fixed(u64),
    /// Text, bytes and messages.
    Bytes(&'a [u8]),
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("expected more bytes, found the end")]
    Truncated,
    #[error("expected a number of at most 64 bits")]
    Overlong,
    #[error("expected a field number, found {0}")]
    NoField(u64),
    #[error("expected a wire type of Kubernetes, found {0}")]
    WireType(u64),
}

/// Reads field after field. Nothing follows an error.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    fn field(&mut self) -> Result<(u32, Piece<'a>), WireError> {
        let key = self.number()?;
        let number = match u32::try_from(key >> 3) {
            Ok(number @ 1..=0x1fff_ffff) => number,
            Ok(_) | Err(_) => return Err(WireError::NoField(key >> 3)),
        };
        let piece = match key & 7 {
            0 => Piece::Number(self.number()?),
            1 => Piece::Fixed(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.number()?;
                let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
                Piece::Bytes(self.take(length)?)
            }
            5 => Piece::Fixed(u32::from_le_bytes(self.array()?).into()),
            other => return Err(WireError::WireType(other)),
        };
        Ok((number, piece))
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    fn number(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Overlong);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(WireError::Overlong)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Piece<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Appends a field of text, of bytes or of another message.
pub(crate) fn put(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_number(out, u64::from(number) << 3 | 2);
    put_number(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a field of an integer or a boolean.
pub(super) fn put_integer(out: &mut Vec<u8>, number: u32, value: i64) {
    put_number(out, u64::from(number) << 3);
    put_number(out, value.cast_unsigned());
}

/// Appends a field of a floating point number.
pub(super) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_number(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Numbers one after the other in the value of one field, which encoders may do with a list.
pub(super) fn packed(bytes: &[u8]) -> Result<Vec<u64>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut numbers = Vec::new();
    while !reader.rest.is_empty() {
        numbers.push(reader.number()?);
    }
    Ok(numbers)
}
