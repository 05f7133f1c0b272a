//! A scripted extender on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// Maps the verb and body of a call to a status and an answer.
type Answer = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// A call: the last part of its path, and the body.
pub(crate) type ExtenderCall = (String, Value);

/// An extender. It ends with this value.
pub(crate) struct Extender {
    port: u16,
    calls: Arc<Mutex<Vec<ExtenderCall>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    stopped: Arc<Mutex<bool>>,
}

impl Extender {
    /// Starts an extender. The closure gets the verb and the body.
    pub(crate) fn start(answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let extender =
            Self { port, calls: Arc::default(), connections: Arc::default(), stopped: Arc::default() };
        let (calls, connections) = (Arc::clone(&extender.calls), Arc::clone(&extender.connections));
        let stopped = Arc::clone(&extender.stopped);
        let answer: Arc<Answer> = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if *stopped.lock().unwrap() {
                    return;
                }
                let stream = stream.unwrap();
                connections.lock().unwrap().push(stream.try_clone().unwrap());
                let (calls, answer) = (Arc::clone(&calls), Arc::clone(&answer));
                // A broken connection is the client's concern.
                thread::spawn(move || drop(serve(&stream, &calls, &*answer)));
            }
        });
        extender
    }

    /// Its host and port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The value of `urlPrefix`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/scheduler", self.address())
    }

    /// Drops the calls so far.
    pub(crate) fn forget(&self) {
        self.calls.lock().unwrap().clear();
    }

    /// The calls so far with this verb.
    pub(crate) fn calls(&self, verb: &str) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(of, _)| of == verb).map(|(_, body)| body.clone()).collect()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        *self.stopped.lock().unwrap() = true;
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        // Wakes the listening thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(stream: &TcpStream, calls: &Mutex<Vec<ExtenderCall>>, answer: &Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim_end().to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let verb = path.rsplit('/').next().unwrap_or_default();
        calls.lock().unwrap().push((verb.to_owned(), body.clone()));
        let (status, answer) = answer(verb, &body);
        let answer = answer.to_string();
        let length = answer.len();
        write!(
            writer,
            "HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{answer}"
        )?;
        writer.flush()?;
    }
}
