//! Free ports.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, Result};

/// A TCP port on loopback that was free a moment ago. The caller must retry if it is taken.
pub(crate) fn free() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a loopback port")?;
    Ok(listener.local_addr().context("read the port the system gave")?.port())
}

/// Retries `start` a few times while another process has taken its port.
pub(crate) fn retry_while_taken<T>(mut start: impl FnMut() -> Result<T>) -> Result<T> {
    const ATTEMPTS: usize = 5;
    let mut attempt = 1;
    loop {
        match start() {
            Err(error) if attempt < ATTEMPTS && format!("{error:#}").contains("address already in use") => {
                attempt += 1;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Result, bail, ensure};

    use super::retry_while_taken;

    #[test]
    fn only_a_taken_port_is_retried() {
        let mut calls = 0;
        let port = retry_while_taken(|| {
            calls += 1;
            ensure!(calls == 3, "listen tcp: bind: address already in use");
            Ok(calls)
        });
        assert_eq!(port.unwrap(), 3);
        let result: Result<()> = retry_while_taken(|| {
            calls += 1;
            bail!("no such file")
        });
        assert!(result.is_err());
        assert_eq!(calls, 4);
    }
}
