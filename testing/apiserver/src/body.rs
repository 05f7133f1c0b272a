//! Request bodies: parsed, checked against the kind, and decoded by its type.

use serde_json::{Value, json};

use crate::decode::{FieldValidation, decode, decode_kind};
use crate::depth;
use crate::json::text_in;
use crate::kinds::{Kind, built_in};
use crate::media::Encoding;
use crate::patch::{self, Patch};
use crate::proto;
use crate::request::ApiRequest;
use crate::rest::DeleteOptions;
use crate::schema::Schema;
use crate::status::{Result, Status, StatusCause};

/// Reads an object of a kind. Unknown fields are dropped, reported or rejected as the query
/// demands.
pub(crate) fn object(kind: &Kind, request: &ApiRequest, warnings: &mut Vec<String>) -> Result<Value> {
    let mut object = parse(request, &kind.kind)?;
    check_type(kind, &object)?;
    decode_object(kind, request, &mut object, warnings)?;
    if kind.custom {
        let given = |key| !text_in(&object, &[key]).is_empty();
        if !given("apiVersion") || !given("kind") {
            let missing = if given("kind") { "apiVersion" } else { "Kind" };
            return Err(Status::bad_request(format!("Object '{missing}' is missing in '{object}'")));
        }
    }
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.as_ref().into();
    Ok(object)
}

/// Reads an object whose type has no path of its own, such as a Binding, an Eviction or a Scale.
pub(crate) fn untyped(request: &ApiRequest, api_version: &str, kind: &str) -> Result<Value> {
    let mut object = parse(request, kind)?;
    let type_id = Schema::get().kind(api_version, kind);
    let version = api_version.rsplit('/').next().unwrap_or_default();
    if let Some(type_id) = type_id {
        let unknown = decode(type_id, &mut object)
            .map_err(|error| Status::bad_request(error.message(version, kind)))?;
        validation(request)?.act(&unknown, version, kind).map_err(Status::bad_request)?;
    }
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Ok(object)
}

/// Parses the body as JSON, YAML or protobuf.
fn parse(request: &ApiRequest, kind: &str) -> Result<Value> {
    let body = &request.body;
    let value: Value = match Encoding::of_body(&request.headers)? {
        Encoding::Json if body.is_empty() => {
            return Err(unrecognized(kind, "unexpected end of JSON input (<empty>)"));
        }
        Encoding::Json => {
            serde_json::from_slice(body).map_err(|error| unrecognized(kind, &error.to_string()))?
        }
        Encoding::Yaml => {
            let value = yaml(body).map_err(|why| unrecognized(kind, &why))?;
            depth::check(&value)?;
            value
        }
        Encoding::Protobuf => proto::decode(body).map_err(|why| unrecognized(kind, &why.to_string()))?,
    };
    if value.is_object() { Ok(value) } else { Err(unrecognized(kind, "not an object")) }
}

fn unrecognized(kind: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why}"
    ))
}

fn yaml(body: &[u8]) -> std::result::Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Rejects an object whose `apiVersion` or `kind` is not the one that the path names.
fn check_type(kind: &Kind, object: &Value) -> Result<()> {
    let (api_version, given) = (text_in(object, &["apiVersion"]), text_in(object, &["kind"]));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let other_kind = !given.is_empty() && given != kind.kind;
    if other_kind && kind.custom {
        let detail = format!("must be {}", kind.kind);
        let name = text_in(object, &["metadata", "name"]);
        let cause = StatusCause::invalid("kind", &given.into(), &detail);
        return Err(Status::invalid_of(group, given, name, vec![cause]));
    }
    if let Some(why) = conversion_error(kind, group, version, given) {
        let expected = &kind.kind;
        let message = format!("{given} in version {version:?} cannot be handled as a {expected}: {why}");
        return Err(Status::bad_request(message));
    }
    if !api_version.is_empty() && api_version != kind.api_version() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            kind.api_version()
        )));
    }
    Ok(())
}

