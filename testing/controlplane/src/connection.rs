//! A persistent connection to a server.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// An open connection with or without TLS.
pub(crate) struct Connection(Box<dyn Stream>);

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects. No read may take longer than `patience`.
    pub(crate) fn open(
        address: SocketAddr,
        patience: Duration,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let tcp = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        tcp.set_read_timeout(Some(patience))?;
        tcp.set_nodelay(true)?;
        let Some(config) = tls else { return Ok(Self(Box::new(tcp))) };
        let name = ServerName::from(address.ip());
        let session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        Ok(Self(Box::new(StreamOwned::new(session, tcp))))
    }

    /// Sends a request and reads until `is_whole` returns true or the server closes the connection.
    /// Returns `None` if the connection was closed before any byte arrived.
    pub(crate) fn exchange(
        &mut self,
        request: &[u8],
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let (mut answer, mut part) = (Vec::new(), [0; 16 * 1024]);
        match self.0.write_all(request).and_then(|()| self.0.flush()) {
            Err(error) if is_end(&error) => return Ok(None),
            sent => sent?,
        }
        loop {
            match self.0.read(&mut part) {
                Ok(0) => break,
                Ok(length) => answer.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_end(&error) => break,
                Err(error) => return Err(error),
            }
            if is_whole(&answer) {
                break;
            }
        }
        Ok((!answer.is_empty()).then_some(answer))
    }
}

/// Whether the other side has closed the connection, also without the TLS close message.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

/// Idle connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idle(Arc<Mutex<Vec<Connection>>>);

impl Idle {
    pub(crate) fn take(&self) -> Option<Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(crate) fn keep(&self, connection: Connection) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// Closes all idle connections.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
