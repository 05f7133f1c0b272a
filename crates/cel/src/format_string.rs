//! Texts with clauses such as `%s`, which the function `format` replaces.

use crate::gofmt::quote;
use crate::types::Type;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(Option<i64>),
    Scientific(Option<i64>),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// Why a clause cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The text ends after its percent sign.
    AtEnd,
    /// For this reason.
    Clause(String),
}

/// A part of such a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Clause(Result<Clause, Broken>),
}

impl Broken {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::AtEnd => "unexpected end of string".into(),
            Self::Clause(reason) => format!("could not parse formatting clause: {reason}"),
        }
    }
}

impl Clause {
    /// Whether the checker lets it write values of this type.
    pub(crate) const fn accepts(self, t: &Type) -> bool {
        if matches!(t, Type::Dyn) {
            return true;
        }
        match self {
            Self::String => {
                !matches!(t, Type::Error | Type::Struct(_) | Type::Opaque(..) | Type::Param(_) | Type::Var(_))
            }
            Self::Decimal | Self::Octal => matches!(t, Type::Int | Type::Uint),
            Self::Fixed(_) | Self::Scientific(_) => matches!(t, Type::Double | Type::String),
            Self::Binary => matches!(t, Type::Int | Type::Uint | Type::Bool),
            Self::Hex { .. } => matches!(t, Type::Int | Type::Uint | Type::String | Type::Bytes),
        }
    }

    /// What is wrong with a value of the wrong type.
    pub(crate) fn mismatch(self, found: &str) -> String {
        let rule = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{rule}, was given {found}")
    }
}

/// The pieces of a text. What follows a broken clause means nothing.
pub(crate) struct Pieces<'a>(&'a str);

impl<'a> Pieces<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self(text)
    }

    fn clause(&mut self, text: &'a str) -> Result<Clause, Broken> {
        let (precision, rest) = split_precision(text)
            .map_err(|reason| Broken::Clause(format!("error while parsing precision: {reason}")))?;
        let &byte = rest.as_bytes().first().ok_or(Broken::AtEnd)?;
        let clause = match byte {
            b's' => Clause::String,
            b'd' => Clause::Decimal,
            b'f' => Clause::Fixed(precision),
            b'e' => Clause::Scientific(precision),
            b'b' => Clause::Binary,
            b'x' | b'X' => Clause::Hex { upper: byte == b'X' },
            b'o' => Clause::Octal,
            // Upstream shows one byte as a character.
            _ => {
                let found = char::from(byte);
                return Err(Broken::Clause(format!("unrecognized formatting clause \"{found}\"")));
            }
        };
        self.0 = &rest[1..];
        Ok(clause)
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let text = self.0;
        let Some(clause) = text.strip_prefix('%') else {
            let (plain, rest) = text.split_at(text.find('%').unwrap_or(text.len()));
            self.0 = rest;
            return (!plain.is_empty()).then_some(Piece::Text(plain));
        };
        if let Some(rest) = clause.strip_prefix('%') {
            self.0 = rest;
            return Some(Piece::Text("%"));
        }
        Some(Piece::Clause(self.clause(clause)))
    }
}

/// The precision before a clause, if there is one.
fn split_precision(text: &str) -> Result<(Option<i64>, &str), String> {
    let Some(digits) = text.strip_prefix('.') else { return Ok((None, text)) };
    let end =
        digits.find(|c: char| !c.is_ascii_digit()).ok_or("could not find end of precision specifier")?;
    let (digits, rest) = digits.split_at(end);
    let precision = digits.parse().map_err(|_| {
        let reason = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
        format!(
            "error while converting precision to integer: strconv.Atoi: parsing {}: {reason}",
            quote(digits)
        )
    })?;
    Ok((Some(precision), rest))
}
