//! The objects of a resource as the server has them: a watch without faults, read write by write.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use supercargo_apiserver::{ApiServer, Body};
use tokio::task::unconstrained;
use tower::util::ServiceExt as _;

use crate::api::{ask, name, text};

/// The objects of a resource.
pub(super) struct Mirror {
    path: &'static str,
    objects: BTreeMap<String, Value>,
    watch: Option<Body>,
    /// The beginning of an event whose end has not come.
    part: Vec<u8>,
    events: VecDeque<Value>,
}

impl Mirror {
    pub(super) fn new(path: &'static str) -> Self {
        let (objects, events) = (BTreeMap::new(), VecDeque::new());
        Self { path, objects, watch: None, part: Vec::new(), events }
    }

    /// The objects after the last write that was read.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.objects.get(name)
    }

    /// Reads all writes. Returns whether there were any.
    pub(super) fn catch_up(&mut self, server: &ApiServer) -> bool {
        let mut is_new = false;
        while self.next(server).is_some() {
            is_new = true;
        }
        is_new
    }

    /// Reads one write, and returns the name of its object; empty if the whole list was read anew.
    pub(super) fn next(&mut self, server: &ApiServer) -> Option<String> {
        if self.watch.is_none() {
            self.list(server);
            return Some(String::new());
        }
        loop {
            if let Some(mut event) = self.events.pop_front() {
                return Some(self.apply(text(&event, "/type") == "DELETED", event["object"].take()));
            }
            // The runtime may have had enough of this task, and a connection yields before it
            // breaks: neither must look like silence.
            let watch = self.watch.as_mut()?;
            let frame = (0..2).find_map(|_| unconstrained(watch.frame()).now_or_never())?;
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(data))) => self.parse(&data),
                Some(Ok(Err(_))) => {}
                // Servers restart, and connections are cut.
                None | Some(Err(_)) => {
                    self.list(server);
                    return Some(String::new());
                }
            }
        }
    }

    fn apply(&mut self, is_gone: bool, object: Value) -> String {
        let name = name(&object).to_owned();
        if is_gone {
            self.objects.remove(&name);
        } else {
            self.objects.insert(name.clone(), object);
        }
        name
    }

    fn parse(&mut self, data: &[u8]) {
        self.part.extend_from_slice(data);
        while let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.part.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            if event["type"] == "ERROR" {
                // Too old a version. The watch ends.
                continue;
            }
            self.events.push_back(event);
        }
    }

    /// Reads the whole list, and watches from its version on. The server answers at once.
    fn list(&mut self, server: &ApiServer) {
        self.part.clear();
        self.events.clear();
        let answer = unconstrained(ask(server, Method::GET, self.path, None)).now_or_never();
        let mut list = answer.unwrap_or_default().1;
        let items = list["items"].take();
        let items = match items {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        drop(take(&mut self.objects));
        for object in items {
            self.apply(false, object);
        }
        let version = text(&list, "/metadata/resourceVersion");
        let request = Request::get(format!("{}?watch=true&resourceVersion={version}", self.path))
            .body(Full::<Bytes>::default())
            .expect("paths are valid");
        let response = unconstrained(server.service().oneshot(request)).now_or_never();
        self.watch = response.and_then(Result::ok).map(http::Response::into_body);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use supercargo_apiserver::Settings;
    use supercargo_apiserver::faults::Matcher;

    use super::*;

    const PATH: &str = "/api/v1/namespaces/default/configmaps";

    async fn create(server: &ApiServer, name: &str) {
        let object = json!({ "metadata": { "name": name } });
        assert!(ask(server, Method::POST, PATH, Some(&object)).await.0.is_success());
    }

    fn names(mirror: &Mirror) -> Vec<String> {
        mirror.objects().map(|object| name(object).to_owned()).collect()
    }

    #[tokio::test]
    async fn each_write_is_read_for_itself() {
        let server = ApiServer::new(Settings::default());
        create(&server, "a").await;
        let mut mirror = Mirror::new(PATH);
        assert_eq!(mirror.next(&server).as_deref(), Some(""));
        assert_eq!((names(&mirror), mirror.next(&server)), (vec!["a".to_owned()], None));
        create(&server, "b").await;
        ask(&server, Method::DELETE, &format!("{PATH}/a"), None).await;
        assert_eq!(mirror.next(&server).as_deref(), Some("b"));
        assert_eq!(names(&mirror), ["a", "b"]);
        assert_eq!(mirror.next(&server).as_deref(), Some("a"));
        assert_eq!((names(&mirror), mirror.next(&server)), (vec!["b".to_owned()], None));
    }

    #[tokio::test]
    async fn a_cut_watch_loses_no_write() {
        let server = ApiServer::new(Settings::default());
        let mut mirror = Mirror::new(PATH);
        assert!(mirror.catch_up(&server));
        for mid_frame in [true, false] {
            server.cut_watches(Matcher::default(), mid_frame);
            create(&server, if mid_frame { "a" } else { "b" }).await;
            mirror.catch_up(&server);
        }
        server.restart(false);
        create(&server, "c").await;
        mirror.catch_up(&server);
        assert_eq!(names(&mirror), ["a", "b", "c"]);
    }
}
