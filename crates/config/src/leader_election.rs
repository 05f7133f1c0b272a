//! Leader election settings: the `leaderElection` field and its validation.

use std::time::Duration;

use super::cursor::Object;
use super::report::Report;
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

/// What the periods are called where they are set.
#[derive(Clone, Copy)]
pub(crate) struct SettingNames {
    pub(crate) lease_duration: &'static str,
    pub(crate) renew_deadline: &'static str,
    pub(crate) retry_period: &'static str,
}

/// The names in the file.
const FIELD_NAMES: SettingNames = SettingNames {
    lease_duration: "leaseDuration",
    renew_deadline: "renewDeadline",
    retry_period: "retryPeriod",
};

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

impl LeaderElectionConfig {
    /// Which setting is too short, and why, if the settings contradict each other. Texts call the
    /// settings by these names.
    pub(crate) fn problem(&self, names: SettingNames) -> Option<(&'static str, String)> {
        if !self.leader_elect {
            return None;
        }
        let [lease, renewal, retry] =
            [self.lease_duration, self.renew_deadline, self.retry_period].map(go_duration::format);
        if self.lease_duration <= self.renew_deadline {
            let message = format!("({lease}) must be longer than {} ({renewal})", names.renew_deadline);
            return Some((names.lease_duration, message));
        }
        if self.renew_deadline.as_secs_f64() <= self.retry_period.as_secs_f64() * MOST_JITTER {
            let message = format!(
                "({renewal}) must be longer than {MOST_JITTER} times {} ({retry})",
                names.retry_period
            );
            return Some((names.renew_deadline, message));
        }
        None
    }
}

/// Reads the field `leaderElection`. Zero or empty values count as absent.
pub(super) fn read(top: &Object<'_>, report: &mut Report<'_>) -> LeaderElectionConfig {
    let mut election = LeaderElectionConfig::default();
    let cursor = top.get("leaderElection");
    let Some(object) = cursor.and_then(|cursor| cursor.object(FIELDS, report)) else {
        return election;
    };
    let before = report.count();
    if let Some(cursor) = object.get("leaderElect") {
        election.leader_elect = cursor.boolean(report).unwrap_or(election.leader_elect);
    }
    for (field, length) in [
        ("leaseDuration", &mut election.lease_duration),
        ("renewDeadline", &mut election.renew_deadline),
        ("retryPeriod", &mut election.retry_period),
    ] {
        *length = read_length(&object, field, report).unwrap_or(*length);
    }
    for (field, name) in [
        ("resourceName", &mut election.resource_name),
        ("resourceNamespace", &mut election.resource_namespace),
    ] {
        let found = object.get(field).and_then(|cursor| cursor.string(report));
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            found.clone_into(name);
        }
    }
    check_lock(&object, election.leader_elect, report);
    if let (true, Some((field, message))) = (report.count() == before, election.problem(FIELD_NAMES)) {
        let fields = [field, "leaseDuration", "renewDeadline", "retryPeriod"];
        let blamed = fields.iter().find_map(|field| object.get(field)).map(|cursor| cursor.place);
        report.invalid(&blamed.unwrap_or_else(|| object.place.field(field)), format!("{field} {message}"));
    }
    election
}

fn read_length(object: &Object<'_>, field: &str, report: &mut Report<'_>) -> Option<Duration> {
    let cursor = object.get(field)?;
    let length = go_duration::parse(cursor.string(report)?);
    if length.is_none() {
        report.invalid(&cursor.place, "must be a duration such as 15s or 1m30s");
    }
    length.filter(|length| !length.is_zero())
}

/// The lock type is not checked if leader election is off.
fn check_lock(object: &Object<'_>, elects: bool, report: &mut Report<'_>) {
    let Some(cursor) = object.get("resourceLock") else { return };
    let lock = cursor.string(report);
    if elects && lock.is_some_and(|lock| !lock.is_empty() && lock != LOCK) {
        report.invalid(&cursor.place, "must be leases, the only supported lock");
    }
}
