//! Host ports.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP, the default.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The protocol by its API name. Empty and unknown names mean TCP.
    pub fn from_api(name: &str) -> Self {
        match name {
            "UDP" => Self::Udp,
            "SCTP" => Self::Sctp,
            _ => Self::Tcp,
        }
    }
}

/// A host port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// The host address; empty and `0.0.0.0` both mean every address.
    pub ip: Arc<str>,
    /// The protocol.
    pub protocol: Protocol,
    /// The port number.
    pub port: i32,
}

impl HostPort {
    /// Whether both conflict on one node.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.is_any_address() || other.is_any_address() || self.ip == other.ip)
    }

    fn is_any_address(&self) -> bool {
        self.ip.is_empty() || &*self.ip == "0.0.0.0"
    }
}

/// Whether any wanted port conflicts with a used one.
pub fn any_conflict(wanted: &[HostPort], used: &[HostPort]) -> bool {
    wanted.iter().any(|want| used.iter().any(|have| want.conflicts_with(have)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_conflict_on_the_same_protocol_and_overlapping_addresses() {
        let port = |ip: &str, protocol, port| HostPort { ip: ip.into(), protocol, port };
        let used = port("127.0.0.1", Protocol::Tcp, 80);
        assert!(port("127.0.0.1", Protocol::Tcp, 80).conflicts_with(&used));
        assert!(port("", Protocol::Tcp, 80).conflicts_with(&used));
        assert!(port("0.0.0.0", Protocol::Tcp, 80).conflicts_with(&used));
        assert!(!port("127.0.0.2", Protocol::Tcp, 80).conflicts_with(&used));
        assert!(!port("127.0.0.1", Protocol::Udp, 80).conflicts_with(&used));
        assert!(!port("127.0.0.1", Protocol::Tcp, 81).conflicts_with(&used));
    }
}
