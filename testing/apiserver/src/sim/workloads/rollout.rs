//! The progress of a deployment from one replica set to the next.

use serde_json::Value;

use super::scaled;
use crate::json::{int, text_at};

/// A replica set.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) value: Value,
    /// The desired number of pods.
    pub(super) replicas: i64,
    /// The current number of pods.
    pub(super) actual: i64,
    pub(super) ready: i64,
    pub(super) available: i64,
    pub(super) terminating: i64,
}

impl Set {
    pub(super) fn of(value: Value) -> Self {
        let number = |field| int(&value["status"], field).unwrap_or_default();
        Self {
            replicas: int(&value["spec"], "replicas").unwrap_or(1),
            actual: number("replicas"),
            ready: number("readyReplicas"),
            available: number("availableReplicas"),
            terminating: number("terminatingReplicas"),
            value,
        }
    }

    pub(super) fn revision(&self) -> i64 {
        let text = &self.value["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        text.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// The minimum and maximum number of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) replicas: i64,
    pub(super) max_surge: i64,
    pub(super) max_unavailable: i64,
    /// Whether new pods are created before the old ones are gone.
    pub(super) surges: bool,
    observes: bool,
}

impl Plan {
    pub(super) fn of(deployment: &Value) -> Self {
        let spec = &deployment["spec"];
        let replicas = int(spec, "replicas").unwrap_or(1);
        let surges = text_at(spec, "/strategy/type") != "Recreate";
        let rolling = &spec["strategy"]["rollingUpdate"];
        let (surge, unavailable) = if surges {
            let surge = scaled(&rolling["maxSurge"], replicas, true);
            let unavailable = scaled(&rolling["maxUnavailable"], replicas, false);
            // If both round down to zero, the rollout could not progress.
            (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
        } else {
            (0, 0)
        };
        let observes = int(&deployment["status"], "observedGeneration").unwrap_or_default()
            >= int(&deployment["metadata"], "generation").unwrap_or_default();
        Self { replicas, max_surge: surge, max_unavailable: unavailable.min(replicas), surges, observes }
    }

    /// The initial number of replicas of a new replica set, given those of the others.
    pub(super) fn first_replicas(&self, others: i64) -> i64 {
        if self.surges {
            (self.replicas + self.max_surge - others).clamp(0, self.replicas)
        } else {
            self.replicas
        }
    }

    pub(super) fn is_complete(&self, sets: &[Set], newest: usize) -> bool {
        let sum = |of: fn(&Set) -> i64| sets.iter().map(of).sum::<i64>();
        self.observes
            && sets[newest].actual == self.replicas
            && sum(|set| set.actual) == self.replicas
            && sum(|set| set.available) == self.replicas
    }

    /// The target replicas of each replica set.
    pub(super) fn targets(
        &self,
        sets: &[Set],
        newest: Option<usize>,
        is_paused: bool,
        old_are_gone: bool,
    ) -> Vec<(usize, i64)> {
        let mut targets: Vec<i64> = sets.iter().map(|set| set.replicas).collect();
        if is_paused {
            // Nothing to roll out; only the active replica set is scaled.
            let active: Vec<usize> = (0..sets.len()).filter(|at| sets[*at].replicas > 0).collect();
            let only = match active.as_slice() {
                [] => newest,
                [only] => Some(*only),
                _ => None,
            };
            if let Some(only) = only {
                targets[only] = self.replicas;
            }
        } else if self.surges {
            self.roll(sets, newest, &mut targets);
        } else {
            for (at, target) in targets.iter_mut().enumerate() {
                if Some(at) != newest {
                    *target = 0;
                } else if old_are_gone {
                    *target = self.replicas;
                }
            }
        }
        let changed = targets.into_iter().enumerate().filter(|(at, target)| *target != sets[*at].replicas);
        changed.collect()
    }

    fn roll(&self, sets: &[Set], newest: Option<usize>, targets: &mut [i64]) {
        let Some(newest) = newest else { return };
        let total: i64 = targets.iter().sum();
        let set = &sets[newest];
        if set.replicas > self.replicas {
            targets[newest] = self.replicas;
            return;
        }
        // Pods that a replica set has yet to delete still count.
        let there: i64 = sets.iter().map(|set| set.replicas.max(set.actual)).sum();
        let room = self.replicas + self.max_surge - there;
        if set.replicas < self.replicas && room > 0 {
            targets[newest] = (set.replicas + room).min(self.replicas);
            return;
        }
        let least = self.replicas - self.max_unavailable;
        let mut surplus = total - least - (set.replicas - set.available);
        if surplus <= 0 {
            return;
        }
        let old: Vec<usize> = (0..sets.len()).filter(|at| *at != newest).collect();
        // Unavailable pods are deleted first.
        for at in &old {
            let unavailable = (targets[*at] - sets[*at].available).clamp(0, surplus);
            targets[*at] -= unavailable;
            surplus -= unavailable;
        }
        // Pods that a replica set has yet to delete count as gone.
        let available: i64 = sets.iter().map(|set| set.available.min(set.replicas)).sum();
        let mut surplus = (available - least).max(0);
        for at in &old {
            let taken = targets[*at].min(surplus);
            targets[*at] -= taken;
            surplus -= taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(replicas: i64, available: i64) -> Set {
        let status =
            json!({"replicas": replicas, "readyReplicas": available, "availableReplicas": available});
        Set::of(json!({"spec": {"replicas": replicas}, "status": status}))
    }

    fn plan(kind: &str, replicas: i64, surge: Value, unavailable: Value) -> Plan {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        Plan::of(
            &json!({"spec": {"replicas": replicas, "strategy": {"type": kind, "rollingUpdate": rolling}}}),
        )
    }

    #[test]
    fn old_pods_are_deleted_as_new_ones_become_available() {
        let plan = plan("RollingUpdate", 10, json!("25%"), json!("25%"));
        assert_eq!((plan.max_surge, plan.max_unavailable), (3, 2));
        let targets = |old: Set, new: Set| plan.targets(&[old, new], Some(1), false, false);
        assert_eq!(plan.first_replicas(10), 3);
        assert_eq!(targets(set(10, 10), set(3, 0)), [(0, 8)]);
        assert_eq!(targets(set(8, 8), set(3, 0)), [(1, 5)]);
        assert_eq!(targets(set(8, 8), set(5, 0)), []);
        assert_eq!(targets(set(8, 8), set(5, 3)), [(0, 5)]);
        assert_eq!(targets(set(0, 0), set(10, 10)), []);
        // Pods that are yet to be deleted do not count as available, but still count as existing.
        let stale = Set { actual: 8, ..set(7, 8) };
        assert_eq!(targets(stale.clone(), set(5, 4)), [(0, 4)]);
        assert_eq!(targets(stale, set(5, 2)), [(0, 6)]);
        // Unavailable pods need not be waited for.
        assert_eq!(targets(set(8, 3), set(5, 5)), [(0, 3)]);
    }

    #[test]
    fn rollout_progresses_when_both_bounds_round_to_zero() {
        let plan = plan("RollingUpdate", 1, json!(0), json!("25%"));
        assert_eq!(plan.max_unavailable, 1);
        assert_eq!(plan.first_replicas(1), 0);
        assert_eq!(plan.targets(&[set(1, 1), set(0, 0)], Some(1), false, false), [(0, 0)]);
    }

    #[test]
    fn recreate_waits_until_old_pods_are_gone() {
        let plan = plan("Recreate", 2, Value::Null, Value::Null);
        assert_eq!(plan.targets(&[set(2, 2)], None, false, false), [(0, 0)]);
        let sets = [set(0, 0), set(0, 0)];
        assert_eq!(plan.targets(&sets, Some(1), false, false), []);
        assert_eq!(plan.targets(&sets, Some(1), false, true), [(1, 2)]);
    }

    #[test]
    fn paused_deployment_can_be_scaled() {
        let plan = plan("RollingUpdate", 5, json!(1), json!(0));
        assert_eq!(plan.targets(&[set(2, 2)], None, true, false), [(0, 5)]);
        assert_eq!(plan.targets(&[set(2, 2), set(1, 0)], Some(1), true, false), []);
    }
}
