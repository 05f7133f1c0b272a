//! Answers that are shown again when they change.

use std::io::{self, IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use supercargo_client::api::full_text;
use supercargo_client::host::Host;

use super::question::{Answer, Format, NO_ANSWER, NoAnswer};
use crate::cli::output;
use supercargo_report::words::printable;

/// The time between two answers.
pub(super) const PERIOD: Duration = Duration::from_secs(2);
/// Moves the cursor to the start of the screen.
const HOME: &str = "\x1b[H";
/// Clears the rest of the line, and begins the next one.
const END_OF_LINE: &str = "\x1b[K\n";
/// Clears the rest of the screen.
const CLEAR_BELOW: &str = "\x1b[J";
/// A screen of unknown size.
const USUAL: Size = Size { lines: 24, columns: 80 };

/// The size of a terminal. It has at least one column.
#[derive(Clone, Copy)]
struct Size {
    lines: usize,
    columns: usize,
}

/// What is written, and where.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    Nothing,
    Output(String),
    Error(String),
}

/// Shows the last answer: a terminal is drawn again, and other output goes on.
pub(super) struct Screen {
    is_terminal: bool,
    format: Format,
    last: Option<(String, u8)>,
}

impl Screen {
    pub(super) fn new(format: Format) -> Self {
        let is_for_people = matches!(format, Format::Table | Format::Wide);
        Self { is_terminal: stdout().is_terminal() && is_for_people, format, last: None }
    }

    /// The exit code of the last answer.
    pub(super) fn code(&self) -> ExitCode {
        // A signal may arrive before the first one.
        ExitCode::from(self.last.as_ref().map_or(NO_ANSWER, |(_, code)| *code))
    }

    /// Leaves the last answer for the shell, which begins a line.
    pub(super) fn end(&self) -> Result<()> {
        if self.is_terminal && self.last.is_some() { output::print(b"\n") } else { Ok(()) }
    }

    /// Shows an answer. Returns whether it is the last one.
    pub(super) fn show(&mut self, answer: Result<Answer, NoAnswer>) -> Result<bool> {
        let (written, is_last) = self.next(answer, size(), &now());
        match written {
            Written::Nothing => {}
            Written::Output(text) => output::write_text(&mut stdout(), text.as_bytes())?,
            Written::Error(line) => output::print_error(&line),
        }
        Ok(is_last)
    }

    /// What to write for an answer, and whether it is the last one.
    fn next(&mut self, answer: Result<Answer, NoAnswer>, size: Size, now: &str) -> (Written, bool) {
        let is_first = self.last.is_none();
        let (text, code, is_last) = match answer {
            Ok(Answer { text, is_good, is_settled }) => (text, u8::from(!is_good), is_settled),
            // What is wrong with the first question stays wrong.
            Err(NoAnswer { error, is_final }) => {
                let line = output::error_line(&printable(&full_text(&*error)));
                (format!("{line}\n"), NO_ANSWER, is_final || is_first)
            }
        };
        let is_error = code == NO_ANSWER;
        let is_new = self.last.as_ref().is_none_or(|(last, _)| *last != text);
        let written = if self.is_terminal && !(is_error && is_first) {
            Written::Output(picture(&text, is_last, size, now))
        } else if !is_new {
            Written::Nothing
        } else if is_error {
            Written::Error(text.trim_end().to_owned())
        } else {
            let before = match self.format {
                _ if is_first => String::new(),
                Format::Table | Format::Wide => format!("\nAt {now}\n"),
                Format::Yaml => "---\n".to_owned(),
                Format::Json | Format::Name => String::new(),
            };
            Written::Output(format!("{before}{text}"))
        };
        self.last = Some((text, code));
        (written, is_last)
    }
}

/// The time.
fn now() -> String {
    Host::local().clock.now().wall.to_rfc3339()
}

/// The size of the terminal.
fn size() -> Size {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let (lines, columns) = size.map_or((0, 0), |size| (size.ws_row, size.ws_col));
    let or = |number: u16, usual| if number == 0 { usual } else { number.into() };
    Size { lines: or(lines, USUAL.lines), columns: or(columns, USUAL.columns) }
}

