//! Failures while informers follow a server: random, but repeatable by their seed.

use std::time::Duration;

use supercargo_controlplane::ControlPlane;
use tokio::time::sleep;

use super::load::Progress;
use super::proxy::Proxy;

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }
}

/// Causes failures for clients of the proxy.
pub(super) struct Trouble<'a> {
    pub(super) plane: &'a ControlPlane,
    pub(super) proxy: &'a Proxy,
    pub(super) progress: &'a Progress,
    pub(super) random: Random,
    pub(super) compactions: usize,
}

impl Trouble<'_> {
    /// Causes one failure, then waits for some writes.
    pub(super) async fn make(&mut self) {
        match self.random.below(6) {
            0 | 1 => self.cut_some(),
            2 | 3 => self.break_off_soon().await,
            _ => self.compact_behind_their_backs().await,
        }
        let peace = 200 + self.random.below(800);
        self.wait_for(peace).await;
    }

    /// Waits for this many writes, or a moment if writes have become slow.
    async fn wait_for(&self, writes: usize) {
        let enough = self.progress.writes() + writes;
        for _ in 0..300 {
            if self.progress.writes() >= enough {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn cut_some(&mut self) {
        let random = &mut self.random;
        self.proxy.cut(|| random.below(2) == 0);
    }

    /// Breaks connections within an event or a list.
    async fn break_off_soon(&mut self) {
        self.proxy.limit(20_000 + self.random.below(300_000) as u64);
        self.proxy.cut(|| true);
        self.wait_for(200).await;
        self.proxy.limit(u64::MAX);
    }

    /// Changes objects while all connections are blocked, and compacts these changes.
    async fn compact_behind_their_backs(&mut self) {
        self.proxy.block(true);
        self.proxy.cut(|| true);
        self.wait_for(100).await;
        tokio::task::block_in_place(|| self.plane.compact_etcd()).unwrap();
        self.compactions += 1;
        self.proxy.block(false);
    }
}
