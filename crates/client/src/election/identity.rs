//! Identities of candidates, and jitter.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use super::JITTER;

/// The host name; in a pod, the pod's name.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}

/// `<hostname>_<uuid>`, as kube-scheduler: unique per process.
pub(super) fn new_identity() -> String {
    format!("{}_{}", hostname(), uuid())
}

/// A random UUID (version 4).
fn uuid() -> String {
    let number = (u128::from(random()) << 64) | u128::from(random());
    let number = number & !(0xf000 << 64 | 0xc000 << 48) | (0x4000 << 64 | 0x8000 << 48);
    let digits = format!("{number:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// Random bits from the standard library's hash keys.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Adds random jitter to a duration, so that candidates do not act in step.
pub(super) fn jittered(duration: Duration) -> Duration {
    let fraction = (random() >> 11) as f64 / (1_u64 << 53) as f64;
    duration.mul_f64(1.0 + JITTER * fraction)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn identities_are_unique_names_with_uuids() {
        let identities: BTreeSet<String> = (0..1000).map(|_| new_identity()).collect();
        assert_eq!(identities.len(), 1000);
        for identity in identities {
            let (host, uuid) = identity.rsplit_once('_').unwrap();
            assert_eq!(host, hostname());
            let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            assert!(uuid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{uuid}");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }

    #[test]
    fn jitter_makes_longer_by_up_to_its_factor() {
        let period = Duration::from_secs(2);
        let waits: Vec<Duration> = (0..1000).map(|_| jittered(period)).collect();
        assert!(waits.iter().all(|wait| (period..=period.mul_f64(2.2)).contains(wait)), "{waits:?}");
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(most.saturating_sub(*least) > period, "{least:?} to {most:?}");
    }
}
