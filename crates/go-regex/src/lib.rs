//! Regular expressions in Go's syntax (RE2), for the crate `regex`, which has another one.
//!
//! The text is read as Go reads it, so that what is wrong in it is reported in Go's words, and
//! written again in the other syntax. Expressions that grow too large are not handled, and reported
//! as such.

mod unicode;

use std::fmt::Write as _;

pub use regex::Regex;
use regex::RegexBuilder;

/// Go's limit of repetitions.
const MAX_REPEAT: u32 = 1_000;
/// The size of a compiled expression, in bytes.
pub const MAX_SIZE: usize = 1 << 20;

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegexError {
    /// Go's error.
    Invalid(String),
    /// Go accepts it, and this crate does not.
    Unsupported(String),
}

/// An expression in the machine's syntax.
pub struct Translated {
    text: String,
    /// How often it repeats a part of it, at most.
    pub repeats: u32,
    /// The characters for which the machine looks for other cases, one by one.
    pub folded: u64,
}

/// Translates an expression.
pub fn translate(pattern: &str) -> Result<Translated, RegexError> {
    let mut translator = Translator {
        chars: pattern.chars().collect(),
        at: 0,
        out: String::new(),
        repeats: vec![1],
        last_repeats: 1,
        ignores_case: false,
        in_ranges: 0,
    };
    translator.run(pattern)?;
    Ok(Translated {
        repeats: translator.repeats.first().copied().unwrap_or(1),
        folded: if translator.ignores_case { translator.in_ranges } else { 0 },
        text: translator.out,
    })
}

impl Translated {
    /// Compiles the expression.
    pub fn compile(&self) -> Result<Regex, RegexError> {
        RegexBuilder::new(&self.text)
            .size_limit(MAX_SIZE)
            .nest_limit(250)
            .build()
            .map_err(|_| RegexError::Unsupported("regular expression too large".into()))
    }
}

fn invalid<T>(reason: &str, text: &str) -> Result<T, RegexError> {
    Err(RegexError::Invalid(format!("error parsing regexp: {reason}: `{text}`")))
}

/// What a repetition would repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Atom,
    /// A repetition that starts here.
    Repeat(usize),
}

/// How often something repeats.
#[derive(Clone, Copy)]
struct Counts {
    least: u32,
    most: Option<u32>,
}

struct Translator {
    chars: Vec<char>,
    at: usize,
    out: String,
    /// How often each open group repeats a part of it, at most.
    repeats: Vec<u32>,
    /// The same of what was read last.
    last_repeats: u32,
    /// Some part of it ignores case.
    ignores_case: bool,
    /// The number of characters in its ranges.
    in_ranges: u64,
}

