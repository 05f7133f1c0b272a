//! The parts of a response's body as they arrive.

use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::timeout;

use crate::list_watch::ListWatchError;

/// The maximum time until a response starts, or a list continues: longer than the API server's
/// request timeout of one minute. The reflector times open watches.
pub(super) const SILENCE: Duration = Duration::from_secs(70);

/// The next part; `None` at the end.
pub(super) async fn next_chunk(body: &mut Body) -> Result<Option<impl AsRef<[u8]> + use<>>, ListWatchError> {
    loop {
        let frame = timeout(SILENCE, body.frame()).await.map_err(|_| ListWatchError::Silent(SILENCE))?;
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| ListWatchError::Body(Box::new(error)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}
