//! The two sides: their configuration and names.

use std::collections::BTreeSet;

/// Both schedulers' configuration.
const CONFIG: &str = include_str!("config.yaml");

/// The prefix of supercargo's profile names.
const PREFIX: &str = "supercargo-";

/// The feature gates of both schedulers and the API server: those of all scenarios, and these.
pub(super) fn gates(more: &BTreeSet<String>) -> Vec<String> {
    std::iter::once("GenericWorkload")
        .chain(more.iter().map(String::as_str))
        .map(|gate| format!("{gate}=true"))
        .collect()
}

/// One of the two schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchedulerKind {
    Upstream,
    Supercargo,
}

impl SchedulerKind {
    /// The scheduler name of a profile on this side.
    pub(super) fn scheduler_name(self, profile: &str) -> String {
        match self {
            Self::Upstream => profile.to_owned(),
            Self::Supercargo => format!("{PREFIX}{profile}"),
        }
    }

    /// A text with upstream's names of profiles.
    pub(super) fn with_profiles(self, text: &str) -> String {
        match self {
            Self::Upstream => text.to_owned(),
            Self::Supercargo => text.replace(PREFIX, ""),
        }
    }

    pub(super) fn config(self) -> String {
        match self {
            Self::Upstream => CONFIG.to_owned(),
            Self::Supercargo => CONFIG.replace("schedulerName: ", &format!("schedulerName: {PREFIX}")),
        }
    }
}
