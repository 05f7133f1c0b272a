//! An API server with scripted responses, for tests.

use std::collections::VecDeque;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::Api;

/// The requests so far: method, path, body.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Vec<(String, String, Value)>>>);

impl Requests {
    /// All requests so far: method, path with query, body.
    pub fn all(&self) -> Vec<(String, String, Value)> {
        self.0.lock().clone()
    }
}

/// An API server that responds with these statuses in turn, and then with 200.
pub fn answering(statuses: Vec<u16>) -> (Api, Requests) {
    let (client, requests) = answering_client(statuses);
    (Api::with_client(client), requests)
}

/// A client of such a server.
pub fn answering_client(statuses: Vec<u16>) -> (Client, Requests) {
    let requests = Requests::default();
    let statuses = Arc::new(Mutex::new(VecDeque::from(statuses)));
    let log = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, statuses) = (log.clone(), Arc::clone(&statuses));
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            log.0.lock().push((parts.method.to_string(), parts.uri.to_string(), body));
            let status = statuses.lock().pop_front().unwrap_or(200);
            let answer =
                json!({"kind": "Status", "status": "", "message": format!("code {status}"), "code": status});
            let response =
                Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
            response.map_err(|error| error.to_string())
        }
    });
    (Client::new(service, "default"), requests)
}
