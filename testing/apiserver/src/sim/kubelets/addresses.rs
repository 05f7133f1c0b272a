//! Allocates addresses: each node has one, and a range for its pods.

use std::net::Ipv4Addr;

use rustc_hash::FxHashSet;

/// The first address of nodes.
const NODES: u32 = u32::from_be_bytes([172, 18, 0, 2]);
/// The first address of pod ranges, which have 256 addresses each.
const PODS: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const RANGES: u32 = 1 << 16;
/// The first of the addresses for pods on nodes with a full range.
const SPARE: u32 = u32::from_be_bytes([100, 64, 0, 0]);
const SPARE_COUNT: u32 = 1 << 22;

/// Allocates ranges and addresses.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The first addresses of the allocated ranges.
    ranges: FxHashSet<u32>,
    next_range: u32,
    next_node: u32,
    next_spare: u32,
}

/// The pod addresses of a node.
#[derive(Debug)]
pub(super) struct Range {
    first: u32,
    size: u32,
    used: FxHashSet<u32>,
    next: u32,
}

impl Addresses {
    /// Allocates the address of a node.
    pub(super) fn node(&mut self) -> Ipv4Addr {
        self.next_node += 1;
        Ipv4Addr::from(NODES.wrapping_add(self.next_node - 1))
    }

    /// The range that a node specifies, or a new one.
    pub(super) fn range(&mut self, cidr: &str) -> Range {
        let (first, size) = parse(cidr).unwrap_or_else(|| (self.free_range(), 256));
        self.ranges.insert(first);
        Range { first, size, used: FxHashSet::default(), next: 0 }
    }

    fn free_range(&mut self) -> u32 {
        for _ in 0..RANGES {
            let first = PODS + ((self.next_range % RANGES) << 8);
            self.next_range += 1;
            if !self.ranges.contains(&first) {
                return first;
            }
        }
        PODS
    }

    /// Releases the range of a removed node.
    pub(super) fn release(&mut self, range: &Range) {
        self.ranges.remove(&range.first);
    }

    /// Allocates an address for a pod, from the range of the node unless that is full.
    pub(super) fn pod(&mut self, range: &mut Range) -> Ipv4Addr {
        // The first and the last address are reserved for network and broadcast.
        for _ in 0..range.size.saturating_sub(2) {
            let address = range.first + 1 + range.next % (range.size - 2);
            range.next += 1;
            if range.used.insert(address) {
                return Ipv4Addr::from(address);
            }
        }
        self.next_spare = (self.next_spare + 1) % SPARE_COUNT;
        Ipv4Addr::from(SPARE + self.next_spare)
    }
}

impl Range {
    /// For example `10.0.3.0/24`.
    pub(super) fn cidr(&self) -> String {
        format!("{}/{}", Ipv4Addr::from(self.first), 32 - self.size.ilog2())
    }

    /// Marks an address that a pod already has.
    pub(super) fn claim(&mut self, address: Ipv4Addr) {
        self.used.insert(address.into());
    }

    pub(super) fn release(&mut self, address: Ipv4Addr) {
        self.used.remove(&address.into());
    }
}

fn parse(cidr: &str) -> Option<(u32, u32)> {
    let (address, length) = cidr.split_once('/')?;
    let address: Ipv4Addr = address.parse().ok()?;
    let length: u32 = length.parse().ok().filter(|length| (8..=30).contains(length))?;
    Some((u32::from(address), 1 << (32 - length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_distinct_ranges() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.range("10.0.0.0/24").cidr(), "10.0.0.0/24");
        let range = addresses.range("");
        assert_eq!(range.cidr(), "10.0.1.0/24");
        assert_eq!(addresses.range("").cidr(), "10.0.2.0/24");
        assert_eq!(addresses.range("fd00::/64").cidr(), "10.0.3.0/24");
        assert_ne!(addresses.node(), addresses.node());
    }

    #[test]
    fn pods_have_distinct_addresses_even_in_a_full_range() {
        let mut addresses = Addresses::default();
        let mut range = addresses.range("10.1.0.0/29");
        range.claim(Ipv4Addr::new(10, 1, 0, 2));
        let given: Vec<String> = (0..7).map(|_| addresses.pod(&mut range).to_string()).collect();
        assert_eq!(given[..5], ["10.1.0.1", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"]);
        assert_eq!(given[5..], ["100.64.0.1", "100.64.0.2"]);
        range.release(Ipv4Addr::new(10, 1, 0, 4));
        assert_eq!(addresses.pod(&mut range).to_string(), "10.1.0.4");
    }
}
