//! Standard output: a reader that closes the pipe early is not an error.

use std::io::{self, ErrorKind, Write};

use anyhow::{Context as _, Result};

use supercargo_report::words::printable;

/// Writes to standard output.
pub(crate) fn print(text: &[u8]) -> Result<()> {
    tolerate_closed_pipe(write_text(&mut io::stdout(), text))
}

/// Writes a line to standard error. Its reader may be gone.
pub(crate) fn print_error(line: &str) {
    let _ = write_error(&mut io::stderr(), line);
}

/// An error may quote what strangers wrote.
fn write_error(out: &mut dyn Write, line: &str) -> io::Result<()> {
    writeln!(out, "{}", printable(line))
}

/// A failure as every command prints it; clap has the same prefix.
pub(crate) fn error_line(error: &str) -> String {
    format!("error: {error}")
}

pub(crate) const NO_OUTPUT: &str = "cannot write to standard output";

/// Writes a text. A closed pipe is an error, so that the caller stops.
pub(crate) fn write_text(out: &mut dyn Write, text: &[u8]) -> Result<()> {
    out.write_all(text).and_then(|()| out.flush()).context(NO_OUTPUT)
}

/// Drops the error of a closed pipe.
pub(crate) fn tolerate_closed_pipe(result: Result<()>) -> Result<()> {
    let is_closed = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    result.or_else(|error| if error.downcast_ref().is_some_and(is_closed) { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn errors_do_not_control_the_terminal() {
        let mut written = Vec::new();
        write_error(&mut written, "it has \u{1b}]0;x\u{7}").unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "it has \u{fffd}]0;x\u{fffd}\n");
    }

    #[test]
    fn only_a_closed_pipe_is_tolerated() {
        let written = |kind| tolerate_closed_pipe(write_text(&mut Failing(kind), b"text"));
        written(ErrorKind::BrokenPipe).unwrap();
        assert_eq!(written(ErrorKind::StorageFull).unwrap_err().to_string(), NO_OUTPUT);
    }
}