impl Translator {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(index, c)| self.chars.get(self.at + index) == Some(&c))
    }

    fn text(&self, from: usize, to: usize) -> String {
        self.chars[from..to.min(self.chars.len())].iter().collect()
    }

    fn run(&mut self, pattern: &str) -> Result<(), RegexError> {
        let mut last = Last::Nothing;
        while let Some(c) = self.peek() {
            let start = self.at;
            if !matches!(c, '*' | '+' | '?' | '{') {
                self.last_repeats = 1;
            }
            match c {
                '(' => {
                    self.open_group()?;
                    // A group of flags alone ends at once and is nothing to repeat.
                    if self.out.ends_with(')') {
                        continue;
                    }
                    self.repeats.push(1);
                    last = Last::Nothing;
                }
                '|' => {
                    self.at += 1;
                    self.out.push('|');
                    last = Last::Nothing;
                }
                ')' => {
                    self.close_group(pattern)?;
                    last = Last::Atom;
                }
                '[' => {
                    self.class()?;
                    last = Last::Atom;
                }
                '*' | '+' | '?' => {
                    self.at += 1;
                    self.out.push(c);
                    last = self.repeat(last, start, None)?;
                }
                '{' => match self.counts()? {
                    Some(counts) => {
                        self.out.push_str(&self.text(start, self.at));
                        last = self.repeat(last, start, Some(counts))?;
                    }
                    None => {
                        self.at += 1;
                        self.literal('{');
                        last = Last::Atom;
                    }
                },
                '\\' => {
                    if self.escape()? {
                        last = Last::Atom;
                    }
                }
                '^' | '$' | '.' => {
                    self.at += 1;
                    self.out.push(c);
                    last = Last::Atom;
                }
                _ => {
                    self.at += 1;
                    self.literal(c);
                    last = Last::Atom;
                }
            }
        }
        if self.repeats.len() > 1 {
            return invalid("missing closing )", pattern);
        }
        Ok(())
    }

    fn literal(&mut self, c: char) {
        if c.is_alphanumeric() || c == '_' || c == ' ' {
            self.out.push(c);
        } else {
            let _ = write!(self.out, "\\x{{{:x}}}", c as u32);
        }
    }

    fn close_group(&mut self, pattern: &str) -> Result<(), RegexError> {
        match self.repeats[..] {
            [.., _, inner] => self.last_repeats = inner,
            _ => return invalid("unexpected )", pattern),
        }
        self.repeats.pop();
        self.note_repeats();
        self.at += 1;
        self.out.push(')');
        Ok(())
    }

    /// What was read last is a part of the open group.
    fn note_repeats(&mut self) {
        if let Some(group) = self.repeats.last_mut() {
            *group = self.last_repeats.max(*group);
        }
    }

    /// After a repetition: whether it may stand here, and a `?` that makes it lazy.
    fn repeat(&mut self, last: Last, start: usize, counts: Option<Counts>) -> Result<Last, RegexError> {
        if self.peek() == Some('?') {
            self.at += 1;
            self.out.push('?');
        }
        match last {
            Last::Nothing => {
                return invalid("missing argument to repetition operator", &self.text(start, self.at));
            }
            Last::Repeat(first) => {
                return invalid("invalid nested repetition operator", &self.text(first, self.at));
            }
            Last::Atom => {}
        }
        if let Some(Counts { least, most }) = counts {
            let times = most.unwrap_or(least);
            self.last_repeats = if times == 0 { 1 } else { self.last_repeats.saturating_mul(times) };
            if times >= 2 && self.last_repeats > MAX_REPEAT {
                return invalid("invalid repeat count", &self.text(start, self.at));
            }
            self.note_repeats();
        }
        Ok(Last::Repeat(start))
    }

    /// `{2,3}`, if that is what stands here; else the brace is a character.
    fn counts(&mut self) -> Result<Option<Counts>, RegexError> {
        let start = self.at;
        let is_part = |c: &char| c.is_ascii_digit() || *c == ',';
        let length = self.chars[start + 1..].iter().take_while(|c| is_part(c)).count() + 1;
        if self.chars.get(start + length) != Some(&'}') {
            return Ok(None);
        }
        let text = self.text(start + 1, start + length);
        let (least, most) = match text.split_once(',') {
            Some((least, most)) => (least, Some(most).filter(|most| !most.is_empty())),
            None => (text.as_str(), Some(text.as_str())),
        };
        let is_number = |text: &str| {
            let has_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            has_digits && (text == "0" || !text.starts_with('0'))
        };
        if !is_number(least) || most.is_some_and(|most| !is_number(most)) {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
        let counts = Counts { least: number(least), most: most.map(number) };
        self.at = start + length + 1;
        let most = counts.most.unwrap_or(counts.least);
        if counts.least > MAX_REPEAT || most > MAX_REPEAT || most < counts.least {
            return invalid("invalid repeat count", &self.text(start, self.at));
        }
        Ok(Some(counts))
    }

    fn open_group(&mut self) -> Result<(), RegexError> {
        let start = self.at;
        if !self.starts_with("(?") {
            self.at += 1;
            // Groups are not used; one that does not capture costs less.
            self.out.push_str("(?:");
            return Ok(());
        }
        if self.starts_with("(?P<") || self.starts_with("(?<") {
            return self.named_group(start);
        }
        self.flags(start)
    }

    fn named_group(&mut self, start: usize) -> Result<(), RegexError> {
        let name_start = start + if self.starts_with("(?P<") { 4 } else { 3 };
        let rest: String = self.text(start, self.chars.len());
        let Some(length) = self.chars[name_start..].iter().position(|c| *c == '>') else {
            return invalid("invalid named capture", &rest);
        };
        let name = self.text(name_start, name_start + length);
        let capture = self.text(start, name_start + length + 1);
        if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return invalid("invalid named capture", &capture);
        }
        self.at = name_start + length + 1;
        self.out.push_str("(?:");
        Ok(())
    }

    fn flags(&mut self, start: usize) -> Result<(), RegexError> {
        let mut at = start + 2;
        let (mut is_negated, mut saw_flag) = (false, false);
        loop {
            let Some(c) = self.chars.get(at).copied() else {
                return invalid("invalid or unsupported Perl syntax", &self.text(start, at));
            };
            at += 1;
            match c {
                'i' | 'm' | 's' | 'U' => {
                    saw_flag = true;
                    self.ignores_case |= c == 'i';
                }
                '-' if !is_negated => {
                    is_negated = true;
                    saw_flag = false;
                }
                ':' | ')' if !is_negated || saw_flag => break,
                _ => return invalid("invalid or unsupported Perl syntax", &self.text(start, at)),
            }
        }
        let text = self.text(start, at);
        self.at = at;
        // Go accepts a group without flags; the other machine wants some.
        self.out.push_str(if text == "(?)" { "(?-x)" } else { &text });
        Ok(())
    }

    /// The character after the backslash that is next.
    fn after_backslash(&self) -> Result<char, RegexError> {
        let text = "error parsing regexp: trailing backslash at end of expression: ``";
        self.chars.get(self.at + 1).copied().ok_or_else(|| RegexError::Invalid(text.into()))
    }

    /// An escape outside a class; whether it is something to repeat.
    fn escape(&mut self) -> Result<bool, RegexError> {
        let c = self.after_backslash()?;
        let simple = match c {
            'A' => Some("\\A"),
            'z' => Some("\\z"),
            'b' => Some("(?-u:\\b)"),
            'B' => Some("(?-u:\\B)"),
            _ => perl_class(c),
        };
        if let Some(simple) = simple {
            self.at += 2;
            self.out.push_str(simple);
            return Ok(true);
        }
        match c {
            'p' | 'P' => self.unicode_class().map(|()| true),
            'Q' => {
                self.at += 2;
                let rest = self.text(self.at, self.chars.len());
                let (quoted, used) = match rest.split_once("\\E") {
                    Some((quoted, _)) => (quoted.to_string(), quoted.chars().count() + 2),
                    None => (rest.clone(), rest.chars().count()),
                };
                quoted.chars().for_each(|c| self.literal(c));
                self.at += used;
                Ok(!quoted.is_empty())
            }
            _ => {
                let c = self.escaped_char()?;
                self.literal(c);
                Ok(true)
            }
        }
    }

    /// `\pL` or `\p{Greek}`, in or outside a class.
    fn unicode_class(&mut self) -> Result<(), RegexError> {
        let start = self.at;
        let rest = &self.chars[start + 2..];
        let (name, length) = if rest.first() == Some(&'{') {
            let Some(end) = rest.iter().position(|c| *c == '}') else {
                return invalid("invalid character class range", &self.text(start, self.chars.len()));
            };
            (&rest[1..end], end + 1)
        } else {
            let length = rest.len().min(1);
            (&rest[..length], length)
        };
        let name: String = name.iter().collect();
        let class = unicode::class(&name, self.chars[start + 1] == 'P');
        self.at = start + 2 + length;
        match class {
            Some(class) => self.out.push_str(&class),
            None => return invalid("invalid character class range", &self.text(start, self.at)),
        }
        Ok(())
    }

    /// The character of an escape, in or outside a class.
    fn escaped_char(&mut self) -> Result<char, RegexError> {
        let start = self.at;
        let c = self.after_backslash()?;
        self.at += 2;
        let value = match c {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '0'..='7' => return self.octal(start, c),
            'x' => return self.hex(start),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return invalid("invalid escape sequence", &self.text(start, self.at)),
        };
        Ok(value)
    }

    fn octal(&mut self, start: usize, first: char) -> Result<char, RegexError> {
        let is_octal = |c: Option<char>| c.is_some_and(|c| c.is_digit(8));
        if first != '0' && !is_octal(self.peek()) {
            return invalid("invalid escape sequence", &self.text(start, self.at));
        }
        let mut value = first.to_digit(8).unwrap_or(0);
        for _ in 1..3 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
            value = value * 8 + digit;
            self.at += 1;
        }
        Ok(char::from_u32(value).unwrap_or('\0'))
    }

    fn hex(&mut self, start: usize) -> Result<char, RegexError> {
        let fail = |to: usize, all: &Self| invalid("invalid escape sequence", &all.text(start, to));
        if self.peek() == Some('{') {
            let mut value = 0_u32;
            let mut digits = 0;
            loop {
                self.at += 1;
                match self.peek() {
                    Some('}') if digits > 0 => break,
                    Some(c) if c.is_ascii_hexdigit() => {
                        value = value * 16 + c.to_digit(16).unwrap_or(0);
                        digits += 1;
                        if value > 0x0010_FFFF {
                            return fail(self.at + 1, self);
                        }
                    }
                    _ => return fail(self.at + 1, self),
                }
            }
            self.at += 1;
            return char::from_u32(value).ok_or_else(|| {
                RegexError::Unsupported("regular expression with a surrogate is not supported".into())
            });
        }
        let mut value = 0;
        for _ in 0..2 {
            match self.peek().and_then(|c| c.to_digit(16)) {
                Some(digit) => value = value * 16 + digit,
                // Go names both characters.
                None => return fail(start + 4, self),
            }
            self.at += 1;
        }
        Ok(char::from_u32(value).unwrap_or('\0'))
    }

    fn class(&mut self) -> Result<(), RegexError> {
        let start = self.at;
        let rest = self.text(start, self.chars.len());
        self.at += 1;
        self.out.push('[');
        if self.peek() == Some('^') {
            self.at += 1;
            self.out.push('^');
        }
        let mut is_first = true;
        while is_first || self.peek() != Some(']') {
            if self.peek().is_none() {
                return invalid("missing closing ]", &rest);
            }
            is_first = false;
            let before = self.out.len();
            if !self.class_set()? {
                self.class_range()?;
            } else if self.out[before..].starts_with('[') && self.out[before + 1..].contains('^') {
                self.in_ranges += u64::from(u32::from(char::MAX));
            }
        }
        self.at += 1;
        self.out.push(']');
        Ok(())
    }

    /// A class within a class, such as `\d` or `[:alpha:]`.
    fn class_set(&mut self) -> Result<bool, RegexError> {
        if self.starts_with("[:") {
            let length = self.chars[self.at + 2..].windows(2).position(|pair| pair == [':', ']']);
            let Some(length) = length else { return Ok(false) };
            let text = self.text(self.at, self.at + length + 4);
            let name = text.trim_start_matches("[:").trim_end_matches(":]").trim_start_matches('^');
            const NAMES: &[&str] = &[
                "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
                "space", "upper", "word", "xdigit",
            ];
            if !NAMES.contains(&name) {
                return invalid("invalid character class range", &text);
            }
            self.at += length + 4;
            self.out.push_str(&text);
            return Ok(true);
        }
        if self.peek() != Some('\\') {
            return Ok(false);
        }
        let Some(c) = self.chars.get(self.at + 1).copied() else { return Ok(false) };
        if matches!(c, 'p' | 'P') {
            return self.unicode_class().map(|()| true);
        }
        let Some(set) = perl_class(c) else { return Ok(false) };
        self.at += 2;
        self.out.push_str(set);
        Ok(true)
    }

    fn class_range(&mut self) -> Result<(), RegexError> {
        let start = self.at;
        let low = self.class_char()?;
        let mut high = low;
        if self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|c| *c != ']') {
            self.at += 1;
            high = self.class_char()?;
            if high < low {
                return invalid("invalid character class range", &self.text(start, self.at));
            }
        }
        self.in_ranges += u64::from(high as u32 - low as u32);
        let _ = write!(self.out, "\\x{{{:x}}}-\\x{{{:x}}}", low as u32, high as u32);
        Ok(())
    }

    fn class_char(&mut self) -> Result<char, RegexError> {
        match self.peek() {
            Some('\\') => self.escaped_char(),
            Some(c) => {
                self.at += 1;
                Ok(c)
            }
            None => invalid("missing closing ]", ""),
        }
    }
}

/// Perl's classes, which are of ASCII in Go.
const fn perl_class(c: char) -> Option<&'static str> {
    Some(match c {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => "[\\t\\n\\f\\r ]",
        'S' => "[^\\t\\n\\f\\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}
