//! The two sides: their configuration and names.

/// Both schedulers' configuration.
const CONFIG: &str = include_str!("config.yaml");

/// The prefix of supercargo's profile names.
const PREFIX: &str = "supercargo-";

/// One of the two schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Upstream,
    Supercargo,
}

impl Side {
    /// The scheduler name of a profile on this side.
    pub(super) fn scheduler_name(self, profile: &str) -> String {
        match self {
            Self::Upstream => profile.to_owned(),
            Self::Supercargo => format!("{PREFIX}{profile}"),
        }
    }

    /// The profile of a scheduler name.
    pub(super) fn profile(self, scheduler_name: &str) -> String {
        match self {
            Self::Upstream => scheduler_name.to_owned(),
            Self::Supercargo => {
                let profile = scheduler_name.strip_prefix(PREFIX);
                profile.unwrap_or(scheduler_name).to_owned()
            }
        }
    }

    pub(super) fn config(self) -> String {
        match self {
            Self::Upstream => CONFIG.to_owned(),
            Self::Supercargo => CONFIG.replace("schedulerName: ", &format!("schedulerName: {PREFIX}")),
        }
    }
}
