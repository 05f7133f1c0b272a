//! Buffers that are reused.

/// A larger buffer, stretched by one large object, is freed instead of reused.
const KEEP: usize = 1 << 20;

/// Empties a buffer for reuse.
pub(crate) fn clear(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEEP {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}
