//! Selectors as text: `a=b, c!=d, e in (f,g), h notin (i), j, !k, l>1`.

use super::{InvalidSelector, Operator, Requirement};
use crate::names;

/// Signs, longest first: `==` is not twice `=`.
const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// A sign or a word; the empty one is the end.
type Token<'a> = &'a str;

struct Tokens<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, InvalidSelector> {
    let mut tokens = Tokens::of(text);
    let mut requirements = Vec::new();
    match tokens.peek() {
        "" => return Ok(requirements),
        "!" => {}
        first if is_word(first) => {}
        first => {
            return Err(unexpected(
                first,
                ", expected: !, identifier, or 'end of string'",
            ));
        }
    }
    loop {
        let requirement = requirement(&mut tokens).map_err(|error| {
            InvalidSelector::Text(format!("unable to parse requirement: {error}"))
        })?;
        requirements.push(requirement);
        match tokens.next() {
            "" => return Ok(requirements),
            "," => {}
            found => return Err(unexpected(found, ", expected: ',' or 'end of string'")),
        }
        let next = tokens.peek();
        if !is_word(next) && next != "!" {
            return Err(unexpected(next, ", expected: identifier after ','"));
        }
    }
}

fn unexpected(found: &str, expected: &str) -> InvalidSelector {
    InvalidSelector::Text(format!("found '{found}'{expected}"))
}

fn is_word(token: Token<'_>) -> bool {
    !token.is_empty() && !SIGNS.contains(&token)
}

fn word<'a>(tokens: &mut Tokens<'a>) -> Result<Token<'a>, InvalidSelector> {
    let token = tokens.next();
    if is_word(token) {
        Ok(token)
    } else {
        Err(unexpected(token, ", expected: identifier"))
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, InvalidSelector> {
    let is_negated = tokens.skip("!");
    let key = word(tokens)?;
    super::require("<nil>", key, &names::key_violations(key))?;
    let operator = match (is_negated, tokens.peek()) {
        (true, _) => return Requirement::new(key, Operator::DoesNotExist, []),
        (false, "" | ",") => return Requirement::new(key, Operator::Exists, []),
        (false, _) => tokens.next(),
    };
    let operator = match operator {
        "=" | "==" => Operator::Equals,
        "!=" => Operator::NotEquals,
        ">" => Operator::GreaterThan,
        "<" => Operator::LessThan,
        "in" => Operator::In,
        "notin" => Operator::NotIn,
        found => {
            return Err(unexpected(
                found,
                ", expected: in, notin, =, ==, !=, gt, lt",
            ));
        }
    };
    let values = match operator {
        Operator::In | Operator::NotIn => values(tokens)?,
        Operator::Equals
        | Operator::NotEquals
        | Operator::Exists
        | Operator::DoesNotExist
        | Operator::GreaterThan
        | Operator::LessThan => match tokens.peek() {
            "" | "," => vec![String::new()],
            _ => vec![word(tokens)?.to_owned()],
        },
    };
    Requirement::new(key, operator, values)
}

/// `(a,b)`; what stands between two commas, or is missing beside one, is the empty value.
fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, InvalidSelector> {
    if !tokens.skip("(") {
        return Err(unexpected(tokens.peek(), " expected: '('"));
    }
    let mut values = Vec::new();
    loop {
        let (value, expected) = match (is_word(tokens.peek()), values.is_empty()) {
            (true, _) => (tokens.next(), ", expected: ',' or ')'"),
            (false, true) => ("", ", expected: ',', ')' or identifier"),
            (false, false) => ("", ", expected: ',', or identifier"),
        };
        values.push(value.to_owned());
        match tokens.next() {
            ")" => return Ok(values),
            "," => {}
            found => return Err(unexpected(found, expected)),
        }
    }
}

impl<'a> Tokens<'a> {
    fn of(text: &'a str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start_matches(BLANKS);
        while !rest.is_empty() {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let length = sign.map_or_else(|| word_length(rest), |sign| sign.len());
            let (token, after) = rest.split_at(length);
            tokens.push(token);
            rest = after.trim_start_matches(BLANKS);
        }
        Self { tokens, at: 0 }
    }

    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or_default()
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// Passes over this sign, if it comes next.
    fn skip(&mut self, sign: &str) -> bool {
        let is_next = self.peek() == sign;
        self.at += usize::from(is_next);
        is_next
    }
}

fn word_length(text: &str) -> usize {
    let end = |c: char| BLANKS.contains(&c) || "=!(),><".contains(c);
    text.find(end).unwrap_or(text.len())
}
