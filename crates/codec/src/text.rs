//! Text that servers send.

use std::borrow::Cow;

/// Replaces invalid UTF-8, as the API server does when it writes JSON.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    // Several times as quick as the lossy conversion, which looks for what to replace.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}
