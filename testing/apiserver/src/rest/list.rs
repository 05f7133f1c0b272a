//! Lists: which version, which objects, and how many per page.

use std::sync::Arc;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine as _};
use serde_json::{Value, json};

use super::writer::State;
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::request::QueryOptions;
use crate::selector::Selector;
use crate::status::{Details, Result, Status, StatusCause};
use crate::store::Table;

/// The options of a list.
#[derive(Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) selector: Selector,
    /// The maximum number of objects; 0 for all.
    limit: usize,
    from: From,
}

/// The version and start of a list.
#[derive(Debug, Default)]
enum From {
    /// The current version.
    #[default]
    Now,
    /// The current version, which must be this one or later.
    NotOlderThan(u64),
    /// Exactly this version.
    Exact(u64),
    /// This version, starting at this key.
    Continue { version: u64, key: String },
    /// The current version, starting at this key; used when the token's version has expired.
    ContinueNow { key: String },
}

/// A list.
#[derive(Debug)]
pub(crate) struct List {
    /// The resourceVersion of the list.
    pub(crate) version: u64,
    pub(crate) objects: Vec<Arc<StoredObject>>,
    /// The continue token; empty at the end.
    pub(crate) continues: String,
    /// The number of objects after this page, if known.
    pub(crate) remaining: Option<usize>,
}

/// Parses a resourceVersion; empty text is 0.
pub(crate) fn parse_version(text: &str) -> Result<u64> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            let detail = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            Status::bad_request(format!("resourceVersion: Invalid value: {text:?}: {detail}"))
        }),
    }
}

impl ListOptions {
    /// Parses the options of a list.
    pub(crate) fn parse(kind: &Kind, query: &QueryOptions) -> Result<Self> {
        let selector = Selector::parse(kind, query)?;
        query.number("timeoutSeconds")?;
        let limit = query.number("limit")?.unwrap_or_default();
        validate(query)?;
        // As upstream, a list of any version is not paginated.
        let limit = if query.text("resourceVersion") == "0" { 0 } else { limit };
        let limit = usize::try_from(limit).unwrap_or(0);
        Ok(Self { selector, limit, from: from(query, limit)? })
    }
}

fn validate(query: &QueryOptions) -> Result<()> {
    let matching = query.text("resourceVersionMatch");
    let field = "resourceVersionMatch";
    let mut causes = Vec::new();
    if !matching.is_empty() {
        if query.text("resourceVersion").is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(StatusCause::forbidden(field, detail));
        }
        if !query.text("continue").is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(StatusCause::forbidden(field, detail));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(StatusCause::not_supported(field, &matching.into(), &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && query.text("resourceVersion") == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(StatusCause::forbidden(field, detail));
        }
    }
    if query.flag("sendInitialEvents").is_some() {
        causes.push(StatusCause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(invalid_options(causes)) }
}

/// 422 for the options of a list or watch.
pub(crate) fn invalid_options(causes: Vec<StatusCause>) -> Status {
    Status::invalid_of("meta.k8s.io", "ListOptions", "", causes)
}

/// 422 for an option of a write.
pub(crate) fn invalid_write_options(verb: &str, cause: StatusCause) -> Status {
    let options = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "DeleteOptions",
    };
    Status::invalid_of("meta.k8s.io", options, "", vec![cause])
}

fn from(query: &QueryOptions, limit: usize) -> Result<From> {
    let version = query.text("resourceVersion");
    let token = query.text("continue");
    if !token.is_empty() {
        if !matches!(version, "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return continued(token);
    }
    let exact = match query.text("resourceVersionMatch") {
        "Exact" => true,
        "NotOlderThan" => false,
        // Without a match, all pages have one version.
        _ => limit > 0,
    };
    let unreadable =
        |status: Status| Status::bad_request(format!("invalid resource version: {}", status.message));
    Ok(match parse_version(version).map_err(unreadable)? {
        0 => From::Now,
        version if exact => From::Exact(version),
        version => From::NotOlderThan(version),
    })
}

/// Parses a continue token: `{"v":"meta.k8s.io/v1","rv":5,"start":"namespace/name\0"}` in base64.
fn continued(token: &str) -> Result<From> {
    let invalid = |why: &str| Status::bad_request(format!("invalid continue token: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
            DecodeError::InvalidLength(length) => length,
            DecodeError::InvalidPadding => token.len(),
        };
        invalid(&format!("continue key is not valid: illegal base64 data at input byte {at}"))
    })?;
    let token: Value = serde_json::from_slice(&bytes)
        .map_err(|_| invalid("continue key is not valid: it is not a token from a list"))?;
    let version = token["rv"].as_i64().unwrap_or_default();
    let key = token["start"].as_str().unwrap_or_default();
    if token["v"] != "meta.k8s.io/v1" {
        let version = token["v"].as_str().unwrap_or_default();
        let why = "continue key is not valid: server does not recognize this encoded version";
        return Err(invalid(&format!("{why} {version}")));
    }
    if version == 0 {
        return Err(invalid(
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ));
    }
    if key.is_empty() {
        return Err(invalid("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"));
    }
    let key = key.to_owned();
    Ok(match u64::try_from(version) {
        Ok(version) => From::Continue { version, key },
        Err(_) => From::ContinueNow { key },
    })
}

