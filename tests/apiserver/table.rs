//! A file of requests. `README.md` describes the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One file: requests that are sent in sequence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The file's name without `.yaml`; with the prefix `req-` it is the namespace of the requests.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) about: String,
    /// Whether both servers serve the kinds of gang scheduling.
    #[serde(default)]
    pub(super) pod_groups: bool,
    /// Bodies that requests can start from.
    #[serde(default)]
    objects: BTreeMap<String, Value>,
    pub(super) requests: Vec<Request>,
}

/// One request, with the expected response.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    pub(super) name: String,
    get: Option<String>,
    post: Option<String>,
    put: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    /// Any other method, for example `HEAD /api`.
    other: Option<String>,
    /// The name of a body in `objects`.
    from: Option<String>,
    /// The body; applied to `from` as a JSON merge patch.
    body: Option<Value>,
    /// A body that is not valid JSON, or in a special notation.
    text: Option<String>,
    /// The content type: a short name (`merge`, `json-patch`, `strategic`, `apply`) or a full one.
    #[serde(rename = "type")]
    content_type: Option<String>,
    /// The accepted type: a short name (`table`, `partial`, `partial-list`, `protobuf`) or a full
    /// one.
    accept: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// The status code, followed by the `reason` of an error.
    expect: Value,
    /// Whether to repeat the request until the response is as expected: the real server takes a
    /// moment to serve a new kind.
    #[serde(default)]
    pub(super) until: bool,
    /// Values to save for later requests: a variable's name, and a JSON pointer into the response.
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
    /// Only compares list items with these names.
    #[serde(default)]
    pub(super) keep: Vec<String>,
}

/// Variables that requests refer to in braces.
pub(super) type Variables = BTreeMap<String, String>;

impl Table {
    /// All files of a folder.
    pub(super) fn all(folder: &Path) -> Result<Vec<Self>> {
        read_all(folder, |name, table: &mut Self| {
            name.clone_into(&mut table.name);
            table.check()
        })
    }

    fn check(&self) -> Result<()> {
        ensure!(self.about.ends_with('.'), "`about` is not a sentence");
        let mut names: Vec<&str> = Vec::new();
        for request in &self.requests {
            ensure!(!names.contains(&request.name.as_str()), "duplicate request name {}", request.name);
            names.push(&request.name);
            request.target().with_context(|| request.name.clone())?;
            request.expected().with_context(|| request.name.clone())?;
            if let Some(from) = &request.from {
                ensure!(self.objects.contains_key(from), "{}: unknown object {from}", request.name);
            }
        }
        Ok(())
    }

    /// Builds the request for a server.
    pub(super) fn build(&self, request: &Request, variables: &Variables) -> Result<http::Request<Vec<u8>>> {
        let (method, path) = request.target()?;
        let mut built = http::Request::builder().method(method).uri(fill(path, variables));
        let body = self.body(request, variables);
        if body.is_some() || request.content_type.is_some() {
            built = built.header("content-type", request.content_type(method));
        }
        if let Some(accept) = request.accept() {
            built = built.header("accept", accept);
        }
        for (name, value) in &request.headers {
            built = built.header(name, value);
        }
        built.body(body.unwrap_or_default()).context("build the request")
    }

    fn body(&self, request: &Request, variables: &Variables) -> Option<Vec<u8>> {
        if let Some(text) = &request.text {
            return Some(fill(text, variables).into_bytes());
        }
        let mut body = request.from.as_ref().map(|from| self.objects[from].clone());
        if let Some(change) = &request.body {
            match &mut body {
                Some(body) => merge(body, change),
                None => body = Some(change.clone()),
            }
        }
        let mut body = body?;
        fill_all(&mut body, variables);
        Some(body.to_string().into_bytes())
    }
}

impl Request {
    /// Method and path.
    pub(super) fn target(&self) -> Result<(&str, &str)> {
        let named = [
            ("GET", &self.get),
            ("POST", &self.post),
            ("PUT", &self.put),
            ("PATCH", &self.patch),
            ("DELETE", &self.delete),
        ];
        let mut given = named.iter().filter_map(|(method, path)| Some((*method, path.as_deref()?)));
        let other = self.other.as_deref().and_then(|other| other.split_once(' '));
        match (given.next(), given.next(), other) {
            (Some(target), None, None) | (None, None, Some(target)) => Ok(target),
            _ => bail!("a request needs exactly one method"),
        }
    }

    /// The expected status code, and the reason if it is an error.
    pub(super) fn expected(&self) -> Result<(u16, &str)> {
        match &self.expect {
            Value::Number(code) => {
                Ok((code.as_u64().and_then(|code| code.try_into().ok()).context("no status code")?, ""))
            }
            Value::String(text) => {
                let (code, reason) = text.split_once(' ').unwrap_or((text, ""));
                Ok((code.parse().context("no status code")?, reason))
            }
            _ => bail!("`expect` must be a status code, optionally with a reason"),
        }
    }

    fn content_type(&self, method: &str) -> &str {
        match (self.content_type.as_deref(), method) {
            (Some("merge"), _) | (None, "PATCH") => "application/merge-patch+json",
            (Some("json-patch"), _) => "application/json-patch+json",
            (Some("strategic"), _) => "application/strategic-merge-patch+json",
            (Some("apply"), _) => "application/apply-patch+yaml",
            (Some(given), _) => given,
            (None, _) => "application/json",
        }
    }

    fn accept(&self) -> Option<&str> {
        Some(match self.accept.as_deref()? {
            "table" => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "partial" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            "partial-list" => {
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
            }
            "protobuf" => "application/vnd.kubernetes.protobuf",
            given => given,
        })
    }
}

/// Parses the YAML files of a folder except the list of differences, and checks each.
pub(super) fn read_all<T: DeserializeOwned>(
    folder: &Path,
    check: impl Fn(&str, &mut T) -> Result<()>,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for file in yaml_files(folder)?.iter().filter(|file| !file.ends_with("differences.yaml")) {
        let name = file.file_stem().and_then(|stem| stem.to_str()).context("a file has a name")?;
        let text = fs::read_to_string(file).with_context(|| format!("read {name}"))?;
        let mut one: T = serde_saphyr::from_str(&text).with_context(|| format!("read {name}"))?;
        check(name, &mut one).with_context(|| format!("check {name}"))?;
        all.push(one);
    }
    Ok(all)
}

/// The YAML files of a folder, sorted.
fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Replaces variables in braces.
pub(super) fn fill(text: &str, variables: &Variables) -> String {
    let put = |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
    variables.iter().fold(text.to_owned(), put)
}

fn fill_all(value: &mut Value, variables: &Variables) {
    match value {
        Value::String(text) => *text = fill(text, variables),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_all(item, variables)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill_all(field, variables)),
        _ => {}
    }
}

/// A JSON merge patch.
fn merge(value: &mut Value, change: &Value) {
    let Value::Object(changes) = change else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    for (key, change) in changes {
        if change.is_null() {
            value.as_object_mut().expect("it was made one").remove(key);
        } else {
            merge(&mut value[key], change);
        }
    }
}
