//! Reads the `extenders` of a file.

use std::collections::BTreeMap;
use std::time::Duration;

use supercargo_framework::labels::is_label_key;
use supercargo_framework::resource::names;

use super::cursor::{Cursor, Object};
use super::error::Position;
use super::report::Report;
use crate::config::{ExtenderConfig, ExtenderTls, ManagedResource};
use supercargo_framework::go_duration;

/// Default timeout of a call to an extender.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

const FIELDS: &[&str] = &[
    "urlPrefix",
    "filterVerb",
    "preemptVerb",
    "prioritizeVerb",
    "weight",
    "bindVerb",
    "enableHTTPS",
    "tlsConfig",
    "httpTimeout",
    "nodeCacheCapable",
    "managedResources",
    "ignorable",
];
const TLS_FIELDS: &[&str] =
    &["insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData"];
const MANAGED_RESOURCE_FIELDS: &[&str] = &["name", "ignoredByScheduler"];

/// What at most one extender may have.
#[derive(Default)]
struct UniqueSettings {
    binder: Option<Position>,
    resources: BTreeMap<String, Option<Position>>,
}

/// Reads the extenders, in the order of the file.
pub(super) fn read_all(list: &Cursor<'_>, report: &mut Report<'_>) -> Vec<ExtenderConfig> {
    let mut taken = UniqueSettings::default();
    list.items(report).iter().filter_map(|extender| read(extender, &mut taken, report)).collect()
}

fn read(cursor: &Cursor<'_>, taken: &mut UniqueSettings, report: &mut Report<'_>) -> Option<ExtenderConfig> {
    let object = cursor.object(FIELDS, report)?;
    let flag = |field: &str, report: &mut Report<'_>| {
        object.get(field).and_then(|cursor| cursor.boolean(report)).unwrap_or(false)
    };
    let url_prefix = read_url(&object, report);
    let prioritize_verb = read_verb(&object, "prioritizeVerb", report);
    let extender = ExtenderConfig {
        url_prefix,
        filter_verb: read_verb(&object, "filterVerb", report),
        preempt_verb: read_verb(&object, "preemptVerb", report),
        weight: read_weight(&object, prioritize_verb.is_some(), report),
        prioritize_verb,
        bind_verb: read_bind_verb(&object, taken, report),
        enable_https: flag("enableHTTPS", report),
        tls: object.get("tlsConfig").and_then(|cursor| read_tls(&cursor, report)).unwrap_or_default(),
        http_timeout: read_timeout(&object, report),
        node_cache_capable: flag("nodeCacheCapable", report),
        managed_resources: read_managed_resources(&object, taken, report),
        ignorable: flag("ignorable", report),
    };
    Some(extender)
}

/// The URL prefix, without trailing slashes.
fn read_url(object: &Object<'_>, report: &mut Report<'_>) -> String {
    let Some(cursor) = object.require("urlPrefix", report) else { return String::new() };
    let Some(text) = cursor.string(report) else { return String::new() };
    let problem = match text.parse::<http::Uri>() {
        Err(error) => Some(format!("is not a URL: {error}")),
        Ok(url) if !matches!(url.scheme_str(), Some("http" | "https")) => {
            Some("must begin with http:// or https://".to_owned())
        }
        Ok(url) if url.host().is_none_or(str::is_empty) => Some("must name a host".to_owned()),
        Ok(url) if url.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
            Some("must not have a user or a password in it".to_owned())
        }
        Ok(url) if url.query().is_some() => {
            Some("must not have a query: verbs are appended to the URL".to_owned())
        }
        Ok(_) => None,
    };
    if let Some(problem) = problem {
        report.invalid(&cursor.place, problem);
    }
    text.trim_end_matches('/').to_owned()
}

/// The path below the prefix, if the extender implements this call.
fn read_verb(object: &Object<'_>, field: &str, report: &mut Report<'_>) -> Option<String> {
    let cursor = object.get(field)?;
    let verb = cursor.string(report).filter(|verb| !verb.is_empty())?;
    if format!("/{verb}").parse::<http::uri::PathAndQuery>().is_err() {
        report.invalid(&cursor.place, format!("must be a path in a URL, is {verb:?}"));
    }
    Some(verb.to_owned())
}

fn read_bind_verb(
    object: &Object<'_>,
    taken: &mut UniqueSettings,
    report: &mut Report<'_>,
) -> Option<String> {
    let verb = read_verb(object, "bindVerb", report)?;
    let place = object.get("bindVerb")?.place;
    if let Some(first) = taken.binder {
        report.invalid(&place, format!("only one extender can implement bind, and the one at {first} does"));
    }
    taken.binder = taken.binder.or(place.position);
    Some(verb)
}

