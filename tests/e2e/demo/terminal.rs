//! A pseudo-terminal for the demo, with enough of an emulator to read the screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(40);

/// A process on its own terminal. It ends with this value.
pub(super) struct Terminal {
    master: File,
    child: Child,
    sent: Arc<Mutex<Vec<u8>>>,
    size: (usize, usize),
    /// The initial input modes.
    found: LocalModes,
    /// The length of the output when the terminal got its size.
    since: usize,
}

impl Terminal {
    pub(super) fn start(columns: u16, rows: u16, args: &[&str]) -> Self {
        Self::start_with(columns, rows, args, &[])
    }

    /// Starts it with these environment variables.
    pub(super) fn start_with(columns: u16, rows: u16, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave: OwnedFd =
            open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&master, winsize(columns, rows)).unwrap();
        let found = tcgetattr(&master).unwrap().local_modes;
        let another = || slave.try_clone().unwrap();
        // `setsid --ctty` makes the terminal the controlling one, so that Ctrl-C reaches the
        // program, and then becomes the program.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_supercargo")).args(args);
        for name in ["SUPERCARGO_LOG", "NO_COLOR", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8").envs(variables.iter().copied());
        let child = command.stdin(another()).stdout(another()).stderr(another()).spawn().unwrap();
        let (master, sent) = (File::from(master), Arc::new(Mutex::new(Vec::new())));
        let (mut reader, received) = (master.try_clone().unwrap(), Arc::clone(&sent));
        // Ends with an error when the other side is closed.
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                received.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Self { master, child, sent, found, size: (columns.into(), rows.into()), since: 0 }
    }

    pub(super) fn child(&self) -> &Child {
        &self.child
    }

    pub(super) fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        self.since = self.sent.lock().unwrap().len();
        self.size = (columns.into(), rows.into());
        tcsetwinsize(&self.master, winsize(columns, rows)).unwrap();
    }

    /// Whether the input modes are the initial ones.
    pub(super) fn is_as_found(&self) -> bool {
        tcgetattr(&self.master).unwrap().local_modes == self.found
    }

    /// All output so far.
    pub(super) fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }

    /// Whether the program uses the alternate screen.
    pub(super) fn is_alternate(&self) -> bool {
        self.last_of("\x1b[?1049h") > self.last_of("\x1b[?1049l")
    }

    pub(super) fn shows_cursor(&self) -> bool {
        self.last_of("\x1b[?25h") >= self.last_of("\x1b[?25l")
    }

    fn last_of(&self, sequence: &str) -> Option<usize> {
        self.sent().rfind(sequence)
    }

    /// The current screen.
    pub(super) fn screen(&self) -> Screen {
        let sent = self.sent.lock().unwrap();
        let mut screen = Screen::new(self.size);
        screen.take(&String::from_utf8_lossy(&sent[self.since..]));
        screen
    }

    pub(super) fn wait_for(&mut self, what: &str, is_so: impl Fn(&Screen) -> bool) {
        let probe = || is_so(&self.screen()).then_some(());
        eventually(what, PATIENCE, probe, || self.screen().text());
    }

    /// Waits for the end of the program and for all of its output.
    pub(super) fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let status = eventually(
            "the demo ends",
            PATIENCE,
            || child.try_wait().unwrap(),
            || String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned(),
        );
        // The reader thread keeps the other half open.
        eventually(
            "all is read",
            PATIENCE,
            || (Arc::strong_count(&self.sent) == 1).then_some(()),
            String::new,
        );
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A glyph, and the last number of the sequence that has set its style.
pub(super) type Cell = (char, u8);

/// The cells of a terminal that supports the sequences that the demo uses.
#[derive(Clone, PartialEq)]
pub(super) struct Screen {
    rows: Vec<Vec<Cell>>,
}

impl Screen {
    pub(super) fn new((columns, rows): (usize, usize)) -> Self {
        Self { rows: vec![vec![(' ', 0); columns]; rows] }
    }

    pub(super) fn row(&self, y: usize) -> String {
        self.rows[y].iter().map(|(glyph, _)| glyph).collect::<String>().trim_end().to_owned()
    }

    pub(super) fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    pub(super) fn text(&self) -> String {
        (0..self.rows.len()).map(|y| self.row(y) + "\n").collect()
    }

    pub(super) fn take(&mut self, sent: &str) {
        let (mut x, mut y, mut style) = (0, 0, 0);
        let mut rest = sent;
        while let Some(glyph) = rest.chars().next() {
            rest = &rest[glyph.len_utf8()..];
            let Some(sequence) = rest.strip_prefix('[').filter(|_| glyph == '\x1b') else {
                if let Some(cell) = self.rows.get_mut(y).and_then(|row| row.get_mut(x)) {
                    *cell = (glyph, style);
                }
                x += 1;
                continue;
            };
            // The last sequence may be incomplete.
            let Some(end) = sequence.find(|c: char| c.is_ascii_alphabetic()) else { return };
            let numbers = || sequence[..end].split(';').map(|number| number.parse::<usize>().unwrap());
            match &sequence[end..=end] {
                "H" => {
                    let at: Vec<usize> = numbers().collect();
                    (y, x) = (at[0] - 1, at[1] - 1);
                }
                "J" => self.rows.iter_mut().for_each(|row| row.fill((' ', 0))),
                "m" => style = numbers().next_back().unwrap() as u8,
                _ => {}
            }
            rest = &sequence[end + 1..];
        }
    }
}
