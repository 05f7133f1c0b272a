//! Tests of a whole server, in process.

mod faults;
mod garbage;
mod groups;
mod lists;
mod state;
mod watches;
mod writes;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower_service::Service as _;

use crate::kinds::built_in;
use crate::response::Disconnect;
use crate::schema::{Schema, TypeId};
use crate::{ApiServer, Body, Settings};

/// A client of an in-process server.
pub(crate) struct Client {
    pub(crate) server: ApiServer,
}

/// A watch that is read event by event.
pub(crate) struct Events {
    body: Body,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self { server: ApiServer::new(settings) }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Body>, Disconnect> {
        self.server.service().call(request).await
    }

    async fn try_request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value), Disconnect> {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let response = self.send(request.body(Full::new(bytes)).unwrap()).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }

    pub(crate) async fn request(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let content_type = match (&method, body) {
            (&Method::PATCH, Value::Array(_)) => "application/json-patch+json",
            (&Method::PATCH, _) => "application/merge-patch+json",
            _ => "application/json",
        };
        self.try_request(method, path, content_type, body).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.request(Method::GET, path, &Value::Null).await
    }

    /// Sends a request that must succeed.
    pub(crate) async fn ok(&self, method: Method, path: &str, body: &Value) -> Value {
        let (status, answer) = self.request(method.clone(), path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer}");
        answer
    }

    pub(crate) async fn create(&self, path: &str, body: &Value) -> Value {
        self.ok(Method::POST, path, body).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        let request = Request::get(path).body(Full::default()).unwrap();
        let response = self.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Events { body: response.into_body(), buffer: Vec::new() }
    }
}

impl Events {
    /// The next event; `None` when the watch has ended cleanly.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.try_next().await.unwrap()
    }

    async fn try_next(&mut self) -> Result<Option<Value>, Disconnect> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => self.buffer.extend(frame?.into_data().unwrap()),
            }
        }
    }

    /// The next event as its type, name and resourceVersion.
    async fn brief(&mut self) -> Option<(String, String, u64)> {
        let event = self.next().await?;
        let metadata = &event["object"]["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let version = metadata["resourceVersion"].as_str().unwrap_or("0").parse().unwrap();
        Some((event["type"].as_str().unwrap().to_owned(), name, version))
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "value"}})
}

fn labelled(name: &str, app: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": app}}})
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// The definition of a custom resource.
fn things_definition() -> Value {
    json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

/// Objects of any kind that has messages; `object_of` generates an object of a type to a depth.
pub(crate) fn any_kind(object_of: fn(TypeId, u32) -> BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    let kinds: Vec<_> = built_in().iter().filter(|kind| kind.group != "apiextensions.k8s.io").collect();
    prop::sample::select(kinds).prop_flat_map(move |kind| {
        object_of(Schema::get().of(kind).unwrap(), 7).prop_map(|mut object| {
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind.to_string().into();
            object
        })
    })
}
