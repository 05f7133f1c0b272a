//! Tokens of an expression.

use crate::source::{Errors, Offset, Source};

/// The kinds of tokens, in the order of the grammar, which is the order in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    LogicalAnd,
    LogicalOr,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Exclamation,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
    Eof,
}

impl Token {
    /// Its name in messages about what was expected.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::LogicalAnd => "'&&'",
            Self::LogicalOr => "'||'",
            Self::LeftBracket => "'['",
            Self::RightBracket => "']'",
            Self::LeftBrace => "'{'",
            Self::RightBrace => "'}'",
            Self::LeftParen => "'('",
            Self::RightParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Exclamation => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Identifier => "IDENTIFIER",
            Self::EscapedIdentifier => "ESC_IDENTIFIER",
            Self::Eof => "<EOF>",
        }
    }
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
}

/// Splits the text. Text that is not a token is reported and skipped, as ANTLR does.
pub(crate) fn tokens(source: &Source, errors: &mut Errors) -> Vec<Lexeme> {
    let mut lexer = Lexer { chars: &source.chars, at: 0 };
    let mut found = Vec::new();
    while lexer.at < source.chars.len() {
        let start = lexer.at;
        match lexer.next() {
            Scan::Hidden(end) => lexer.at = end,
            Scan::Token(token, end) => {
                found.push(Lexeme { token, start, end });
                lexer.at = end;
            }
            Scan::Dead(at) => {
                let text = escape_whitespace(&source.text(start, at + 1));
                errors.report(
                    source.location(start),
                    format!("Syntax error: token recognition error at: '{text}'"),
                );
                lexer.at = at + 1;
            }
        }
    }
    let end = source.chars.len();
    found.push(Lexeme { token: Token::Eof, start: end, end });
    found
}

/// White space as ANTLR shows it in messages.
pub(crate) fn escape_whitespace(text: &str) -> String {
    text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

enum Scan {
    Hidden(Offset),
    Token(Token, Offset),
    /// No token starts here; this character is the first that none can go on with.
    Dead(Offset),
}

struct Lexer<'a> {
    chars: &'a [char],
    at: Offset,
}

