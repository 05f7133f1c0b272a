//! The terminal while a picture is on it. However the demo ends, it is left as it was found.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::Once;

use parking_lot::Mutex;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetwinsize, tcsetattr,
};
use tokio_util::sync::CancellationToken;

use super::canvas::{Canvas, Capabilities};

/// The other screen, no cursor, no wrapping (so that the last cell does not scroll), empty.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// All of that undone.
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// A terminal that does not say how large it is.
const USUAL: (usize, usize) = (80, 24);

/// How the terminal was, while a picture is on it.
static FOUND: Mutex<Option<Termios>> = Mutex::new(None);
static PANICS: Once = Once::new();

/// A picture on the terminal. The terminal is as before when this is dropped, and before a panic is
/// told.
pub(crate) struct Screen {
    shown: Canvas,
    capabilities: Capabilities,
}

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn open(capabilities: Capabilities) -> io::Result<Self> {
        PANICS.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                tell(panic);
            }));
        });
        let found = tcgetattr(io::stdout())?;
        let mut modes = found.clone();
        // What is typed does not show. Ctrl-C is a signal still; Ctrl-Z, Ctrl-\ and Ctrl-S would
        // leave a mess behind.
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        modes.input_modes.remove(InputModes::IXON);
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        modes.special_codes[SpecialCodeIndex::VQUIT] = 0;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        *FOUND.lock() = Some(found);
        let screen = Self { shown: Canvas::new(0, 0), capabilities };
        tcsetattr(io::stdout(), OptionalActions::Now, &modes)?;
        write(ENTER)?;
        Ok(screen)
    }

    /// Shows what is drawn.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Canvas)) -> io::Result<()> {
        // A panic elsewhere has given the terminal back.
        if FOUND.lock().is_none() {
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

/// Gives the terminal back, if it was taken over.
fn leave() {
    if let Some(found) = FOUND.lock().take() {
        // The terminal may be gone; there is nothing to be done about it.
        let _ = write(LEAVE);
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        let _ = tcsetattr(io::stdout(), OptionalActions::Now, &found);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Columns and rows of the terminal that standard output is.
pub(crate) fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

/// Ends the demo when somebody types `q` while there is a picture.
pub(crate) fn quit_on_q(stop: CancellationToken) {
    if !io::stdin().is_terminal() {
        return;
    }
    // A thread of its own: reading cannot be called off, and the process ends without waiting for
    // it.
    let reader = move || {
        let mut key = [0];
        while let Ok(1) = io::stdin().lock().read(&mut key) {
            if matches!(key[0], b'q' | b'Q') && FOUND.lock().is_some() {
                return stop.cancel();
            }
        }
    };
    // Without it there is still Ctrl-C.
    let _ = std::thread::Builder::new().name("keys".into()).spawn(reader);
}

/// How to show things here: as a picture if something is returned, else as lines.
pub(crate) fn capabilities(
    is_terminal: bool,
    environment: impl Fn(&str) -> Option<String>,
) -> Option<Capabilities> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let capable = set("TERM").is_some_and(|term| term != "dumb");
    if !is_terminal || !capable {
        return None;
    }
    // The first that is set decides, as in setlocale. Where none is, terminals are modern more
    // often than not.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| set(name)).unwrap_or("UTF-8".into());
    let unicode = locale.to_ascii_lowercase().replace('-', "").contains("utf8");
    Some(Capabilities { colour: set("NO_COLOR").is_none(), unicode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_what_the_terminal_can_do() {
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