fn read_weight(object: &Object<'_>, prioritizes: bool, report: &mut Report<'_>) -> i64 {
    let cursor = object.get("weight");
    let weight = cursor.as_ref().map_or(Some(0), |cursor| cursor.long(report));
    let blamed = cursor.or_else(|| object.get("prioritizeVerb"));
    if let (true, Some(weight @ ..=0), Some(cursor)) = (prioritizes, weight, blamed) {
        let message = format!(
            "an extender with a prioritizeVerb must have a positive weight applied to it, has {weight}"
        );
        report.invalid(&cursor.place, message);
    }
    weight.unwrap_or_default()
}

fn read_timeout(object: &Object<'_>, report: &mut Report<'_>) -> Duration {
    let Some(cursor) = object.get("httpTimeout") else { return DEFAULT_TIMEOUT };
    let Some(text) = cursor.string(report) else { return DEFAULT_TIMEOUT };
    match go_duration::parse(text) {
        Some(Duration::ZERO) => DEFAULT_TIMEOUT,
        Some(timeout) => timeout,
        None => {
            report.invalid(&cursor.place, "must be a duration such as 5s or 1m30s");
            DEFAULT_TIMEOUT
        }
    }
}

fn read_tls(cursor: &Cursor<'_>, report: &mut Report<'_>) -> Option<ExtenderTls> {
    let object = cursor.object(TLS_FIELDS, report)?;
    let text = |field: &str, report: &mut Report<'_>| {
        let text = object.get(field)?.string(report)?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let data = |field: &str, report: &mut Report<'_>| {
        let found = text(field, report)?;
        if !is_base64(&found) {
            let place = object.get(field)?.place;
            report.invalid(&place, "must be base64");
        }
        Some(found)
    };
    let tls = ExtenderTls {
        insecure: object.get("insecure").and_then(|cursor| cursor.boolean(report)).unwrap_or(false),
        server_name: text("serverName", report),
        cert_file: text("certFile", report),
        key_file: text("keyFile", report),
        ca_file: text("caFile", report),
        cert_data: data("certData", report),
        key_data: data("keyData", report),
        ca_data: data("caData", report),
    };
    let is_given = |file: &Option<String>, data: &Option<String>| file.is_some() || data.is_some();
    if tls.insecure && is_given(&tls.ca_file, &tls.ca_data) {
        let message = "specifying a root certificates file with the insecure flag is not allowed";
        report.invalid(&cursor.place, message);
    }
    if is_given(&tls.cert_file, &tls.cert_data) != is_given(&tls.key_file, &tls.key_data) {
        report.invalid(&cursor.place, "a certificate and its key must be given together");
    }
    Some(tls)
}

/// Whether Go accepts this as base64.
fn is_base64(text: &str) -> bool {
    let letters = text.trim_end_matches('=');
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "+/".contains(letter);
    text.len().is_multiple_of(4) && text.len() - letters.len() <= 2 && letters.chars().all(is_letter)
}

fn read_managed_resources(
    object: &Object<'_>,
    taken: &mut UniqueSettings,
    report: &mut Report<'_>,
) -> Vec<ManagedResource> {
    let items = object.get("managedResources").map(|list| list.items(report));
    let read = |item: Cursor<'_>| read_managed_resource(&item, taken, report);
    items.into_iter().flatten().filter_map(read).collect()
}

fn read_managed_resource(
    cursor: &Cursor<'_>,
    taken: &mut UniqueSettings,
    report: &mut Report<'_>,
) -> Option<ManagedResource> {
    let object = cursor.object(MANAGED_RESOURCE_FIELDS, report)?;
    let name = object.require("name", report)?;
    let text = name.string(report)?;
    if !is_label_key(text) || !names::is_extended(text) {
        let message =
            format!("is an invalid extended resource name: {text:?}; use a name such as example.com/gpu");
        report.invalid(&name.place, message);
    } else if let Some(first) = taken.resources.get(text) {
        let first = first.map_or_else(String::new, |first| format!(", first used at {first}"));
        report.invalid(&name.place, format!("duplicate extender managed resource name {text:?}{first}"));
    }
    taken.resources.entry(text.to_owned()).or_insert(name.place.position);
    let ignored = object.get("ignoredByScheduler").and_then(|cursor| cursor.boolean(report));
    Some(ManagedResource { name: text.into(), ignored_by_scheduler: ignored.unwrap_or(false) })
}