impl Lexer<'_> {
    fn get(&self, at: Offset) -> Option<char> {
        self.chars.get(at).copied()
    }

    fn run(&self, from: Offset, accept: impl Fn(char) -> bool) -> Offset {
        (from..self.chars.len()).find(|at| !accept(self.chars[*at])).unwrap_or(self.chars.len())
    }

    fn next(&self) -> Scan {
        let start = self.at;
        let Some(first) = self.get(start) else { return Scan::Dead(start) };
        match first {
            '\t' | ' ' | '\r' | '\n' | '\u{c}' => {
                Scan::Hidden(self.run(start, |c| matches!(c, '\t' | ' ' | '\r' | '\n' | '\u{c}')))
            }
            '/' if self.get(start + 1) == Some('/') => Scan::Hidden(self.run(start, |c| c != '\n')),
            '0'..='9' => self.number(start),
            '.' if self.get(start + 1).is_some_and(|c| c.is_ascii_digit()) => {
                let digits = self.run(start + 1, |c| c.is_ascii_digit());
                Scan::Token(Token::Float, self.exponent(digits).unwrap_or(digits))
            }
            '"' | '\'' => self.string(start, start, Token::String),
            '`' => self.escaped_identifier(start),
            'a'..='z' | 'A'..='Z' | '_' => self.word(start),
            _ => self.operator(start, first),
        }
    }

    fn operator(&self, start: Offset, first: char) -> Scan {
        let second = self.get(start + 1);
        let one = |token| Scan::Token(token, start + 1);
        let two = |token| Scan::Token(token, start + 2);
        match (first, second) {
            ('=', Some('=')) => two(Token::Equals),
            ('!', Some('=')) => two(Token::NotEquals),
            ('<', Some('=')) => two(Token::LessEquals),
            ('>', Some('=')) => two(Token::GreaterEquals),
            ('&', Some('&')) => two(Token::LogicalAnd),
            ('|', Some('|')) => two(Token::LogicalOr),
            ('<', _) => one(Token::Less),
            ('>', _) => one(Token::Greater),
            ('[', _) => one(Token::LeftBracket),
            (']', _) => one(Token::RightBracket),
            ('{', _) => one(Token::LeftBrace),
            ('}', _) => one(Token::RightBrace),
            ('(', _) => one(Token::LeftParen),
            (')', _) => one(Token::RightParen),
            ('.', _) => one(Token::Dot),
            (',', _) => one(Token::Comma),
            ('-', _) => one(Token::Minus),
            ('!', _) => one(Token::Exclamation),
            ('?', _) => one(Token::Question),
            (':', _) => one(Token::Colon),
            ('+', _) => one(Token::Plus),
            ('*', _) => one(Token::Star),
            ('/', _) => one(Token::Slash),
            ('%', _) => one(Token::Percent),
            ('=' | '&' | '|', _) => Scan::Dead(start + 1),
            _ => Scan::Dead(start),
        }
    }

    fn number(&self, start: Offset) -> Scan {
        let is_unsigned = |at| matches!(self.get(at), Some('u' | 'U'));
        if self.get(start) == Some('0') && self.get(start + 1) == Some('x') {
            let end = self.run(start + 2, |c| c.is_ascii_hexdigit());
            if end > start + 2 {
                return if is_unsigned(end) {
                    Scan::Token(Token::Uint, end + 1)
                } else {
                    Scan::Token(Token::Int, end)
                };
            }
        }
        let digits = self.run(start, |c| c.is_ascii_digit());
        if is_unsigned(digits) {
            return Scan::Token(Token::Uint, digits + 1);
        }
        if self.get(digits) == Some('.') && self.get(digits + 1).is_some_and(|c| c.is_ascii_digit()) {
            let fraction = self.run(digits + 1, |c| c.is_ascii_digit());
            return Scan::Token(Token::Float, self.exponent(fraction).unwrap_or(fraction));
        }
        match self.exponent(digits) {
            Some(end) => Scan::Token(Token::Float, end),
            None => Scan::Token(Token::Int, digits),
        }
    }

    fn exponent(&self, at: Offset) -> Option<Offset> {
        matches!(self.get(at), Some('e' | 'E')).then_some(())?;
        let digits = at + 1 + usize::from(matches!(self.get(at + 1), Some('+' | '-')));
        let end = self.run(digits, |c| c.is_ascii_digit());
        (end > digits).then_some(end)
    }

    fn word(&self, start: Offset) -> Scan {
        let prefix = self.string_prefix(start);
        if let Some((quote, token)) = prefix
            && let Scan::Token(token, end) = self.string(start, quote, token)
        {
            return Scan::Token(token, end);
        }
        let end = self.run(start, |c| c.is_ascii_alphanumeric() || c == '_');
        let text: String = self.chars[start..end].iter().collect();
        let token = match text.as_str() {
            "in" => Token::In,
            "true" => Token::True,
            "false" => Token::False,
            "null" => Token::Null,
            _ => Token::Identifier,
        };
        Scan::Token(token, end)
    }

    /// Where the quote of a raw string or of bytes is.
    fn string_prefix(&self, start: Offset) -> Option<(Offset, Token)> {
        let is_bytes = matches!(self.get(start), Some('b' | 'B'));
        let after = start + usize::from(is_bytes);
        let is_raw = matches!(self.get(after), Some('r' | 'R'));
        let quote = after + usize::from(is_raw);
        matches!(self.get(quote), Some('"' | '\'')).then_some(())?;
        Some((quote, if is_bytes { Token::Bytes } else { Token::String }))
    }

    /// The longest string, which may be the empty one that starts a text in three quotes.
    fn string(&self, start: Offset, quote: Offset, token: Token) -> Scan {
        let is_raw = quote > start && matches!(self.get(quote - 1), Some('r' | 'R'));
        let mark = self.chars[quote];
        let short = self.short_string(quote + 1, mark, is_raw);
        let opens_long = self.get(quote + 1) == Some(mark) && self.get(quote + 2) == Some(mark);
        let long = opens_long.then(|| self.long_string(quote + 3, mark, is_raw));
        match (long, short) {
            (Some(Ok(end)), _) | (_, Ok(end)) => Scan::Token(token, end),
            (_, Err(dead)) => Scan::Dead(dead),
        }
    }

    fn short_string(&self, from: Offset, mark: char, is_raw: bool) -> Result<Offset, Offset> {
        let mut at = from;
        loop {
            match self.get(at) {
                None | Some('\n' | '\r') => return Err(at),
                Some(c) if c == mark => return Ok(at + 1),
                Some('\\') if !is_raw => at = self.escape(at)?,
                Some(_) => at += 1,
            }
        }
    }

    fn long_string(&self, from: Offset, mark: char, is_raw: bool) -> Result<Offset, Offset> {
        let mut at = from;
        loop {
            match self.get(at) {
                None => return Err(at),
                Some(c) if c == mark && self.get(at + 1) == Some(mark) && self.get(at + 2) == Some(mark) => {
                    return Ok(at + 3);
                }
                Some('\\') if !is_raw => at = self.escape(at)?,
                Some(_) => at += 1,
            }
        }
    }

    /// The end of the escape sequence at a backslash, or the first character that does not belong.
    fn escape(&self, at: Offset) -> Result<Offset, Offset> {
        let digits = |count: usize, radix: u32| {
            let dead = (at + 2..at + 2 + count).find(|at| !self.get(*at).is_some_and(|c| c.is_digit(radix)));
            dead.map_or(Ok(at + 2 + count), Err)
        };
        match self.get(at + 1) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => Ok(at + 2),
            Some('0'..='3') => digits(2, 8),
            Some('x' | 'X') => digits(2, 16),
            Some('u') => digits(4, 16),
            Some('U') => digits(8, 16),
            _ => Err(at + 1),
        }
    }

    fn escaped_identifier(&self, start: Offset) -> Scan {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ');
        let end = self.run(start + 1, is_part);
        if end > start + 1 && self.get(end) == Some('`') {
            return Scan::Token(Token::EscapedIdentifier, end + 1);
        }
        Scan::Dead(end)
    }
}
