//! Sends a table of requests to one server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

use super::normal::{Names, keep_named};
use super::table::{Request, Table, Variables};
use super::target::{Answer, Target};

/// The headers that clients read.
const HEADERS: [&str; 4] = ["allow", "content-type", "retry-after", "warning"];

/// The maximum number of attempts for a request with `until`.
const MOST_TRIES: usize = 100;
const INTERVAL: Duration = Duration::from_millis(100);

/// The result of a table on one server.
pub(super) struct Run {
    /// The normalized responses by request name: `code`, `headers` and `body`.
    pub(super) answers: BTreeMap<String, Value>,
    /// The responses that the table does not expect.
    pub(super) unexpected: Vec<String>,
    pub(super) took: Duration,
}

/// Sends all requests of a table, in a namespace of its own.
pub(super) async fn run(target: &Target, table: &Table) -> Result<Run> {
    let namespace = format!("req-{}", table.name);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    let (code, answer) = target.call("POST", "/api/v1/namespaces", Some(&object)).await;
    ensure!(code == 201, "{}: make the namespace {namespace}: {answer}", target.name);

    let began = Instant::now();
    let mut run = Run { answers: BTreeMap::new(), unexpected: Vec::new(), took: Duration::ZERO };
    let mut names = Names::default();
    let mut variables = Variables::from([("ns".to_owned(), namespace)]);
    for request in &table.requests {
        let what = format!("{} of {}, on the {} server", request.name, table.name, target.name);
        let mut left = if request.until { MOST_TRIES } else { 1 };
        let (answer, body) = loop {
            let built = table.build(request, &variables).with_context(|| request.name.clone())?;
            let (answer, body) = exchange(target, built).await?;
            left -= 1;
            let unexpected = unexpected(&what, request, &answer, &body)?;
            if unexpected.is_none() || left == 0 {
                run.unexpected.extend(unexpected);
                break (answer, body);
            }
            tokio::time::sleep(INTERVAL).await;
        };
        save(request, &body, &mut variables);
        run.answers.insert(request.name.clone(), normal(request, &answer, body, &mut names));
    }
    run.took = began.elapsed();
    Ok(run)
}

async fn exchange(target: &Target, request: http::Request<Vec<u8>>) -> Result<(Answer, Value)> {
    let query = request.uri().query().unwrap_or_default();
    // Every value other than `false` is true.
    let is_watch = query.contains("watch=") && !query.contains("watch=false");
    let answer = target.send(request).await;
    let is_stream = is_watch && answer.status() == StatusCode::OK;
    let body = if is_stream { events(answer.body())? } else { body(&answer) };
    Ok((answer, body))
}

fn normal(request: &Request, answer: &Answer, mut body: Value, names: &mut Names) -> Value {
    if !request.keep.is_empty() {
        keep_named(&mut body, &request.keep);
    }
    match &mut body {
        Value::Array(events) => names.normalize_events(events),
        Value::String(text) => *text = names.text(text),
        body => names.normalize(body),
    }
    json!({
        "code": answer.status().as_u16(),
        "headers": headers(answer.headers(), names),
        "body": body,
    })
}

fn headers(headers: &HeaderMap, names: &Names) -> Map<String, Value> {
    let mut read = Map::new();
    for name in HEADERS {
        let values: Vec<String> = headers
            .get_all(name)
            .iter()
            .map(|value| names.text(&String::from_utf8_lossy(value.as_bytes())))
            .collect();
        if !values.is_empty() {
            read.insert(name.to_owned(), json!(values));
        }
    }
    read
}

/// The body: JSON as JSON, text as text; for protobuf only a marker.
fn body(answer: &Answer) -> Value {
    let bytes = answer.body();
    if bytes.starts_with(b"k8s\0") {
        return json!("<protobuf>");
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into())
}

fn events(body: &[u8]) -> Result<Value> {
    let events: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(body).into_iter().collect();
    Ok(Value::Array(events.context("read the events of a watch")?))
}

fn unexpected(what: &str, request: &Request, answer: &Answer, body: &Value) -> Result<Option<String>> {
    let (code, reason) = request.expected()?;
    let got = answer.status().as_u16();
    let got_reason = if got < 400 { "" } else { body["reason"].as_str().unwrap_or_default() };
    let is_as_said = got == code && got_reason == reason;
    Ok((!is_as_said).then(|| format!("{what}: expected {code} {reason}, got {got} {got_reason}: {body}")))
}

/// Saves values for later requests. A missing value is saved as a word that no server accepts.
fn save(request: &Request, body: &Value, variables: &mut Variables) {
    for (name, pointer) in &request.save {
        let found = body.pointer(pointer).map_or_else(
            || format!("missing-{name}"),
            |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        );
        // Continue tokens are used in queries.
        let found = found.replace('=', "%3D").replace('+', "%2B");
        variables.insert(name.clone(), found);
    }
}