fn token(version: i64, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": key}).to_string())
}

/// The requested version is in the future.
pub(crate) fn too_large(version: u64, current: u64) -> Status {
    let message = format!("Timeout: Too large resource version: {version}, current: {current}");
    let mut status = Status::timeout(message);
    let cause = StatusCause {
        reason: "ResourceVersionTooLarge",
        message: "Too large resource version".to_owned(),
        field: String::new(),
    };
    *status.details = Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() };
    status
}

impl State {
    /// Lists the objects of a kind in a namespace, or in all for `""`.
    pub(crate) fn list(&self, kind: &Kind, namespace: &str, options: &ListOptions) -> Result<List> {
        let table = self.store.table(&kind.resource_key()).ok_or_else(Status::no_such_path)?;
        let now = self.store.version();
        let version = match options.from {
            From::NotOlderThan(version) | From::Exact(version) if version > now => {
                return Err(too_large(version, now));
            }
            From::Exact(version) | From::Continue { version, .. } => version,
            From::Now | From::NotOlderThan(_) | From::ContinueNow { .. } => now,
        };
        let key = match &options.from {
            From::Continue { key, .. } | From::ContinueNow { key } => Some(start(key, namespace)),
            _ => None,
        };
        let past = match options.from {
            From::Exact(_) | From::Continue { .. } if version < now => past(table, version, key.as_deref())?,
            _ => None,
        };
        let key = key.as_deref();
        let list =
            |objects: &mut dyn Iterator<Item = &Arc<StoredObject>>| options.page(objects, version, namespace);
        Ok(match &past {
            Some(past) => list(&mut past.range(namespace, key)),
            None => list(&mut table.range(namespace, key)),
        })
    }
}

/// Keys in tokens are relative to the listed namespace.
fn start(key: &str, namespace: &str) -> String {
    if namespace.is_empty() { key.to_owned() } else { format!("{namespace}/{key}") }
}

/// The objects as of a version; `None` if they have not changed since.
fn past(table: &Table, version: u64, key: Option<&str>) -> Result<Option<Table>> {
    table.at(version).map_err(|_| match key {
        None => Status::expired("The resourceVersion for the provided list is too old."),
        Some(_) => Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list - \
             objects that were created, modified, or deleted between the time the first chunk was returned and \
             now may show up in the list.",
        ),
    })
}

/// The token that continues an expired list inconsistently.
pub(crate) fn inconsistent_token(query: &QueryOptions) -> Option<String> {
    match continued(query.text("continue")).ok()? {
        From::Continue { key, .. } => Some(token(-1, &key)),
        _ => None,
    }
}

impl ListOptions {
    fn page(
        &self,
        objects: &mut dyn Iterator<Item = &Arc<StoredObject>>,
        version: u64,
        namespace: &str,
    ) -> List {
        let matching =
            |object: &&Arc<StoredObject>| self.selector.is_empty() || self.selector.matches(object);
        let mut objects = objects.filter(matching);
        if self.limit == 0 {
            return List {
                version,
                objects: objects.cloned().collect(),
                continues: String::new(),
                remaining: None,
            };
        }
        let page: Vec<Arc<StoredObject>> = objects.by_ref().take(self.limit).cloned().collect();
        // The count is only reported without a selector; otherwise it only matters whether more
        // objects follow.
        let rest = if self.selector.is_empty() { objects.count() } else { objects.take(1).count() };
        let mut continues = String::new();
        if let Some(last) = page.last().filter(|_| rest > 0) {
            let last = if namespace.is_empty() { last.key() } else { last.name.to_string() };
            continues = token(version as i64, &format!("{last}\0"));
        }
        let remaining = (rest > 0 && self.selector.is_empty()).then_some(rest);
        List { version, objects: page, continues, remaining }
    }
}
