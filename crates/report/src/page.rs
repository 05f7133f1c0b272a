//! What an answer for people is written on.

use std::fmt;

use crate::clip;
use crate::words::{printable, wrap};

/// How much an answer for people shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Lines of 80 columns, and the first rows of long lists.
    Usual,
    /// Lines of 120 columns, all rows, and whole names.
    Wide,
}

/// The columns of [`Width::Usual`].
pub(crate) const COLUMNS: usize = 80;

/// A text that is being written.
pub struct Page {
    text: String,
    width: Width,
}

impl fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.write_str(text)
    }
}

/// What is written, without what moves a terminal's cursor.
pub fn page(width: Width, write: impl FnOnce(&mut Page) -> fmt::Result) -> String {
    let mut page = Page { text: String::new(), width };
    // Writing to a string cannot fail.
    let _ = write(&mut page);
    printable(&page.text)
}

impl Page {
    pub(crate) fn is_wide(&self) -> bool {
        self.width == Width::Wide
    }

    pub(crate) fn columns(&self) -> usize {
        if self.is_wide() { 120 } else { COLUMNS }
    }

    /// The number of rows that a list of this length has.
    pub fn rows(&self, all: usize) -> usize {
        if self.is_wide() { all } else { all.min(super::MOST_LINES) }
    }

    /// The rows that a list of this length does not have.
    pub fn hidden(&self, all: usize) -> Option<usize> {
        Some(all - self.rows(all)).filter(|hidden| *hidden > 0)
    }

    /// A name in a column of this many columns on 80. The column gets all of the further width.
    pub fn name(&self, name: &str, columns: usize) -> String {
        self.cell(name, columns, columns + self.columns() - COLUMNS)
    }

    fn cell(&self, name: &str, usual: usize, wide: usize) -> String {
        if self.is_wide() {
            // A long name moves the rest of its row.
            format!("{name:<columns$} ", columns = wide - 1)
        } else {
            format!("{:<usual$}", clip(name, usual - 1))
        }
    }

    /// Writes a row about a pod, and two places.
    pub(crate) fn places(&mut self, pod: &str, from: &str, to: &str) -> fmt::Result {
        let (pod, from) = (self.cell(pod, 38, 62), self.cell(from, 21, 37));
        let to = if self.is_wide() { to.to_owned() } else { clip(to, 21) };
        fmt::Write::write_fmt(self, format_args!("{pod}{from}{to}\n"))
    }

    /// Writes a text behind a prefix, wrapped and indented below its start.
    pub fn wrapped(&mut self, prefix: &str, content: &str) -> fmt::Result {
        let indent = prefix.chars().count();
        for (i, line) in wrap(content, self.columns().saturating_sub(indent)).iter().enumerate() {
            let before = if i == 0 { prefix } else { &" ".repeat(indent) };
            self.text.extend([before, line, "\n"]);
        }
        Ok(())
    }
}