/// A screen with an answer. The last answer is shown as a whole.
fn picture(text: &str, is_last: bool, size: Size, now: &str) -> String {
    // The last two rows are below the answer.
    let mut left = if is_last { usize::MAX } else { size.lines.saturating_sub(2).max(1) };
    let mut picture = HOME.to_owned();
    let mut hidden = 0;
    for line in text.lines() {
        let characters = line.chars().count();
        let rows = characters.div_ceil(size.columns).max(1);
        if hidden > 0 || rows > left {
            hidden += 1;
            continue;
        }
        left -= rows;
        // After a full row, the cursor is still on its last character.
        let is_full = characters > 0 && characters % size.columns == 0;
        picture = picture + line + if is_full { "\n" } else { END_OF_LINE };
    }
    if !is_last {
        let more = if hidden > 0 { format!("{hidden} more lines. ") } else { String::new() };
        let foot = format!("{more}At {now}, every {} s; Ctrl-C ends", PERIOD.as_secs());
        picture += END_OF_LINE;
        picture.extend(foot.chars().take(size.columns - 1));
    }
    picture + CLEAR_BELOW
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    const SMALL: Size = Size { lines: 10, columns: 60 };

    /// The rows that a terminal shows.
    fn rows(picture: &str, columns: usize) -> usize {
        let text = picture.replace("\x1b[H", "").replace("\x1b[K", "").replace("\x1b[J", "");
        text.lines().map(|line| line.chars().count().div_ceil(columns).max(1)).sum()
    }

    #[test]
    fn a_picture_fits_the_screen_and_the_last_answer_is_whole() {
        let lines: Vec<String> = (0..30).map(|i| format!("line {i}")).collect();
        let text = lines.join("\n") + "\n";
        let long = picture(&text, false, SMALL, "12:00:00");
        assert_eq!(rows(&long, SMALL.columns), 10, "{long}");
        let end = "line 7\x1b[K\n\x1b[K\n22 more lines. At 12:00:00, every 2 s; Ctrl-C ends\x1b[J";
        assert!(long.ends_with(end), "{long}");
        let short = picture("a\nb\n", false, Size { lines: 4, ..SMALL }, "12:00:00");
        let expected = "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[K\nAt 12:00:00, every 2 s; Ctrl-C ends\x1b[J";
        assert_eq!(short, expected);
        let last = picture(&text, true, SMALL, "12:00:00");
        assert!(rows(&last, SMALL.columns) == 30 && last.ends_with("line 29\x1b[K\n\x1b[J"), "{last}");
        assert!(rows(&picture("a\nb\n", false, Size { lines: 0, columns: 1 }, ""), 1) <= 3);
    }

    #[test]
    fn long_lines_leave_the_first_one_on_a_narrow_screen() {
        let text = format!("headline\n{}\n", vec!["x".repeat(80); 5].join("\n"));
        for columns in [20, 30, 40, 80] {
            let drawn = picture(&text, false, Size { lines: 10, columns }, "12:00:00");
            assert!(drawn.starts_with("\x1b[Hheadline\x1b[K\n") && rows(&drawn, columns) <= 10, "{drawn}");
            // A full row is not cleared: that would take its last character.
            assert_eq!(drawn.contains("x\x1b[K"), columns == 30, "{drawn}");
        }
    }

    #[test]
    fn answers_and_errors_have_their_streams_and_their_ends() {
        let answer = |text: &str| {
            Ok(Answer { text: format!("{text}\n"), is_good: text == "good", is_settled: text == "good" })
        };
        let error = |is_final| Err(NoAnswer { error: anyhow!("gone\u{1b}"), is_final });
        let output = |text: &str| Written::Output(text.to_owned());
        let gone = || Written::Error("error: gone\u{fffd}".to_owned());
        let drawn = |text: &str, is_last| Written::Output(picture(text, is_last, SMALL, "12:00"));
        let [file, json, yaml] = [Format::Wide, Format::Json, Format::Yaml].map(|format| (false, format));
        let terminal = (true, Format::Table);
        for ((is_terminal, format), answers) in [
            (
                file,
                vec![(answer("bad"), output("bad\n"), false, 1), (answer("bad"), Written::Nothing, false, 1)],
            ),
            (
                file,
                vec![
                    (answer("bad"), output("bad\n"), false, 1),
                    (error(false), gone(), false, 3),
                    (error(false), Written::Nothing, false, 3),
                    (answer("good"), output("\nAt 12:00\ngood\n"), true, 0),
                ],
            ),
            (file, vec![(answer("bad"), output("bad\n"), false, 1), (error(true), gone(), true, 3)]),
            (
                json,
                vec![(answer("bad"), output("bad\n"), false, 1), (answer("good"), output("good\n"), true, 0)],
            ),
            (
                yaml,
                vec![
                    (answer("bad"), output("bad\n"), false, 1),
                    (answer("good"), output("---\ngood\n"), true, 0),
                ],
            ),
            (terminal, vec![(error(false), gone(), true, 3)]),
            (
                terminal,
                vec![
                    (answer("bad"), drawn("bad\n", false), false, 1),
                    (answer("bad"), drawn("bad\n", false), false, 1),
                    (error(false), drawn("error: gone\u{fffd}\n", false), false, 3),
                    (error(true), drawn("error: gone\u{fffd}\n", true), true, 3),
                ],
            ),
        ] {
            let mut screen = Screen { is_terminal, format, last: None };
            for (answer, written, is_last, code) in answers {
                assert_eq!(screen.next(answer, SMALL, "12:00"), (written, is_last));
                assert_eq!(screen.last.as_ref().map(|(_, code)| *code), Some(code));
            }
        }
    }
}
