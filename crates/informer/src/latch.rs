//! A flag that is set once and can be awaited.

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

    /// Sets the flag when the guard is dropped.
    pub(crate) fn set_on_drop(&self) -> impl Drop + Send + use<> {
        self.0.clone().drop_guard()
    }
}
