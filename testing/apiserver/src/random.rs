//! Reproducible randomness for generated names and UIDs.

use fastrand::Rng;

/// Not cryptographically secure.
#[derive(Clone, Debug)]
pub(crate) struct Random(Rng);

/// The alphabet of generated names. It has no vowels, so that no words appear.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// Changes the state by a text, so that later values differ from those that produced the text.
    pub(crate) fn mix_in(&mut self, text: &str) {
        let seed = self.0.get_seed();
        self.0.seed(
            text.bytes().fold(seed, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
        );
    }

    /// Five characters for the end of a generated name.
    pub(crate) fn suffix(&mut self) -> String {
        (0..5).map(|_| char::from(LETTERS[self.0.usize(..LETTERS.len())])).collect()
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let (high, low) = (self.0.u64(..), self.0.u64(..));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_repeats_and_each_call_differs() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        let uid = one.uid();
        assert_eq!(uid, two.uid());
        assert_ne!(uid, one.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert_eq!(one.suffix().len(), 5);
    }
}
