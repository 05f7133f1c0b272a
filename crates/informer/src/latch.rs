//! A flag that can only go up, and be waited for.

use tokio_util::sync::CancellationToken;

#[derive(Clone, Default)]
pub(crate) struct Latch(CancellationToken);

impl Latch {
    pub(crate) fn set(&self) {
        self.0.cancel();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(crate) async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Raises the flag when the guard is dropped, however the holder ends.
    pub(crate) fn set_on_drop(&self) -> impl Drop + Send + use<> {
        self.0.clone().drop_guard()
    }
}
