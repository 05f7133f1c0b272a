//! Random numbers of libraries, decided by the seed.
//!
//! The standard library takes the keys of its hash maps from getrandom(2), and tokio's `select!`
//! takes its first branch from those keys. The standard library lets a program define this symbol.

use std::sync::atomic::{AtomicU64, Ordering};

use supercargo_framework::testing::SplitMix64;

static STATE: AtomicU64 = AtomicU64::new(0);

/// Later threads take their keys from this seed.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

fn next() -> u64 {
    let state = STATE.fetch_add(SplitMix64::STEP, Ordering::Relaxed);
    SplitMix64::new(state.wrapping_sub(SplitMix64::STEP)).next_u64()
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
