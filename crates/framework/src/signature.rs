//! Pod signatures: everything that a pod's evaluation depends on, as a comparable value.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

/// A pod's evaluation cannot be shared with other pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the pod's evaluation depends on more than its signature can hold")]
pub struct Unsignable;

/// Two pods of one profile with equal signatures get the same verdict and raw scores on every node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(Arc<[u8]>);

/// Collects a signature. It keeps the bytes of all parts, not a hash: equal signatures mean equal
/// parts.
#[derive(Debug, Default)]
pub struct Signer {
    bytes: Vec<u8>,
}

impl Signer {
    /// Adds a part.
    pub fn write<T: Hash + ?Sized>(&mut self, part: &T) {
        part.hash(&mut Collector(&mut self.bytes));
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Truncates to this number of bytes.
    pub fn cut(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Removes all bytes, and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The signature of all parts.
    pub fn finish(self) -> Signature {
        Signature(self.bytes.into())
    }
}

/// A hasher that stores its input. `Hash` implementations also write lengths and discriminants, so
/// different values give different bytes.
struct Collector<'a>(&'a mut Vec<u8>);

impl Hasher for Collector<'_> {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(parts: &[&str]) -> Signature {
        let mut signer = Signer::default();
        for part in parts {
            signer.write(*part);
        }
        signer.finish()
    }

    #[test]
    fn signatures_are_equal_iff_the_parts_are() {
        assert_eq!(sign(&["a", "bc"]), sign(&["a", "bc"]));
        assert_ne!(sign(&["a", "bc"]), sign(&["ab", "c"]));
        assert_ne!(sign(&["a"]), sign(&["a", ""]));
    }
}
