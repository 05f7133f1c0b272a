//! Full-screen output. The terminal is restored however the demo ends.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::Once;

use parking_lot::Mutex;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetwinsize, tcsetattr,
};
use tokio_util::sync::CancellationToken;

use super::canvas::{Canvas, Capabilities};

/// Switches to the alternate screen, hides the cursor, disables wrapping (so that the last cell
/// does not scroll), clears.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// Reverts [`ENTER`].
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Size of a terminal that does not report it.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// Original modes of the terminal, while a [`Screen`] is open.
static ORIGINAL: Mutex<Option<Termios>> = Mutex::new(None);
static PANIC_HOOK: Once = Once::new();

/// A picture on the terminal. The terminal is restored on drop, and before a panic message is
/// printed.
pub(crate) struct Screen {
    shown: Canvas,
    capabilities: Capabilities,
}

impl Screen {
    /// Switches the terminal to full-screen mode.
    pub(crate) fn open(capabilities: Capabilities) -> io::Result<Self> {
        PANIC_HOOK.call_once(|| {
            let print_panic = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                print_panic(panic);
            }));
        });
        let original = tcgetattr(io::stdout())?;
        let mut modes = original.clone();
        // No echo. Ctrl-C still sends a signal; Ctrl-Z, Ctrl-\ and Ctrl-S are disabled, as they
        // would not restore the terminal.
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        modes.input_modes.remove(InputModes::IXON);
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        modes.special_codes[SpecialCodeIndex::VQUIT] = 0;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        *ORIGINAL.lock() = Some(original);
        let screen = Self { shown: Canvas::new(0, 0), capabilities };
        tcsetattr(io::stdout(), OptionalActions::Now, &modes)?;
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws a picture, and sends the changes to the terminal.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Canvas)) -> io::Result<()> {
        // A panic of another thread has restored the terminal.
        if ORIGINAL.lock().is_none() {
            return Ok(());
        }
        let (width, height) = size();
        let mut picture = Canvas::new(width, height);
        let mut out = String::new();
        if (self.shown.width(), self.shown.height()) != (width, height) {
            self.shown = picture.clone();
            out.push_str("\x1b[0m\x1b[2J");
        }
        draw(&mut picture);
        out.push_str(&picture.update(&self.shown, self.capabilities));
        self.shown = picture;
        if out.is_empty() { Ok(()) } else { write(&out) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Restores the terminal, if a screen is open.
fn leave() {
    if let Some(original) = ORIGINAL.lock().take() {
        // Errors are ignored: the terminal may be gone.
        let _ = write(LEAVE);
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        let _ = tcsetattr(io::stdout(), OptionalActions::Now, &original);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => DEFAULT_SIZE,
    }
}

/// Stops the demo when `q` is typed while a screen is open.
pub(crate) fn quit_on_q(stop: CancellationToken) {
    if !io::stdin().is_terminal() {
        return;
    }
    // A blocking read cannot be cancelled. The process exits without waiting for this thread.
    let reader = move || {
        let mut key = [0];
        while let Ok(1) = io::stdin().lock().read(&mut key) {
            if matches!(key[0], b'q' | b'Q') && ORIGINAL.lock().is_some() {
                return stop.cancel();
            }
        }
    };
    // If the thread cannot start, Ctrl-C still works.
    let _ = std::thread::Builder::new().name("keys".into()).spawn(reader);
}

/// Capabilities of the terminal; `None` for plain output.
pub(crate) fn capabilities(
    is_terminal: bool,
    environment: impl Fn(&str) -> Option<String>,
) -> Option<Capabilities> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let capable = set("TERM").is_some_and(|term| term != "dumb");
    if !is_terminal || !capable {
        return None;
    }
    // As in setlocale, the first variable that is set takes precedence. The default is UTF-8.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| set(name)).unwrap_or("UTF-8".into());
    let unicode = locale.to_ascii_lowercase().replace('-', "").contains("utf8");
    Some(Capabilities { colour: set("NO_COLOR").is_none(), unicode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_follow_from_the_environment() {
        let of = |is_terminal, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            capabilities(is_terminal, find).map(|capabilities| (capabilities.colour, capabilities.unicode))
        };
        let xterm = ("TERM", "xterm-256color");
        assert_eq!(of(true, &[xterm]), Some((true, true)));
        assert_eq!(of(true, &[xterm, ("NO_COLOR", "1")]), Some((false, true)));
        assert_eq!(of(true, &[xterm, ("NO_COLOR", "")]), Some((true, true)));
        assert_eq!(of(true, &[xterm, ("LANG", "C")]), Some((true, false)));
        assert_eq!(of(true, &[xterm, ("LC_ALL", "C.UTF-8"), ("LANG", "C")]), Some((true, true)));
        assert_eq!(of(true, &[xterm, ("LANG", "de_DE.utf8")]), Some((true, true)));
        assert_eq!(of(true, &[("TERM", "dumb")]), None);
        assert_eq!(of(true, &[]), None);
        assert_eq!(of(false, &[xterm]), None);
    }
}
