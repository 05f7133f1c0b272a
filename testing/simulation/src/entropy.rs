//! Random numbers of libraries, decided by the seed.
//!
//! The standard library takes the keys of its hash maps from getrandom(2), and tokio's `select!`
//! takes its first branch from those keys. The standard library lets a program define this symbol.

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// Later threads take their keys from this seed.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

/// SplitMix64.
fn next() -> u64 {
    let mut mixed = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Answers in place of the C library.
///
/// # Safety
///
/// As getrandom(2): `length` bytes at `buffer` are writable.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller owns the buffer.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    for chunk in buffer.chunks_mut(8) {
        chunk.copy_from_slice(&next().to_le_bytes()[..chunk.len()]);
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}
