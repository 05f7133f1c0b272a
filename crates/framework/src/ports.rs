//! Host ports.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::indexed::{Indexed, Keyed};
use crate::steps;

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Ports are ordered by number. Those of every address come first.
impl Keyed for HostPort {
    type Key<'a> = (i32, Protocol, bool, &'a str);

    fn key(&self) -> Self::Key<'_> {
        (self.port, self.protocol, !self.is_any_address(), &self.ip)
    }
}

impl PartialOrd for HostPort {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HostPort {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Indexed<HostPort> {
    /// Whether any of the ports conflicts with this one.
    fn has_conflict(&self, with: &HostPort) -> bool {
        let (number, protocol, is_single, ip) = with.key();
        if !is_single {
            let mut all = self.find_by(move |known| (known.0, known.1).cmp(&(number, protocol)));
            return all.next().is_some();
        }
        let of_every_address = (number, protocol, false);
        let mut shared = self.find_by(move |known| (known.0, known.1, known.2).cmp(&of_every_address));
        let mut same = self.find_by(move |known| known.cmp(&(number, protocol, true, ip)));
        shared.next().is_some() || same.next().is_some()
    }
}

/// Whether any port of one pod conflicts with one of another.
pub fn any_conflict(a: &Indexed<HostPort>, b: &Indexed<HostPort>) -> bool {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    few.iter().any(|port| many.has_conflict(port))
}

/// The host ports that pods use on a node, each with the number of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedPorts(BTreeMap<HostPort, u32>);

impl UsedPorts {
    /// Whether no port is in use.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of the wanted ports conflicts with one in use.
    pub fn conflict_with(&self, wanted: &Indexed<HostPort>) -> bool {
        if wanted.len() <= self.0.len() {
            wanted.iter().any(|port| self.has_conflict(port))
        } else {
            self.0.keys().any(|port| wanted.has_conflict(port))
        }
    }

    fn has_conflict(&self, with: &HostPort) -> bool {
        steps::add(1);
        let HostPort { port, protocol, .. } = *with;
        let of_every_address = HostPort { ip: Arc::default(), protocol, port };
        let mut of_number = self.0.range(of_every_address..).map(|(used, _)| used);
        // Ports of every address come first.
        let first = of_number.next().filter(|used| used.port == port && used.protocol == protocol);
        first.is_some_and(|first| first.conflicts_with(with) || self.0.contains_key(with))
    }

    /// Adds the ports of a pod.
    pub(crate) fn add(&mut self, ports: &[HostPort]) {
        for port in ports {
            *self.0.entry(port.clone()).or_default() += 1;
        }
    }

    /// Removes the ports of a pod.
    pub(crate) fn remove(&mut self, ports: &[HostPort]) {
        for port in ports {
            match self.0.get_mut(port) {
                Some(users) if *users > 1 => *users -= 1,
                _ => drop(self.0.remove(port)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn any_port() -> impl Strategy<Value = HostPort> {
        let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
        let ip = proptest::sample::select(vec!["", "0.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        (ip, protocol, 0..20).prop_map(|(ip, protocol, port)| HostPort { ip: ip.into(), protocol, port })
    }

    proptest! {
        #[test]
        fn conflicts_are_found_as_by_comparing_all(
            wanted in vec(any_port(), 0..12),
            pods in vec(vec(any_port(), 0..12), 0..3),
            gone in 0..4_usize,
        ) {
            let mut used = UsedPorts::default();
            for ports in &pods {
                used.add(ports);
            }
            let mut stay = pods.clone();
            if gone < stay.len() {
                used.remove(&stay.remove(gone));
            }
            let conflicts = |with: &[HostPort]| {
                wanted.iter().any(|want| with.iter().any(|have| want.conflicts_with(have)))
            };
            let wanted: Indexed<_> = wanted.clone().into();
            prop_assert_eq!(used.conflict_with(&wanted), conflicts(&stay.concat()));
            prop_assert_eq!(used.is_empty(), stay.iter().all(Vec::is_empty));
            for ports in pods {
                prop_assert_eq!(any_conflict(&wanted, &ports.clone().into()), conflicts(&ports));
            }
        }
    }

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
