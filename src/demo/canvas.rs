//! A picture made of characters, and how a terminal is brought from one to the next.

use std::fmt::Write as _;

/// What a cell looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    /// As the terminal has it.
    #[default]
    Plain,
    /// What stands back.
    Dim,
    /// What stands out.
    Bold,
    /// What went well, and CPU.
    Green,
    /// What waits.
    Yellow,
    /// Memory.
    Blue,
    /// What is full.
    Red,
    /// What happened to the cluster.
    Cyan,
}

impl Style {
    /// The parameters of the terminal's SGR sequence.
    fn codes(self, colour: bool) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Dim => "0;2",
            Self::Bold => "0;1",
            _ if !colour => "0",
            Self::Green => "0;32",
            Self::Yellow => "0;33",
            Self::Blue => "0;34",
            Self::Red => "0;31",
            Self::Cyan => "0;36",
        }
    }
}

/// What a terminal can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// Whether there may be colour.
    pub(crate) colour: bool,
    /// Whether it shows more than ASCII.
    pub(crate) unicode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    glyph: char,
    style: Style,
}

const BLANK: Cell = Cell { glyph: ' ', style: Style::Plain };

/// A grid of cells. What is put outside of it is not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    cells: Vec<Cell>,
}

impl Canvas {
    /// An empty one.
    pub(crate) fn new(width: usize, height: usize) -> Self {
        Self { width, height, cells: vec![BLANK; width * height] }
    }

    /// Its columns.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Its rows.
    pub(crate) fn height(&self) -> usize {
        self.height
    }

    /// Writes from this cell on to the right, and returns the column after the text.
    pub(crate) fn put(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize {
        let mut at = x;
        for glyph in text.chars().map(of_one_column) {
            if at < self.width && y < self.height {
                self.cells[y * self.width + at] = Cell { glyph, style };
            }
            at += 1;
        }
        at
    }

    /// The same within so many columns; what does not fit ends in an ellipsis.
    pub(crate) fn put_within(
        &mut self,
        x: usize,
        y: usize,
        columns: usize,
        text: &str,
        style: Style,
    ) -> usize {
        self.put(x, y, &shortened(text, columns), style)
    }

    /// A row without the blanks at its end.
    #[cfg(test)]
    pub(crate) fn row(&self, y: usize) -> String {
        let row = &self.cells[y * self.width..(y + 1) * self.width];
        row.iter().map(|cell| cell.glyph).collect::<String>().trim_end().to_owned()
    }

    /// What a cell looks like.
    #[cfg(test)]
    pub(crate) fn style(&self, x: usize, y: usize) -> Style {
        self.cells[y * self.width + x].style
    }

    /// The whole picture, for tests.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        (0..self.height).map(|y| self.row(y) + "\n").collect()
    }

    /// What to send to a terminal that shows `before`, which is of the same size, so that it shows
    /// this. Nothing for nothing new.
    pub(crate) fn update(&self, before: &Self, capabilities: Capabilities) -> String {
        let mut out = String::new();
        let mut style = None;
        for y in 0..self.height {
            // Where the terminal would write next.
            let mut cursor = None;
            for x in 0..self.width {
                let cell = self.cells[y * self.width + x];
                if before.cells.get(y * self.width + x) == Some(&cell) {
                    continue;
                }
                if cursor != Some(x) {
                    let _ = write!(out, "\x1b[{};{}H", y + 1, x + 1);
                }
                if style != Some(cell.style) {
                    let _ = write!(out, "\x1b[{}m", cell.style.codes(capabilities.colour));
                    style = Some(cell.style);
                }
                out.push(if capabilities.unicode { cell.glyph } else { ascii(cell.glyph) });
                cursor = Some(x + 1);
            }
        }
        if style.is_some() {
            out.push_str("\x1b[0m");
        }
        out
    }
}

/// A character that fills one column: texts come from objects, and may have anything in them.
fn of_one_column(glyph: char) -> char {
    match glyph {
        ' '..='~' | '█' | '▉' | '▊' | '▋' | '▌' | '▍' | '▎' | '▏' | '·' | '…' | '→' | '─' => {
            glyph
        }
        _ => '?',
    }
}

/// The nearest in ASCII.
fn ascii(glyph: char) -> char {
    match glyph {
        '█' | '▉' | '▊' | '▋' | '▌' => '#',
        '▍' | '▎' | '▏' | '─' => '-',
        '·' | '…' => '.',
        '→' => '>',
        glyph => glyph,
    }
}

