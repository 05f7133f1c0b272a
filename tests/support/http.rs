//! A plain HTTP client.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(80);

/// The status, the headers and the text of a response; of a stream, its first part.
pub(crate) fn get(url: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    let mut request = Request::get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request.body(Full::default()).unwrap()).unwrap()
}

/// The same of any request.
pub(crate) fn send(request: Request<Full<Bytes>>) -> Result<(u16, HeaderMap, String)> {
    let response = async {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let (head, mut body) = client.request(request).await?.into_parts();
        let is_stream = head.headers.get("content-type").is_some_and(|it| it == "text/event-stream");
        let text = if is_stream {
            body.frame().await.unwrap()?.into_data().unwrap()
        } else {
            body.collect().await?.to_bytes()
        };
        Ok((head.status.as_u16(), head.headers, String::from_utf8(text.to_vec())?))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { timeout(PATIENCE, response).await? })
}
