//! A picture of characters, and the terminal output that updates one picture to the next.

use std::fmt::Write as _;

/// Style of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    /// Default of the terminal.
    #[default]
    Plain,
    /// Less important text.
    Dim,
    /// Titles.
    Bold,
    /// Bound pods and CPU.
    Green,
    /// Waiting pods.
    Yellow,
    /// Memory.
    Blue,
    /// Full resources.
    Red,
    /// Gated pods, devices and notes.
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

/// Capabilities of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// Whether colours are enabled.
    pub(crate) colour: bool,
    /// Whether it displays Unicode.
    pub(crate) unicode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    glyph: char,
    style: Style,
}

const BLANK: Cell = Cell { glyph: ' ', style: Style::Plain };

/// A grid of cells. Text outside of it is clipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    cells: Vec<Cell>,
}

impl Canvas {
    /// An empty canvas.
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

    /// Writes text to the right from this cell; returns the column after the text.
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

    /// Like [`put`](Self::put), but truncates the text to `columns`.
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

    /// A row without trailing blanks.
    #[cfg(test)]
    pub(crate) fn row(&self, y: usize) -> String {
        let row = &self.cells[y * self.width..(y + 1) * self.width];
        row.iter().map(|cell| cell.glyph).collect::<String>().trim_end().to_owned()
    }

    /// Style of a cell.
    #[cfg(test)]
    pub(crate) fn style(&self, x: usize, y: usize) -> Style {
        self.cells[y * self.width + x].style
    }

    /// The whole picture as text.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        (0..self.height).map(|y| self.row(y) + "\n").collect()
    }

    /// The output that turns a terminal which shows `before`, of the same size, into this picture.
    /// Empty without changes.
    pub(crate) fn update(&self, before: &Self, capabilities: Capabilities) -> String {
        let mut out = String::new();
        let mut style = None;
        for y in 0..self.height {
            // Position of the terminal's cursor.
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

/// Replaces characters that may not fill exactly one column: texts of objects are untrusted.
fn of_one_column(glyph: char) -> char {
    match glyph {
        ' '..='~' | '█' | '▉' | '▊' | '▋' | '▌' | '▍' | '▎' | '▏' | '·' | '…' | '→' | '─' => {
            glyph
        }
        _ => '?',
    }
}

/// The closest ASCII character.
fn ascii(glyph: char) -> char {
    match glyph {
        '█' | '▉' | '▊' | '▋' | '▌' => '#',
        '▍' | '▎' | '▏' | '─' => '-',
        '·' | '…' => '.',
        '→' => '>',
        glyph => glyph,
    }
}

/// Truncates a text to `columns` characters, with an ellipsis.
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

/// A bar filled in eighths of a column. A share above 0 is always visible.
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
    fn text_outside_the_canvas_is_clipped() {
        let mut canvas = Canvas::new(4, 2);
        assert_eq!(canvas.put(2, 0, "abc", Style::Plain), 5);
        canvas.put(0, 7, "nowhere", Style::Plain);
        canvas.put(9, 1, "nowhere", Style::Plain);
        assert_eq!(canvas.text(), "  ab\n\n");
        Canvas::new(0, 0).put(0, 0, "x", Style::Bold);
    }

    #[test]
    fn update_contains_only_changed_cells() {
        let before = Canvas::new(10, 2);
        let mut after = before.clone();
        assert_eq!(after.update(&before, FULL), "");
        after.put(3, 1, "ok", Style::Green);
        assert_eq!(after.update(&before, FULL), "\x1b[2;4H\x1b[0;32mok\x1b[0m");
        let no_colour = Capabilities { colour: false, unicode: false };
        assert_eq!(after.update(&before, no_colour), "\x1b[2;4H\x1b[0mok\x1b[0m");
    }

    #[test]
    fn control_characters_are_replaced() {
        let mut canvas = Canvas::new(12, 1);
        canvas.put(0, 0, "a\x1b[2Jb\n日\u{301}", Style::Plain);
        assert_eq!(canvas.row(0), "a?[2Jb???");
    }

    #[test]
    fn bar_length_is_proportional() {
        let cases =
            [(0.0, "····"), (0.001, "▏···"), (0.5, "██··"), (0.53, "██▏·"), (1.0, "████"), (7.0, "████")];
        for (share, expected) in cases {
            assert_eq!(bar(share, 4), expected, "{share}");
        }
        assert_eq!(bar(f64::NAN, 2), "··");
        assert_eq!(bar(1.0, 0), "");
    }

    #[test]
    fn terminal_without_unicode_gets_ascii() {
        let mut canvas = Canvas::new(8, 1);
        canvas.put(0, 0, &bar(0.53, 4), Style::Plain);
        canvas.put(4, 0, "→…", Style::Plain);
        let sent = canvas.update(&Canvas::new(8, 1), Capabilities { colour: true, unicode: false });
        assert!(sent.is_ascii() && sent.contains("##-.>."), "{sent:?}");
    }

    /// Emulates the escape sequences that a canvas sends.
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
        fn updated_terminal_shows_the_new_picture(
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
