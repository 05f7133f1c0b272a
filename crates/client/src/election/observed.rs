//! Decides what a candidate may do, from its observations of the lease.

use std::time::Duration;

use tokio::time::Instant;

use super::lease::{Lease, Record};

/// The last observation of the lease.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) lease: Lease,
    pub(super) record: Record,
    /// When this record was first observed, by the local clock.
    pub(super) since: Instant,
}

/// What a candidate may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Renew: this candidate holds the lease.
    Renew,
    /// Take: the lease is free or expired.
    Take,
    /// Wait: another candidate holds the lease at least until then.
    Wait(Instant),
}

impl Observed {
    /// Observes the lease now. Only a changed record counts as a renewal, at the local time of its
    /// observation.
    pub(super) fn see(previous: Option<Self>, lease: Lease, now: Instant) -> Self {
        let record = lease.record();
        let since = previous.filter(|previous| previous.record == record).map_or(now, |same| same.since);
        Self { lease, record, since }
    }

    /// When the lease expires without another renewal.
    pub(super) fn end(&self) -> Instant {
        let seconds = u64::try_from(self.record.duration_seconds).unwrap_or(0);
        let end = self.since.checked_add(Duration::from_secs(seconds));
        // A duration out of the clock's range outlasts any process.
        end.unwrap_or_else(|| self.since + Duration::from_hours(24 * 365))
    }

    /// What the candidate `identity` may do now.
    pub(super) fn action(&self, identity: &str, now: Instant) -> Action {
        let end = self.end();
        if self.record.holder == identity {
            Action::Renew
        } else if self.record.holder.is_empty() || end <= now {
            Action::Take
        } else {
            Action::Wait(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, seconds: i64, renewed: &str) -> Lease {
        Lease::from_object(json!({
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed},
        }))
    }

    fn see(previous: Option<Observed>, lease: Lease, at: Instant) -> Observed {
        Observed::see(previous, lease, at)
    }

    #[test]
    fn expiry_counts_from_observed_changes_not_from_lease_times() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for renewed in ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "nonsense"] {
            let first = see(None, lease("other", 15, renewed), at(0));
            assert_eq!(first.action("me", at(0)), Action::Wait(at(15)));
            let again = see(Some(first.clone()), lease("other", 15, renewed), at(14));
            assert_eq!(again.action("me", at(14)), Action::Wait(at(15)));
            assert_eq!(again.action("me", at(15)), Action::Take);
            let renewed_again = see(Some(first), lease("other", 15, "later"), at(14));
            assert_eq!(renewed_again.action("me", at(28)), Action::Wait(at(29)));
        }
    }

    #[test]
    fn changes_outside_the_record_are_not_renewals() {
        let start = Instant::now();
        let mut object = json!({
            "metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}
        });
        let first = see(None, Lease::from_object(object.clone()), start);
        object["metadata"] = json!({"resourceVersion": "2", "labels": {"a": "b"}});
        let later = start + Duration::from_secs(15);
        assert_eq!(see(Some(first), Lease::from_object(object), later).action("me", later), Action::Take);
    }

    #[test]
    fn free_leases_are_taken_and_own_ones_renewed_after_expiry() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(see(None, lease("", 15, "x"), at(0)).action("me", at(0)), Action::Take);
        assert_eq!(see(None, lease("me", 15, "x"), at(0)).action("me", at(60)), Action::Renew);
        assert_eq!(see(None, lease("me2", 15, "x"), at(0)).action("me", at(0)), Action::Wait(at(15)));
    }

    #[test]
    fn a_lease_with_an_odd_duration_is_understood() {
        let start = Instant::now();
        for seconds in [0, -1, i64::MIN] {
            assert_eq!(see(None, lease("other", seconds, "x"), start).action("me", start), Action::Take);
        }
        let for_ever = see(None, lease("other", i64::MAX, "x"), start);
        assert!(matches!(for_ever.action("me", start + Duration::from_hours(1000)), Action::Wait(_)));
        let unsaid = Lease::from_object(json!({"spec": {"holderIdentity": "other"}}));
        assert_eq!(see(None, unsaid, start).action("me", start), Action::Take);
    }
}
