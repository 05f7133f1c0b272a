//! Parses label selectors: comma-separated requirements.

use kube::core::Expression;

use super::{Requirement, one_of};

/// The maximum length of names and values.
const LONGEST: usize = 63;
const LONGEST_PREFIX: usize = 253;

type Parsed<T> = Result<T, String>;

pub(super) fn parse(text: &str) -> Parsed<Vec<Requirement>> {
    let mut parser = Parser { rest: text.trim() };
    let mut requirements = Vec::new();
    if parser.rest.is_empty() {
        return Ok(requirements);
    }
    loop {
        requirements.push(parser.requirement()?);
        if parser.rest.is_empty() {
            return Ok(requirements);
        }
        parser.expect(",")?;
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn requirement(&mut self) -> Parsed<Requirement> {
        if self.take("!") {
            return Ok(Requirement::Expression(Expression::DoesNotExist(self.key()?)));
        }
        let key = self.key()?;
        let expression = if self.take("==") || self.take("=") {
            Expression::Equal(key, self.value()?)
        } else if self.take("!=") {
            Expression::NotEqual(key, self.value()?)
        } else if self.take(">") {
            return Ok(Requirement::GreaterThan(key, self.bound()?));
        } else if self.take("<") {
            return Ok(Requirement::LessThan(key, self.bound()?));
        } else {
            match self.word() {
                "" => Expression::Exists(key),
                "in" => Expression::In(key, one_of(self.values()?)),
                "notin" => Expression::NotIn(key, one_of(self.values()?)),
                other => return Err(format!("{other:?} after {key:?} is not an operator")),
            }
        };
        Ok(Requirement::Expression(expression))
    }

    fn key(&mut self) -> Parsed<String> {
        let word = self.word();
        check_key(word)?;
        Ok(word.to_owned())
    }

    /// The value may be empty.
    fn value(&mut self) -> Parsed<String> {
        let word = self.word();
        check_value(word)?;
        Ok(word.to_owned())
    }

    fn bound(&mut self) -> Parsed<i64> {
        let word = self.word();
        word.parse().map_err(|_| format!("{word:?} is not an integer"))
    }

    /// `(a, b)`. Nothing before a comma or the bracket is the empty value.
    fn values(&mut self) -> Parsed<Vec<String>> {
        self.expect("(")?;
        let mut values = vec![self.value()?];
        while !self.take(")") {
            self.expect(",")?;
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.take(symbol) {
            return Ok(());
        }
        let found = if self.rest.is_empty() { "the end".to_owned() } else { format!("{:?}", self.rest) };
        Err(format!("expected {symbol:?}, found {found}"))
    }

    fn take(&mut self, symbol: &str) -> bool {
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// Everything up to the next space or symbol; may be empty.
    fn word(&mut self) -> &'a str {
        let ends = |letter: char| letter.is_whitespace() || "=!(),<>".contains(letter);
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        word
    }
}

/// `name` or `prefix/name`, where the prefix is a DNS subdomain.
fn check_key(key: &str) -> Parsed<()> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if !is_name(name) {
        return Err(format!("{key:?} is not a label key"));
    }
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        label.bytes().all(inner) && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    match prefix {
        Some(prefix) if prefix.len() > LONGEST_PREFIX || !prefix.split('.').all(is_label) => {
            Err(format!("{prefix:?} is not the prefix of a label key"))
        }
        _ => Ok(()),
    }
}

fn check_value(value: &str) -> Parsed<()> {
    if value.is_empty() || is_name(value) { Ok(()) } else { Err(format!("{value:?} is not a label value")) }
}

fn is_name(text: &str) -> bool {
    let outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LONGEST
        && outer(text.bytes().next())
        && outer(text.bytes().next_back())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
