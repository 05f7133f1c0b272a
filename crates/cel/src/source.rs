//! The text of an expression, places in it, and errors at those places.

/// Where something starts, in characters from the start of the text.
pub(crate) type Offset = usize;

/// The greatest number of errors of one expression that cel-go reports.
const MAX_ERRORS: usize = 100;
/// A longer line, in bytes, is not repeated below its error.
const MAX_SNIPPET: usize = 16_384;

/// A text with its lines.
pub(crate) struct Source {
    pub(crate) chars: Vec<char>,
    /// Where each line after the first starts, and one past the end.
    line_starts: Vec<Offset>,
}

/// A line, from 1, and a column, from 0. Both are -1 for an error without a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    line: i64,
    column: i64,
}

impl Location {
    pub(crate) const NONE: Self = Self { line: -1, column: -1 };
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let after_newline = chars.iter().enumerate().filter(|(_, c)| **c == '\n').map(|(index, _)| index + 1);
        let line_starts = after_newline.chain([chars.len() + 1]).collect();
        Self { chars, line_starts }
    }

    pub(crate) fn text(&self, from: Offset, to: Offset) -> String {
        self.chars[from.min(to)..to.min(self.chars.len())].iter().collect()
    }

    pub(crate) fn location(&self, offset: Offset) -> Location {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = if line == 0 { 0 } else { self.line_starts[line - 1] };
        Location { line: line as i64 + 1, column: (offset - start) as i64 }
    }

    fn line(&self, line: i64) -> Option<String> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        if self.chars.is_empty() {
            return None;
        }
        let start = if index == 0 { 0 } else { *self.line_starts.get(index - 1)? };
        let end = self.line_starts.get(index).map_or(self.chars.len(), |next| next - 1);
        Some(self.text(start, end))
    }
}

/// The errors of one expression, in upstream's words.
#[derive(Default)]
pub(crate) struct Errors {
    reported: Vec<(Location, String)>,
    count: usize,
}

impl Errors {
    pub(crate) fn report(&mut self, at: Location, message: impl Into<String>) {
        self.count += 1;
        if self.count <= MAX_ERRORS {
            self.reported.push((at, message.into()));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What cel-go prints: every error with its line and a caret, in the order of the text.
    pub(crate) fn display(mut self, source: &Source) -> String {
        self.reported.sort_by_key(|(at, _)| *at);
        let mut lines: Vec<String> =
            self.reported.iter().map(|(at, message)| display_one(source, *at, message)).collect();
        if self.count > MAX_ERRORS {
            lines.push(format!("{} more errors were truncated", self.count - MAX_ERRORS));
        }
        lines.join("\n")
    }
}

fn display_one(source: &Source, at: Location, message: &str) -> String {
    let mut text = format!("ERROR: <input>:{}:{}: {message}", at.line, at.column + 1);
    let Some(line) = source.line(at.line).filter(|line| line.len() <= MAX_SNIPPET) else {
        return text;
    };
    let line = line.replace('\t', " ");
    text.push_str("\n | ");
    text.push_str(&line);
    text.push_str("\n | ");
    let mut rest = line.chars();
    for c in rest.by_ref().take(usize::try_from(at.column).unwrap_or(0)) {
        text.push(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
    }
    let is_wide = rest.next().is_some_and(|c| c.len_utf8() > 1);
    text.push(if is_wide { '\u{ff3e}' } else { '^' });
    text
}
