//! Answers about a cluster, from the scheduler's own plugins: `supercargo why`, `fits`, `pending`,
//! `what-if`, `resilience`, `empty` and `timeline`.
//!
//! A command reads the cluster once and decides in its process, so it works beside any scheduler.
//! With `--leader` or `--server` it asks a running supercargo, whose [endpoint](endpoint) answers
//! from a fork of its scheduler. With `--from` it asks a [file](file).

mod ask;
mod capture;
mod checkpoints;
mod cluster;
mod empty;
pub(crate) mod endpoint;
mod file;
mod file_catalog;
mod fits;
mod leader;
mod manifest;
mod pending;
mod progress;
mod question;
mod remote;
mod resilience;
mod timeline;
mod watch;
mod what_if;
mod why;

pub(crate) use self::ask::{Ask, Watched};
pub(crate) use self::capture::CaptureQuestion;
pub(crate) use self::checkpoints::Checkpoints;
pub(crate) use self::empty::Empty;
pub(crate) use self::endpoint::GOOD;
pub(crate) use self::file::{Files, TIMELINE_MEMORY, is_wrong_file, open as open_record};
pub(crate) use self::file_catalog::{FileCatalog, Reopened};
pub(crate) use self::fits::FitsQuestion;
pub(crate) use self::leader::{is_completion_for_kubectl, is_plugin_of_kubectl};
pub(crate) use self::pending::Pending;
pub(crate) use self::question::{Format, NO_ANSWER, key, pod_name, yaml};
pub(crate) use self::remote::{Target, Way, refusal};
pub(crate) use self::resilience::Resilience;
pub(crate) use self::timeline::TimelineQuestion;
pub(crate) use self::what_if::WhatIfQuestion;
pub(crate) use self::why::WhyQuestion;
