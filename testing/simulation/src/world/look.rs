//! What is looked at after each slice, and from time to time.

use std::collections::BTreeSet;
use std::time::Duration;

use supercargo_scheduler::{Scheduler, Stats};

use super::{FEW_CHANGES, World, owners};
use crate::api::{self, COMPOSITES, MEMBERS, POD_GROUPS, list};
use crate::invariants::{OnNodes, Waiting, is_incomplete};

/// How often the inner consistency of schedulers is checked.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
/// How often etcd is backed up, and how many backups are kept.
const BACKUP_PERIOD: Duration = Duration::from_mins(1);
const BACKUPS: usize = 5;
/// Changes that a scheduler keeps for its evaluation tables for each pod and node. A removal is
/// counted after its change.
const CHANGES_EACH: usize = 4;
const MOST_REMOVED: usize = 100;

impl World {
    /// What a scheduler has more of than its bounds allow.
    pub fn surplus(&self, stats: &Stats) -> Vec<String> {
        let objects = stats.nodes + stats.pods + MOST_REMOVED;
        let bounds = [
            ("bytes of evaluation tables", stats.tables.bytes, self.table_memory),
            ("changes in the log", stats.changes, FEW_CHANGES.max(CHANGES_EACH * objects)),
        ];
        let above = bounds.iter().filter(|(_, size, most)| size > most);
        above.map(|(what, size, most)| format!("{size} {what}, {most} at most")).collect()
    }

    /// Looks at each write of a claim and each bind of a member, and at the state of all parts from
    /// time to time.
    pub(super) fn look(&mut self) {
        self.look_at_writes();
        if self.now >= self.checked + CHECK_PERIOD {
            self.checked = self.now;
            self.look_at_schedulers();
            if self.has_groups {
                self.look_at_groups();
            }
        }
        if self.now >= self.backed_up + BACKUP_PERIOD {
            self.backed_up = self.now;
            self.backups.push(self.server.backup());
            if self.backups.len() > BACKUPS {
                self.backups.remove(0);
            }
        }
    }

    fn look_at_writes(&self) {
        let mut checker = self.checker.lock();
        checker.add_up_claims(&self.server, None);
        checker.check_binds(|process| {
            let mut owners = self.owners().filter(|(name, _)| ***name == *process);
            owners.next().map(|(_, owner)| on_nodes(owner.scheduler()))
        });
    }

    fn look_at_schedulers(&mut self) {
        self.checker.lock().check_gangs();
        let mut found = Vec::new();
        for (process, owner) in self.owners() {
            let scheduler = owner.scheduler();
            let what = scheduler.inconsistencies().into_iter().chain(self.surplus(&scheduler.stats()));
            found.extend(what.map(|what| format!("{process}: {what}")));
        }
        let mut checker = self.checker.lock();
        checker.trace.count("checks of inner consistency", 1);
        found.into_iter().for_each(|what| checker.fail(what));
        drop(checker);
        let owners = owners(&self.machines).map(|(process, owner)| (process, owner.scheduler()));
        self.retained.see(owners);
    }

    /// How often the leader has tried the pods of complete groups.
    fn look_at_groups(&self) {
        let Some(slot) = self.leader().map(|leader| &self.machines[leader]) else { return };
        let Some(owner) = slot.machine.as_ref().and_then(|machine| machine.owner()) else { return };
        let pods = self.within(list(&self.server, MEMBERS));
        let gangs = self.within(list(&self.server, POD_GROUPS));
        let trees = self.within(list(&self.server, COMPOSITES));
        let is_waiting = |pod: &&serde_json::Value| {
            let is_there = api::node_of(pod).is_empty() && pod["metadata"]["deletionTimestamp"].is_null();
            is_there && !is_incomplete(pod, &gangs, &trees, &pods)
        };
        let waiting = pods.iter().filter(is_waiting).map(|pod| Waiting {
            name: api::name(pod).to_owned(),
            uid: api::uid(pod).to_owned(),
            attempts: owner.scheduler().queued(&api::uid(pod).into()).map(|queued| queued.attempts),
        });
        self.checker.lock().check_waits(&slot.process, slot.calm, waiting.collect());
    }
}

/// The pods of gangs that a scheduler has on nodes.
fn on_nodes(scheduler: &Scheduler) -> OnNodes {
    let mut found = OnNodes::new();
    for pod in scheduler.cache().pods() {
        if let Some(gang) = pod.spec.group() {
            let uids: &mut BTreeSet<String> = found.entry(gang.to_string()).or_default();
            uids.insert(pod.uid.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::InvariantChecker;
    use crate::plan::Plan;
    use crate::trace::Trace;

    #[test]
    fn tables_and_the_log_of_changes_have_limits() {
        let plan = Plan { table_memory: 1000, ..Plan::new(1, Duration::ZERO, &[]) };
        let world = World::new(&plan, || InvariantChecker::new(Trace::new(false)), None).unwrap();
        let mut stats = Stats { changes: FEW_CHANGES, ..Stats::default() };
        stats.tables.bytes = 1000;
        assert!(world.surplus(&stats).is_empty());
        stats.tables.bytes += 1;
        assert_eq!(world.surplus(&stats), ["1001 bytes of evaluation tables, 1000 at most"]);
        stats = Stats { changes: FEW_CHANGES + 1, ..Stats::default() };
        assert_eq!(world.surplus(&stats), ["1025 changes in the log, 1024 at most"]);
        // Many pods and nodes allow for more.
        stats.pods = FEW_CHANGES;
        assert!(world.surplus(&stats).is_empty());
    }
}