/// Upstream's reason for rejecting an object of another type, in Go's terms.
fn conversion_error(kind: &Kind, group: &str, version: &str, given: &str) -> Option<String> {
    if kind.custom || given.is_empty() || version.is_empty() {
        return None;
    }
    let mut known = built_in().iter();
    if !known.any(|known| known.kind == given && known.group == group && known.version == version) {
        return Some(format!(
            "no kind {given:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    let package = kind.group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
    let differs = given != kind.kind;
    differs
        .then(|| format!("converting ({version}.{given}) to ({package}.{}): unknown conversion", kind.kind))
}

fn validation(request: &ApiRequest) -> Result<FieldValidation> {
    let text = request.options.text("fieldValidation");
    FieldValidation::parse(text).ok_or_else(|| {
        let cause =
            StatusCause::not_supported("fieldValidation", &text.into(), &["", "Ignore", "Strict", "Warn"]);
        crate::rest::invalid_write_options(request.info.verb, cause)
    })
}

/// Decodes an object, and reports or rejects its unknown fields as the query demands.
fn decode_object(
    kind: &Kind,
    request: &ApiRequest,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let unknown = decode_kind(kind, object)
        .map_err(|error| Status::bad_request(error.message(&kind.version, &kind.kind)))?;
    let validation = validation(request)?;
    let answered = validation.act(&unknown, &kind.version, &kind.kind).map_err(Status::bad_request)?;
    warnings.extend(answered);
    Ok(())
}

/// Reads a patch.
pub(crate) fn patch(kind: &Kind, request: &ApiRequest) -> Result<Patch> {
    let content_type = request.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    patch::parse(content_type.unwrap_or_default(), &request.body, kind.custom)
}

/// Applies a patch to an object.
pub(crate) fn patched(
    kind: &Kind,
    request: &ApiRequest,
    patch: &Patch,
    old: &Value,
    warnings: &mut Vec<String>,
) -> Result<Value> {
    let mut new = patch::apply_to(patch, old, Schema::get().of(kind))?;
    let decoded = decode_kind(kind, &mut new);
    let unknown = decoded.map_err(|error| patch::undecodable(patch, &new, &error.to_string()))?;
    let validation = validation(request)?;
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        let why = format!("strict decoding error: {}", unknown.join(", "));
        return Err(patch::undecodable(patch, &new, &why));
    }
    warnings.extend(validation.act(&unknown, &kind.version, &kind.kind).map_err(Status::bad_request)?);
    let (api_version, given) = (text_in(&new, &["apiVersion"]), text_in(&new, &["kind"]));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if let Some(why) = conversion_error(kind, group, version, given) {
        return Err(patch::undecodable(patch, &new, &why));
    }
    check_type(kind, &new)?;
    let name = text_in(&new, &["metadata", "name"]);
    let expected = text_in(old, &["metadata", "name"]);
    if name != expected {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({expected})"
        )));
    }
    Ok(new)
}

/// The configuration to apply, with the name and namespace from the path.
pub(crate) fn apply_configuration(config: &Value, namespace: &str, name: &str) -> Result<Value> {
    let mut config = config.clone();
    if !config["metadata"].is_object() {
        config["metadata"] = json!({});
    }
    let given = text_in(&config, &["metadata", "name"]);
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    config["metadata"]["name"] = name.into();
    if !namespace.is_empty() {
        config["metadata"]["namespace"] = namespace.into();
    }
    Ok(config)
}

/// Normalises an object that an apply has produced.
pub(crate) fn applied(kind: &Kind, mut object: Value) -> Result<Value> {
    // Apply has already rejected unknown fields.
    decode_kind(kind, &mut object)
        .map_err(|error| Status::bad_request(error.message(&kind.version, &kind.kind)))?;
    Ok(object)
}

/// Reads the delete options from the body, or from the query when there is no body.
pub(crate) fn delete_options(request: &ApiRequest) -> Result<DeleteOptions> {
    if request.body.is_empty() {
        return DeleteOptions::parse(None, &request.options);
    }
    let body = untyped(request, "v1", "DeleteOptions")?;
    DeleteOptions::parse(Some(&body), &request.options)
}
