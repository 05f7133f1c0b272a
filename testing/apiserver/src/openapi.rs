//! OpenAPI v2 and v3 from the schema, to the extent that kubectl uses them. There are no
//! descriptions.
//!
//! | path | `Accept` | form |
//! |---|---|---|
//! | `/openapi/v3` | anything that takes JSON | [`v3_index`] |
//! | `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION` | `application/json`, `*/*` | [`v3`] |
//! | `/openapi/v2` | `application/json`, `*/*` | [`v2`] |
//! | `/openapi/v2`, `/openapi/v3/…` | `application/com.github.proto-openapi.spec.v…+protobuf` only | 406: there is no protobuf |
//!
//! kubectl (since 1.27) reads v3 as JSON only: `explain` reads types and paths, `apply` the patch
//! strategies, and `apply` and `create` whether PATCH supports `fieldValidation`. When v3 is
//! insufficient, kubectl requests v2 as protobuf, and falls back to compiled-in types if that
//! fails. `?hash=` in the index's URLs changes with the served kinds; the server ignores it.

mod paths;
mod types;

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value, json};

use crate::discovery::GIT_VERSION;
use crate::kinds::Kind;
use types::Components;

/// The `openAPIV3Schema` of a custom kind, from its definition; `None` without one.
pub(crate) type CustomSchema<'a> = &'a dyn Fn(&Kind) -> Option<Value>;

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    V2,
    V3,
}

/// `/openapi/v3`: the URL of each group version's document.
pub(crate) fn v3_index<'a>(kinds: impl IntoIterator<Item = &'a Kind>, custom: CustomSchema<'_>) -> Value {
    let mut hashers: Vec<(String, DefaultHasher)> = Vec::new();
    for kind in kinds {
        let root = kind.root();
        let index = hashers.iter().position(|(known, _)| *known == root).unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            GIT_VERSION.hash(&mut hasher);
            hashers.push((root, hasher));
            hashers.len() - 1
        });
        let hasher = &mut hashers[index].1;
        (&*kind.kind, &*kind.resource).hash(hasher);
        if kind.custom {
            custom(kind).map(|schema| schema.to_string()).hash(hasher);
        }
    }
    let paths: Map<String, Value> = hashers
        .into_iter()
        .map(|(root, hasher)| {
            let address = format!("/openapi/v3{root}?hash={:016X}", hasher.finish());
            (root.trim_start_matches('/').to_owned(), json!({"serverRelativeURL": address}))
        })
        .collect();
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1` (for the group `""`) and `/openapi/v3/apis/GROUP/VERSION`; `None` for group
/// versions that are not served.
pub(crate) fn v3<'a>(
    kinds: impl IntoIterator<Item = &'a Kind>,
    group: &str,
    version: &str,
    custom: CustomSchema<'_>,
) -> Option<Value> {
    let kinds = kinds.into_iter().filter(|kind| kind.group == group && kind.version == version);
    let (paths, schemas) = document(kinds, Form::V3, custom);
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

/// The content type of [`v2_protobuf`].
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2` in protobuf: a document without definitions. kubectl requests it where v3 is
/// insufficient (for a List, for example), and then leaves validation to the server.
pub(crate) fn v2_protobuf() -> Vec<u8> {
    /// A text or message field. Fields 1 and 2 of the document are `swagger` and `info`; those of
    /// `info` are `title` and `version`.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        // All are too short to need a second length byte.
        let mut out = vec![number << 3 | 2, bytes.len() as u8];
        out.extend_from_slice(bytes);
        out
    }
    let info = [field(1, b"Kubernetes"), field(2, GIT_VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info)].concat()
}

/// `/openapi/v2`: a single document. Custom kinds have only the fields that all objects have.
pub(crate) fn v2<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Value {
    let (paths, definitions) = document(kinds, Form::V2, &|_| None);
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": paths, "definitions": definitions,
    })
}

fn document<'a>(
    kinds: impl IntoIterator<Item = &'a Kind>,
    form: Form,
    custom: CustomSchema<'_>,
) -> (Map<String, Value>, Map<String, Value>) {
    let mut components = Components::new(form);
    let mut all = Map::new();
    for kind in kinds {
        components.add_kind(kind, custom);
        paths::add(kind, form, &mut components, &mut all);
    }
    (all, components.finish())
}
