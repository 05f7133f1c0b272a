//! Choosing among nodes with equal scores.

use std::sync::Arc;

use supercargo_framework::{NodeRecord, PodInfo};

/// Decides among equal scores. Upstream gives every node that an extender has scored a random
/// number. Here the number is a hash of the pod's UID and the node's name: pods spread, and a
/// replay agrees.
#[derive(Default)]
pub(crate) struct TieBreakers(Vec<u64>);

impl TieBreakers {
    /// The number of the feasible node at `position`; 0 if no extender has scored it.
    pub(crate) fn get(&self, position: usize) -> u64 {
        self.0.get(position).copied().unwrap_or(0)
    }

    /// Gives the node at `position` its number.
    pub(crate) fn draw(&mut self, pod: &PodInfo, nodes: &[Arc<NodeRecord>], position: usize) {
        self.0.resize(nodes.len(), 0);
        self.0[position] = mixed([&pod.uid.text(), &nodes[position].name]).max(1);
    }

    /// Gives every node its number.
    pub(crate) fn draw_all(&mut self, pod: &PodInfo, nodes: &[Arc<NodeRecord>]) {
        for position in 0..nodes.len() {
            self.draw(pod, nodes, position);
        }
    }
}

/// FNV-1a with MurmurHash's finalizer, as in `testing/controlplane/oracle`: change both.
fn mixed(words: [&str; 2]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}
