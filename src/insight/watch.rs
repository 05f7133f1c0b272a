//! Answers that are shown again when they change.

use std::io::{self, IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use supercargo_client::api::full_text;
use supercargo_client::host::Host;

use super::question::{Answer, NO_ANSWER};
use crate::cli::output;

/// The time between two answers.
pub(super) const PERIOD: Duration = Duration::from_secs(2);
/// Moves the cursor to the start of the screen, and clears it from there.
const CLEAR: &str = "\x1b[H\x1b[J";
/// The lines of a screen of unknown size.
const USUAL_LINES: usize = 24;

/// Shows the last answer: a terminal is drawn again, and other output goes on.
pub(super) struct Screen {
    is_terminal: bool,
    is_json: bool,
    last: Option<(String, u8)>,
}

impl Screen {
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_terminal: stdout().is_terminal() && !is_json, is_json, last: None }
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
    pub(super) fn show(&mut self, answer: Result<Answer>) -> Result<bool> {
        let is_first = self.last.is_none();
        let (text, code, is_last) = match answer {
            Ok(Answer { text, is_good, is_settled }) => (text, u8::from(!is_good), is_settled),
            // What is wrong with the first question stays wrong.
            Err(error) => (format!("{}\n", output::error_line(&full_text(&*error))), NO_ANSWER, is_first),
        };
        let is_new = self.last.as_ref().is_none_or(|(last, _)| *last != text);
        if code == NO_ANSWER && (is_first || !self.is_terminal) {
            if is_new {
                output::print_error(text.trim_end());
            }
        } else if self.is_terminal {
            output::write_text(&mut stdout(), picture(&text, is_last, lines(), &now()).as_bytes())?;
        } else if is_new {
            let time = if is_first || self.is_json { String::new() } else { format!("\nAt {}\n", now()) };
            output::write_text(&mut stdout(), format!("{time}{text}").as_bytes())?;
        }
        self.last = Some((text, code));
        Ok(is_last)
    }
}

/// The time.
fn now() -> String {
    Host::local().clock.now().wall.to_rfc3339()
}

/// The lines of the terminal.
fn lines() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(USUAL_LINES, |size| match size.ws_row {
        0 => USUAL_LINES,
        rows => rows.into(),
    })
}

/// A screen with an answer. The last answer is shown as a whole.
fn picture(text: &str, is_last: bool, lines: usize, now: &str) -> String {
    if is_last {
        return format!("{CLEAR}{text}");
    }
    let all = text.lines().count();
    // The last two lines are below the answer.
    let shown = lines.saturating_sub(2).max(1);
    let foot = format!("At {now}, every {} s; Ctrl-C ends", PERIOD.as_secs());
    if all <= shown {
        return format!("{CLEAR}{text}\n{foot}");
    }
    let cut: Vec<&str> = text.lines().take(shown).collect();
    format!("{CLEAR}{}\n\n{} more lines. {foot}", cut.join("\n"), all - shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_fits_the_screen_and_the_last_answer_is_whole() {
        let lines: Vec<String> = (0..30).map(|i| format!("line {i}")).collect();
        let text = lines.join("\n") + "\n";
        let long = picture(&text, false, 10, "12:00:00");
        assert_eq!(long.lines().count(), 10, "{long}");
        assert!(long.ends_with("line 7\n\n22 more lines. At 12:00:00, every 2 s; Ctrl-C ends"), "{long}");
        let short = picture("a\nb\n", false, 4, "12:00:00");
        assert_eq!(short, "\x1b[H\x1b[Ja\nb\n\nAt 12:00:00, every 2 s; Ctrl-C ends");
        assert_eq!(picture(&text, true, 10, "12:00:00"), format!("{CLEAR}{text}"));
        assert!(picture("a\nb\n", false, 0, "").lines().count() <= 3);
    }
}
