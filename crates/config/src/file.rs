//! Reads the fields of a KubeSchedulerConfiguration v1.

use std::path::PathBuf;

use super::catalog::Catalog;
use super::cursor::{Cursor, Object};
use super::extender;
use super::leader_election::{self, Election};
use super::profile_file::{self, FileProfile, read_percentage};
use super::report::Report;
use crate::config::{ClientConnection, ExtenderConfig, MediaType};

/// The API version of the file and of plugin arguments.
pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
pub(super) const KIND: &str = "KubeSchedulerConfiguration";

const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
    "delayCacheUntilActive",
];
const CLIENT_CONNECTION_FIELDS: &[&str] =
    &["kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"];

/// Seconds in the longest duration of Go, about 292 years.
const LONGEST_SECONDS: i64 = i64::MAX / 1_000_000_000;

/// The content of a file. Unset fields are `None`.
#[derive(Debug, Default)]
pub(super) struct File<'a> {
    pub(super) parallelism: Option<i32>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) initial_backoff_seconds: Option<u64>,
    pub(super) max_backoff_seconds: Option<u64>,
    pub(super) client_connection: ClientConnection,
    /// Completed with defaults.
    pub(super) leader_election: Election,
    pub(super) delay_cache_until_active: Option<bool>,
    pub(super) enable_profiling: Option<bool>,
    pub(super) enable_contention_profiling: Option<bool>,
    pub(super) profiles: Vec<FileProfile<'a>>,
    pub(super) extenders: Vec<ExtenderConfig>,
}

/// Reads a file and reports everything that is invalid.
pub(super) fn read<'a>(top: &Cursor<'a>, catalog: &Catalog, report: &mut Report<'_>) -> File<'a> {
    let Some(object) = top.object(FIELDS, report) else {
        return File::default();
    };
    if !check_type(&object, report) {
        // Another type has other fields, so errors about them would not help.
        return File::default();
    }
    let flag = |field, report: &mut Report<'_>| object.get(field).and_then(|cursor| cursor.boolean(report));
    let (initial, max) = read_backoff(&object, report);
    let profiles = object.get("profiles").map(|list| profile_file::read_all(&list, catalog, report));
    let extenders = object.get("extenders").map(|list| extender::read_all(&list, report));
    File {
        parallelism: read_parallelism(&object, report),
        percentage_of_nodes_to_score: read_percentage(&object, report),
        initial_backoff_seconds: initial,
        max_backoff_seconds: max,
        client_connection: read_client_connection(&object, report),
        leader_election: leader_election::read(&object, report),
        delay_cache_until_active: flag("delayCacheUntilActive", report),
        enable_profiling: flag("enableProfiling", report),
        enable_contention_profiling: flag("enableContentionProfiling", report),
        profiles: profiles.unwrap_or_default(),
        extenders: extenders.unwrap_or_default(),
    }
}

fn check_type(object: &Object<'_>, report: &mut Report<'_>) -> bool {
    let before = report.count();
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match object.get(field) {
            None => {
                let message = format!("is missing; write {field}: {wanted}");
                report.invalid(&object.place.field(field), message);
            }
            Some(cursor) => {
                let found = cursor.string(report);
                if let Some(found) = found.filter(|found| *found != wanted) {
                    report.invalid(&cursor.place, wrong_type(found, wanted));
                }
            }
        }
    }
    report.count() == before
}

/// The error about an `apiVersion` or a `kind`.
pub(super) fn wrong_type(found: &str, wanted: &str) -> String {
    let older = API_VERSION.strip_suffix("v1").and_then(|group| found.strip_prefix(group));
    match older {
        Some(version) => {
            format!("{} was removed from kube-scheduler; write {wanted}", version.escape_debug())
        }
        None => format!("must be {wanted}, is {found:?}"),
    }
}

fn read_client_connection(top: &Object<'_>, report: &mut Report<'_>) -> ClientConnection {
    let mut connection = ClientConnection::default();
    let cursor = top.get("clientConnection");
    let Some(object) = cursor.and_then(|cursor| cursor.object(CLIENT_CONNECTION_FIELDS, report)) else {
        return connection;
    };
    let kubeconfig = object.get("kubeconfig").and_then(|cursor| cursor.string(report));
    connection.kubeconfig = kubeconfig.filter(|path| !path.is_empty()).map(PathBuf::from);
    connection.qps = object.get("qps").and_then(|cursor| cursor.number(report)).filter(|qps| *qps > 0.0);
    connection.burst = read_burst(&object, report);
    if let Some(cursor) = object.get("contentType") {
        let name = cursor.string(report).filter(|name| !name.is_empty());
        if let Some(found) = name.and_then(|name| read_media_type(name, &cursor, report)) {
            connection.content_type = found;
        }
    }
    if let Some(cursor) = object.get("acceptContentTypes") {
        let names = cursor.string(report).unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let types = names.filter_map(|name| read_media_type(name, &cursor, report));
        connection.accept_content_types = types.collect();
    }
    connection
}

fn read_burst(object: &Object<'_>, report: &mut Report<'_>) -> Option<i32> {
    let cursor = object.get("burst")?;
    let burst = cursor.integer(report)?;
    if burst < 0 {
        report.invalid(&cursor.place, format!("must not be negative, is {burst}"));
    }
    (burst > 0).then_some(burst)
}

fn read_media_type(name: &str, cursor: &Cursor<'_>, report: &mut Report<'_>) -> Option<MediaType> {
    let found = MediaType::of(name);
    if found.is_none() {
        let all = MediaType::ALL.map(MediaType::name).join(" or ");
        report.invalid(&cursor.place, format!("must be {all}, is {name:?}"));
    }
    found
}

fn read_parallelism(object: &Object<'_>, report: &mut Report<'_>) -> Option<i32> {
    let cursor = object.get("parallelism")?;
    let value = cursor.integer(report)?;
    if value <= 0 {
        report.invalid(&cursor.place, format!("must be greater than 0, is {value}"));
    }
    Some(value)
}

fn read_backoff(object: &Object<'_>, report: &mut Report<'_>) -> (Option<u64>, Option<u64>) {
    let initial = read_seconds(object, "podInitialBackoffSeconds", report);
    let max = read_seconds(object, "podMaxBackoffSeconds", report);
    let initial_or_default = initial.unwrap_or(crate::config::DEFAULT_INITIAL_BACKOFF.as_secs());
    let max_or_default = max.unwrap_or(crate::config::DEFAULT_MAX_BACKOFF.as_secs());
    if max_or_default < initial_or_default {
        // At least one of the two is in the file: the defaults are consistent.
        let blamed = ["podMaxBackoffSeconds", "podInitialBackoffSeconds"];
        let place = blamed.iter().find_map(|field| object.get(field)).map(|cursor| cursor.place);
        let message = format!(
            "podMaxBackoffSeconds ({max_or_default}) must not be less than podInitialBackoffSeconds \
             ({initial_or_default})"
        );
        report.invalid(&place.unwrap_or_else(|| object.place.clone()), message);
    }
    (initial, max)
}

fn read_seconds(object: &Object<'_>, field: &str, report: &mut Report<'_>) -> Option<u64> {
    let cursor = object.get(field)?;
    let value = cursor.long(report)?;
    if !(1..=LONGEST_SECONDS).contains(&value) {
        let message = format!("must be from 1 to {LONGEST_SECONDS} seconds, is {value}");
        report.invalid(&cursor.place, message);
        return None;
    }
    u64::try_from(value).ok()
}
