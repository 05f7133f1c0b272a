//! Parsed requests: the target from the path, the options from the query.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, header};

use crate::faults::RequestInfo;
use crate::media::{Encoding, Media};
use crate::patch::managed::manager_name;
use crate::status::{Result, Status, StatusCause};

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A resource, an object or a subresource.
    Resource(Resource),
    /// Everything else: discovery, OpenAPI, health.
    Other(String),
}

/// A resource in a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty for none.
    pub(crate) namespace: String,
    pub(crate) plural: String,
    /// Empty for all.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

impl Target {
    /// Parses a path.
    pub(crate) fn parse(path: &str) -> Self {
        let segments: Option<Vec<String>> =
            path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
        let segments: Option<Vec<&str>> =
            segments.as_ref().map(|segments| segments.iter().map(String::as_str).collect());
        let resource = match segments.as_deref() {
            Some(["api", version, rest @ ..]) => Resource::parse("", version, rest),
            Some(["apis", group, version, rest @ ..]) => Resource::parse(group, version, rest),
            _ => None,
        };
        resource.map_or_else(|| Self::Other(path.to_owned()), Self::Resource)
    }
}

impl Resource {
    fn parse(group: &str, version: &str, rest: &[&str]) -> Option<Self> {
        let parts = |namespace: &str, rest: &[&str]| {
            let (resource, rest) = rest.split_first()?;
            let (name, subresource) = match rest {
                [] => ("", ""),
                [name] => (*name, ""),
                [name, subresource] => (*name, *subresource),
                _ => return None,
            };
            let [group, version, namespace, plural, name, subresource] =
                [group, version, namespace, resource, name, subresource].map(str::to_owned);
            Some(Self { group, version, namespace, plural, name, subresource })
        };
        match rest {
            // A path may name a namespace or a subresource of it as an object.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => parts("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => parts(namespace, rest),
            rest => parts("", rest),
        }
    }

    /// Upstream's verb, as in audit logs and RBAC.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> &'static str {
        let many = self.name.is_empty();
        match *method {
            Method::GET | Method::HEAD if watch => "watch",
            Method::GET | Method::HEAD if many => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if many => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        }
    }
}

fn decode(segment: &str) -> Option<String> {
    if !segment.contains('%') {
        return Some(segment.to_owned());
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The query parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryOptions {
    values: HashMap<String, String>,
}

impl QueryOptions {
    /// Parses a query. As in Go, the first of repeated parameters wins.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let mut values = HashMap::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            values.entry(key.into_owned()).or_insert_with(|| value.into_owned());
        }
        Self { values }
    }

    /// A text parameter; empty if missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// A boolean parameter.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.values.get(name).map(String::as_str) {
            None => None,
            // As in Go's query conversion, a name alone and any value that is not a word for false
            // are true.
            Some("0" | "false" | "False" | "FALSE" | "f" | "F") => Some(false),
            Some(_) => Some(true),
        }
    }

    /// A numeric parameter.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>> {
        match self.values.get(name).map(String::as_str) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let why = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
                Status::bad_request(why)
            }),
        }
    }

    /// Whether the request is a dry run.
    pub(crate) fn dry_run(&self) -> std::result::Result<bool, StatusCause> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(StatusCause::not_supported("dryRun", &serde_json::json!([other]), &["All"])),
        }
    }
}

/// The authenticated caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    pub(crate) groups: Vec<Arc<str>>,
    /// The token that the caller presented; `None` in process.
    pub(crate) token: Option<Arc<str>>,
}

impl Default for Caller {
    fn default() -> Self {
        let groups = vec!["system:masters".into(), "system:authenticated".into()];
        Self { name: "admin".into(), groups, token: None }
    }
}

/// A parsed request.
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) target: Target,
    pub(crate) options: QueryOptions,
    pub(crate) body: Bytes,
    pub(crate) caller: Caller,
    pub(crate) info: RequestInfo,
}

impl ApiRequest {
    pub(crate) fn new(head: Parts, body: Bytes, caller: Caller) -> Self {
        let target = Target::parse(head.uri.path());
        let options = QueryOptions::parse(head.uri.query());
        let user_agent = head.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let mut info =
            RequestInfo { user_agent: user_agent.unwrap_or_default().to_owned(), ..RequestInfo::default() };
        if let Target::Resource(resource) = &target {
            let watch = options.flag("watch").unwrap_or_default();
            info.verb = resource.verb(&head.method, watch);
            info.resource.clone_from(&resource.plural);
            info.subresource.clone_from(&resource.subresource);
            info.namespace.clone_from(&resource.namespace);
            info.name.clone_from(&resource.name);
        }
        Self { method: head.method, headers: head.headers, target, options, body, caller, info }
    }

    /// The encoding of errors: the accepted one, or JSON.
    pub(crate) fn error_encoding(&self) -> Encoding {
        Media::negotiate(&self.headers, true).map_or(Encoding::Json, |media| media.encoding)
    }

    /// The field manager: the requested one, or the name of the program.
    pub(crate) fn manager(&self) -> String {
        manager_name(self.options.text("fieldManager"), &self.info.user_agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(parts: [&str; 6]) -> Target {
        let [group, version, namespace, plural, name, subresource] = parts.map(str::to_owned);
        Target::Resource(Resource { group, version, namespace, plural, name, subresource })
    }

    #[test]
    fn paths_name_resources_objects_and_subresources() {
        for (path, expected) in [
            ("/api/v1/pods", ["", "v1", "", "pods", "", ""]),
            ("/api/v1/namespaces/n/pods", ["", "v1", "n", "pods", "", ""]),
            ("/api/v1/namespaces/n/pods/p/binding", ["", "v1", "n", "pods", "p", "binding"]),
            ("/api/v1/namespaces/n", ["", "v1", "", "namespaces", "n", ""]),
            ("/api/v1/namespaces/n/finalize", ["", "v1", "", "namespaces", "n", "finalize"]),
            ("/api/v1/namespaces", ["", "v1", "", "namespaces", "", ""]),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                ["apps", "v1", "n", "deployments", "d", "scale"],
            ),
            ("/api/v1/nodes/a%2Fb", ["", "v1", "", "nodes", "a/b", ""]),
        ] {
            assert_eq!(Target::parse(path), resource(expected), "{path}");
        }
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
            "/api/v1/a/b/c/d",
            "/api/v1/pods/%zz",
        ] {
            assert_eq!(Target::parse(path), Target::Other(path.to_owned()));
        }
    }

    #[test]
    fn query_parameters_are_parsed_as_in_go() {
        let options = QueryOptions::parse(Some("watch&limit=5&labelSelector=a%3Db%2Cc&x=0&limit=7&bad=1x"));
        assert_eq!(options.flag("watch"), Some(true));
        assert_eq!(options.flag("x"), Some(false));
        assert_eq!(options.flag("none"), None);
        assert_eq!(options.number("limit").unwrap(), Some(5));
        assert_eq!(options.text("labelSelector"), "a=b,c");
        assert!(options.number("bad").is_err());
    }
}
