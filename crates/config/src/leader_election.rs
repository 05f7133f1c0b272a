//! Leader election settings: the `leaderElection` field and its validation.

use std::time::Duration;

use super::cursor::Object;
use super::report::{FieldPosition, Report};
use crate::config::DEFAULT_SCHEDULER_NAME;
use supercargo_framework::go_duration;

const FIELDS: &[&str] = &[
    "leaderElect",
    "leaseDuration",
    "renewDeadline",
    "retryPeriod",
    "resourceLock",
    "resourceName",
    "resourceNamespace",
];

/// The only supported type of lock.
pub(crate) const LOCK: &str = "leases";

/// Upper bound of the jitter factor of the retry period.
const MOST_JITTER: f64 = 1.2;

/// Leader election settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Whether leader election is on. If it is off, every replica schedules.
    pub leader_elect: bool,
    /// How long candidates wait after the last observed renewal before one takes the lease.
    pub lease_duration: Duration,
    /// How long the leader retries a renewal before it gives up leading.
    pub renew_deadline: Duration,
    /// Time between attempts to acquire or renew the lease.
    pub retry_period: Duration,
    /// The name of the lease.
    pub resource_name: String,
    /// Its namespace.
    pub resource_namespace: String,
}

impl Default for LeaderElectionConfig {
    /// kube-scheduler's defaults, except for the lease name: the two must not compete for one
    /// lease.
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: DEFAULT_SCHEDULER_NAME.to_owned(),
            resource_namespace: "kube-system".to_owned(),
        }
    }
}

/// What sets a value.
#[derive(Clone, Debug, Default)]
pub(crate) enum Source {
    /// Nothing does.
    #[default]
    Default,
    /// The file, here.
    File(FieldPosition),
    /// A flag.
    Flag,
}

/// Settings that are not yet validated together: flags may override those of the file.
#[derive(Debug, Default)]
pub(crate) struct Election {
    pub(crate) config: LeaderElectionConfig,
    pub(crate) lease_duration: Source,
    pub(crate) renew_deadline: Source,
    pub(crate) retry_period: Source,
    /// A lock in the file that is not supported.
    pub(crate) other_lock: Option<FieldPosition>,
    /// Whether a field was rejected, so that the rest is incomplete.
    flawed: bool,
}

/// A period in an error.
struct Period<'a> {
    length: Duration,
    source: &'a Source,
    field: &'static str,
    flag: &'static str,
}

impl Period<'_> {
    /// The error that this period is too short beside another one. The source is what to change.
    fn too_short<'a>(&'a self, factor: &str, other: &'a Period<'_>) -> (&'a Source, String) {
        let blamed = if matches!(self.source, Source::Default) { other.source } else { self.source };
        let (short, limit) = (self.text(blamed), other.text(blamed));
        (blamed, format!("{short} must be longer than {factor}{limit}"))
    }

    /// The name where it is set, and the value. A default is called as where `beside` is set.
    fn text(&self, beside: &Source) -> String {
        let source = if matches!(self.source, Source::Default) { beside } else { self.source };
        let name = if matches!(source, Source::Flag) { self.flag } else { self.field };
        format!("{name} ({})", go_duration::format(self.length))
    }
}

impl Election {
    /// What sets the wrong one of two periods that contradict each other, and the error.
    pub(crate) fn contradiction(&self) -> Option<(Source, String)> {
        let Self { config, .. } = self;
        if !config.leader_elect || self.flawed {
            return None;
        }
        let lease = Period {
            length: config.lease_duration,
            source: &self.lease_duration,
            field: "leaseDuration",
            flag: "--leader-elect-lease-duration",
        };
        let renewal = Period {
            length: config.renew_deadline,
            source: &self.renew_deadline,
            field: "renewDeadline",
            flag: "--leader-elect-renew-deadline",
        };
        let retry = Period {
            length: config.retry_period,
            source: &self.retry_period,
            field: "retryPeriod",
            flag: "--leader-elect-retry-period",
        };
        let (blamed, message) = if lease.length <= renewal.length {
            lease.too_short("", &renewal)
        } else if renewal.length.as_secs_f64() <= retry.length.as_secs_f64() * MOST_JITTER {
            renewal.too_short(&format!("{MOST_JITTER} times "), &retry)
        } else {
            return None;
        };
        Some((blamed.clone(), message))
    }

    /// Reports what is wrong in the file. The lock is not checked if leader election is off.
    pub(super) fn check_file(&self, report: &mut Report<'_>) {
        if let Some(place) = self.other_lock.as_ref().filter(|_| self.config.leader_elect) {
            report.invalid(place, "must be leases, the only supported lock");
        }
        if let Some((Source::File(place), message)) = self.contradiction() {
            report.invalid(&place, message);
        }
    }
}

/// Reads the field `leaderElection`. Zero or empty values count as absent.
pub(super) fn read(top: &Object<'_>, report: &mut Report<'_>) -> Election {
    let mut election = Election::default();
    let cursor = top.get("leaderElection");
    let Some(object) = cursor.and_then(|cursor| cursor.object(FIELDS, report)) else {
        return election;
    };
    let before = report.count();
    let config = &mut election.config;
    if let Some(cursor) = object.get("leaderElect") {
        config.leader_elect = cursor.boolean(report).unwrap_or(config.leader_elect);
    }
    for (field, length, source) in [
        ("leaseDuration", &mut config.lease_duration, &mut election.lease_duration),
        ("renewDeadline", &mut config.renew_deadline, &mut election.renew_deadline),
        ("retryPeriod", &mut config.retry_period, &mut election.retry_period),
    ] {
        if let Some((found, place)) = read_length(&object, field, report) {
            (*length, *source) = (found, Source::File(place));
        }
    }
    for (field, name) in
        [("resourceName", &mut config.resource_name), ("resourceNamespace", &mut config.resource_namespace)]
    {
        let found = object.get(field).and_then(|cursor| cursor.string(report));
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            found.clone_into(name);
        }
    }
    election.other_lock = read_other_lock(&object, report);
    election.flawed = report.count() > before;
    election
}

fn read_length(
    object: &Object<'_>,
    field: &str,
    report: &mut Report<'_>,
) -> Option<(Duration, FieldPosition)> {
    let cursor = object.get(field)?;
    let length = go_duration::parse(cursor.string(report)?);
    if length.is_none() {
        report.invalid(&cursor.place, "must be a duration such as 15s or 1m30s");
    }
    length.filter(|length| !length.is_zero()).map(|length| (length, cursor.place))
}

/// The place of the lock, if it is not the supported one.
fn read_other_lock(object: &Object<'_>, report: &mut Report<'_>) -> Option<FieldPosition> {
    let cursor = object.get("resourceLock")?;
    let lock = cursor.string(report)?;
    (!lock.is_empty() && lock != LOCK).then_some(cursor.place)
}
