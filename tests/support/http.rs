//! A plain HTTP client.

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// The status, the headers and the text of a response; of a stream, its first part.
pub(crate) fn get(url: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::get(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = client.request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        let (head, mut body) = response.into_parts();
        let is_stream = head.headers["content-type"] == "text/event-stream";
        let text = if is_stream {
            body.frame().await.unwrap().unwrap().into_data().unwrap()
        } else {
            body.collect().await.unwrap().to_bytes()
        };
        (head.status.as_u16(), head.headers, String::from_utf8(text.to_vec()).unwrap())
    })
}