/// At most so many characters of a text; an ellipsis stands for the rest.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    if columns > 0 {
        short.push('…');
    }
    short
}

/// A bar that is filled to this share, in eighths of a column. A share of more than nothing is
/// seen.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [char; 8] = ['·', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let all = columns * 8;
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let mut filled = (share * all as f64).round() as usize;
    if share > 0.0 && all > 0 {
        filled = filled.max(1);
    }
    (0..columns)
        .map(|column| match filled.saturating_sub(column * 8) {
            0 => '·',
            eighths if eighths >= 8 => '█',
            eighths => EIGHTHS[eighths],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FULL: Capabilities = Capabilities { colour: true, unicode: true };

    #[test]
    fn what_is_put_outside_is_not_seen() {
        let mut canvas = Canvas::new(4, 2);
        assert_eq!(canvas.put(2, 0, "abc", Style::Plain), 5);
        canvas.put(0, 7, "nowhere", Style::Plain);
        canvas.put(9, 1, "nowhere", Style::Plain);
        assert_eq!(canvas.text(), "  ab\n\n");
        Canvas::new(0, 0).put(0, 0, "x", Style::Bold);
    }

    #[test]
    fn only_what_changed_is_sent() {
        let before = Canvas::new(10, 2);
        let mut after = before.clone();
        assert_eq!(after.update(&before, FULL), "");
        after.put(3, 1, "ok", Style::Green);
        assert_eq!(after.update(&before, FULL), "\x1b[2;4H\x1b[0;32mok\x1b[0m");
        let no_colour = Capabilities { colour: false, unicode: false };
        assert_eq!(after.update(&before, no_colour), "\x1b[2;4H\x1b[0mok\x1b[0m");
    }

    #[test]
    fn a_text_from_outside_cannot_reach_the_terminal() {
        let mut canvas = Canvas::new(12, 1);
        canvas.put(0, 0, "a\x1b[2Jb\n日\u{301}", Style::Plain);
        assert_eq!(canvas.row(0), "a?[2Jb???");
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        let cases =
            [(0.0, "····"), (0.001, "▏···"), (0.5, "██··"), (0.53, "██▏·"), (1.0, "████"), (7.0, "████")];
        for (share, expected) in cases {
            assert_eq!(bar(share, 4), expected, "{share}");
        }
        assert_eq!(bar(f64::NAN, 2), "··");
        assert_eq!(bar(1.0, 0), "");
    }

    #[test]
    fn a_terminal_without_unicode_gets_ascii() {
        let mut canvas = Canvas::new(8, 1);
        canvas.put(0, 0, &bar(0.53, 4), Style::Plain);
        canvas.put(4, 0, "→…", Style::Plain);
        let sent = canvas.update(&Canvas::new(8, 1), Capabilities { colour: true, unicode: false });
        assert!(sent.is_ascii() && sent.contains("##-.>."), "{sent:?}");
    }

    /// A terminal that knows what a canvas sends.
    fn shown(canvas: &Canvas, sent: &str) -> Canvas {
        let mut screen = canvas.clone();
        let (mut x, mut y) = (0, 0);
        let mut rest = sent;
        while let Some(glyph) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let end = sequence.find(['H', 'm']).unwrap();
                let numbers: Vec<usize> = sequence[..end].split(';').map(|n| n.parse().unwrap()).collect();
                if sequence[end..].starts_with('H') {
                    (y, x) = (numbers[0] - 1, numbers[1] - 1);
                }
                rest = &sequence[end + 1..];
            } else {
                x = screen.put(x, y, glyph.encode_utf8(&mut [0; 4]), Style::Plain);
                rest = &rest[glyph.len_utf8()..];
            }
        }
        screen
    }

    proptest! {
        #[test]
        fn a_terminal_that_is_updated_shows_the_new_picture(
            width in 1_usize..20, height in 1_usize..6,
            old in proptest::collection::vec((0_usize..20, 0_usize..6, ".{0,8}"), 0..6),
            new in proptest::collection::vec((0_usize..20, 0_usize..6, ".{0,8}"), 0..6),
        ) {
            let paint = |texts: &[(usize, usize, String)]| {
                let mut canvas = Canvas::new(width, height);
                for (x, y, text) in texts {
                    canvas.put(*x, *y, text, Style::Plain);
                }
                canvas
            };
            let (before, after) = (paint(&old), paint(&new));
            prop_assert_eq!(shown(&before, &after.update(&before, FULL)).text(), after.text());
        }
    }
}
