//! Names that objects share. There are few, so that selectors find something.

pub(super) const NAMESPACES: [&str; 3] = ["default", "prod", "dev"];

/// Values of the label `app`.
pub(super) const APPS: [&str; 3] = ["web", "db", "cache"];

/// Values of the label `track`.
pub(super) const TRACKS: [&str; 2] = ["stable", "canary"];
