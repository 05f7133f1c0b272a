//! Identities of candidates, and jitter.

use std::time::Duration;

use fastrand::Rng;

use super::JITTER;

/// `<hostname>_<uuid>`, as kube-scheduler: unique per process.
pub(super) fn new_identity(hostname: &str, random: &mut Rng) -> String {
    format!("{hostname}_{}", uuid(random))
}

/// A random UUID (version 4).
fn uuid(random: &mut Rng) -> String {
    let number = random.u128(..) & !(0xf000 << 64 | 0xc000 << 48) | (0x4000 << 64 | 0x8000 << 48);
    let digits = format!("{number:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// Adds random jitter to a duration, so that candidates do not act in step.
pub(super) fn jittered(duration: Duration, random: &mut Rng) -> Duration {
    duration.mul_f64(1.0 + JITTER * random.f64())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn identities_are_unique_names_with_uuids() {
        let mut random = Rng::with_seed(1);
        let identities: BTreeSet<String> = (0..1000).map(|_| new_identity("host", &mut random)).collect();
        assert_eq!(identities.len(), 1000);
        for identity in identities {
            let (host, uuid) = identity.rsplit_once('_').unwrap();
            assert_eq!(host, "host");
            let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            assert!(uuid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{uuid}");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }

    #[test]
    fn jitter_makes_longer_by_up_to_its_factor() {
        let (period, mut random) = (Duration::from_secs(2), Rng::with_seed(1));
        let waits: Vec<Duration> = (0..1000).map(|_| jittered(period, &mut random)).collect();
        assert!(waits.iter().all(|wait| (period..=period.mul_f64(2.2)).contains(wait)), "{waits:?}");
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(most.saturating_sub(*least) > period, "{least:?} to {most:?}");
    }
}
