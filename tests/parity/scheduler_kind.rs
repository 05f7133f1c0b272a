//! The two sides: their configuration and names.

use std::collections::BTreeSet;

/// Both schedulers' configuration.
const CONFIG: &str = include_str!("config.yaml");

/// The prefix of supercargo's profile names.
const PREFIX: &str = "supercargo-";

/// The feature gates that a scenario needs beside those of all scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gates {
    /// On in both schedulers and the API server.
    pub(super) on: BTreeSet<String>,
    /// Off in both schedulers.
    pub(super) off: BTreeSet<String>,
}

impl Gates {
    /// Those of the API server, as `Name=true`. It serves the fields of gates that are off.
    pub(super) fn of_server(&self) -> Vec<String> {
        let all = ["GenericWorkload"].into_iter().chain(self.on.iter().map(String::as_str));
        all.map(|gate| format!("{gate}=true")).collect()
    }

    /// Those of the schedulers, as the value of a flag.
    pub(super) fn of_schedulers(&self) -> String {
        let off = self.off.iter().map(|gate| format!("{gate}=false"));
        self.of_server().into_iter().chain(off).collect::<Vec<_>>().join(",")
    }
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

    pub(super) fn config(self, gates: &Gates) -> String {
        let mut config = CONFIG.to_owned();
        if gates.off.contains("DRADeviceBindingConditions") {
            // The argument is rejected then.
            config = config.replace("bindingTimeout: 3s", "");
        }
        match self {
            Self::Upstream => config,
            Self::Supercargo => config.replace("schedulerName: ", &format!("schedulerName: {PREFIX}")),
        }
    }
}
