//! Label selectors: `app=web,tier notin (test,dev),!canary`.

use crate::status::{Result, Status};
use crate::strategy::labels;
use crate::strategy::names::Wrong;

type Labels = [(Box<str>, Box<str>)];

/// Requirements that must all match.
#[derive(Debug, Default)]
pub(super) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, PartialEq)]
enum Operator {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    /// A key, a value, or the operator `in` or `notin`.
    Word(&'a str),
    /// One of `!`, `=`, `==`, `!=`, `,`, `(`, `)`, `<`, `>`.
    Symbol(&'a str),
    /// A sequence of such characters that is not a symbol.
    Unknown(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Symbol(text) | Self::Unknown(text) => text,
            Self::End => "",
        }
    }
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

impl LabelSelector {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let requirements = Parser { rest: text }.selector().map_err(Status::bad_request)?;
        Ok(Self { requirements })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.binary_search_by(|(key, _)| (**key).cmp(self.key.as_str()));
        let value = value.ok().map(|at| &*labels[at].1);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn selector(mut self) -> std::result::Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                Token::Word(_) | Token::Symbol("!") => {
                    let requirement = self.requirement();
                    requirements
                        .push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
                }
                token => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        token.text()
                    ));
                }
            }
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => match self.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    token => return Err(format!("found '{}', expected: identifier after ','", token.text())),
                },
                token => return Err(format!("found '{}', expected: ',' or 'end of string'", token.text())),
            }
        }
    }

    fn requirement(&mut self) -> std::result::Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => {
                valid("<nil>", key, labels::key(key))?;
                key.to_owned()
            }
            token => return Err(format!("found '{}', expected: identifier", token.text())),
        };
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Requirement { key, operator: Operator::Exists });
        }
        let operator = match self.next() {
            Token::Symbol("=" | "==") => Operator::In(valid_all(&key, vec![self.value()?])?),
            Token::Symbol("!=") => Operator::NotIn(valid_all(&key, vec![self.value()?])?),
            Token::Word("in") => Operator::In(valid_all(&key, self.values()?)?),
            Token::Word("notin") => Operator::NotIn(valid_all(&key, self.values()?)?),
            Token::Symbol(">") => Operator::GreaterThan(self.bound()?),
            Token::Symbol("<") => Operator::LessThan(self.bound()?),
            token => return Err(format!("found '{}', expected: {OPERATORS}", token.text())),
        };
        Ok(Requirement { key, operator })
    }

    fn value(&mut self) -> std::result::Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                Ok(value.to_owned())
            }
            token => Err(format!("found '{}', expected: identifier", token.text())),
        }
    }

    fn bound(&mut self) -> std::result::Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    /// Parses `(a,b)`. Nothing between commas is the empty value.
    fn values(&mut self) -> std::result::Result<Vec<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            token => return Err(format!("found '{}' expected: '('", token.text())),
        }
        let mut values = Vec::new();
        let mut value = String::new();
        loop {
            match self.next() {
                Token::Word(word) if value.is_empty() => word.clone_into(&mut value),
                Token::Symbol(",") => values.push(std::mem::take(&mut value)),
                Token::Symbol(")") => {
                    values.push(value);
                    return Ok(values);
                }
                token if value.is_empty() => {
                    return Err(format!("found '{}', expected: ',', ')' or identifier", token.text()));
                }
                token => return Err(format!("found '{}', expected: ',' or ')'", token.text())),
            }
        }
    }

    fn peek(&self) -> Token<'a> {
        self.token().0
    }

    fn next(&mut self) -> Token<'a> {
        let (token, rest) = self.token();
        self.rest = rest;
        token
    }

    fn token(&self) -> (Token<'a>, &'a str) {
        let text = self.rest.trim_start_matches(is_space);
        let Some(first) = text.chars().next() else { return (Token::End, "") };
        if !is_special(first) {
            let (word, rest) = text.split_at(end(text, |letter| is_special(letter) || is_space(letter)));
            return (Token::Word(word), rest);
        }
        let symbols = ["==", "!=", "!", "=", ",", "(", ")", "<", ">"];
        match symbols.iter().find(|symbol| text.starts_with(**symbol)) {
            Some(symbol) => (Token::Symbol(symbol), &text[symbol.len()..]),
            None => {
                let (unknown, rest) = text.split_at(end(text, |letter| !is_special(letter)));
                (Token::Unknown(unknown), rest)
            }
        }
    }
}

/// The values, if all are valid label values.
fn valid_all(key: &str, values: Vec<String>) -> std::result::Result<Vec<String>, String> {
    for (at, value) in values.iter().enumerate() {
        valid(&format!("values[{at}][{key}]"), value, labels::value(value))?;
    }
    Ok(values)
}

fn valid(place: &str, value: &str, wrong: Wrong) -> std::result::Result<(), String> {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("{place}: Invalid value: {value:?}: {}", wrong.join("; ")))
    }
}

fn end(text: &str, ends: impl Fn(char) -> bool) -> usize {
    text.find(ends).unwrap_or(text.len())
}

fn is_special(letter: char) -> bool {
    matches!(letter, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn label_selectors_match_as_documented_upstream() {
        let web = labels(&[("app", "web"), ("n", "5"), ("tier", "front")]);
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            (" app = web , tier != back ", true),
            ("app=api", false),
            ("app", true),
            ("!app", false),
            ("!canary", true),
            ("canary!=true", true),
            ("app in (api, web)", true),
            ("app notin (api,web)", false),
            ("canary notin (a)", true),
            ("canary in ()", false),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app>1", false),
            ("app in (in,notin,web)", true),
            ("app=", false),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap().matches(&web), expected, "{selector}");
        }
    }

    #[test]
    fn invalid_label_selectors_have_upstream_errors() {
        for (selector, expected) in [
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().message, expected, "{selector}");
        }
    }

    #[test]
    fn parsing_any_text_does_not_panic() {
        proptest::proptest!(|(text in "[a-z=!(),<> ]{0,16}")| {
            let _ = LabelSelector::parse(&text);
        });
    }
}
