//! One seed, from its beginning to the checks at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use http::Method;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use supercargo_apiserver::ApiServer;
use supercargo_scheduler::Stats;

use crate::api::{self, COMPOSITES, POD_GROUPS, PODS, RESOURCE_CLAIMS, ask, list};
use crate::invariants::{InvariantChecker, LEASE, LEASE_PATH, claim_of, is_incomplete};
use crate::machine::cpu_time;
use crate::plan::{LAST_FAULT, Mood, Plan};
use crate::sabotage::Sabotage;
use crate::trace::Trace;
use crate::workload::Workload;
use crate::world::{FEW_CHANGES, World};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// How long pods that fit may wait after the last fault: two leases, the longest backoff, and as
/// long as a connection is dead before its process notices it.
const SETTLING: Duration = Duration::from_secs(2 * LEASE.as_secs() + 10 + 20);
/// How long until a pod has a node that waited for another to go. Less than until the next flush.
const HINTED: Duration = Duration::from_secs(30);
/// How long until each waiting pod has been tried again, whatever the hints say.
const FLUSHING: Duration = Duration::from_mins(7);
/// How long until series of events are over.
const FORGETTING: Duration = Duration::from_mins(8);
/// How long until a new process has everything that the server has, and one of them leads.
const SYNCING: Duration = Duration::from_mins(1);
/// The bytes that a process may have once its pods are gone, beside twice those of a new process
/// and its tables: lists and maps keep the room of their busiest time, and buffers that of the
/// largest object. Up to 3.8 MB were measured, beside a new process of 1.3 MB.
const MOST_GROWTH: usize = 4 << 20;
/// Pods of each kind that are created at the end.
const PROBES: usize = 5;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// How long there are workload and faults.
    pub length: Duration,
    /// Faults to leave out, by their positions.
    pub without: Vec<usize>,
    /// A deliberate fault of the program.
    pub sabotage: Option<Sabotage>,
    /// Whether the trace is printed.
    pub trace: bool,
}

/// What a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How much went wrong, by plan.
    pub mood: Mood,
    /// Simulated time.
    pub simulated: Duration,
    /// The CPU time that it took. Differs from run to run.
    pub took: Duration,
    /// The hash of the trace.
    pub hash: u64,
    /// How often things happened.
    pub counts: BTreeMap<String, u64>,
    /// What did not hold.
    pub failures: Vec<String>,
}

/// Runs a seed.
pub fn run(options: &Options) -> Result<Report> {
    let began = cpu_time();
    let plan = Plan::new(options.seed, options.length, &options.without);
    let mut world = World::new(&plan, || InvariantChecker::new(Trace::new(options.trace)), options.sabotage)?;
    let mut workload = world.within(Workload::new(world.server.clone(), Arc::clone(&world.checker), &plan));
    live(&mut world, &mut workload, &plan)?;
    if !world.has_failed() {
        end(&mut world, &mut workload, &plan)?;
    }
    let checker = world.checker.lock();
    let counts = checker.trace.counts().iter().map(|(what, count)| ((*what).to_owned(), *count));
    Ok(Report {
        seed: options.seed,
        mood: plan.mood,
        simulated: world.now,
        took: cpu_time().saturating_sub(began),
        hash: checker.trace.hash(),
        counts: counts.collect(),
        failures: checker.failures.clone(),
    })
}

/// The time with workload and faults.
fn live(world: &mut World, workload: &mut Workload, plan: &Plan) -> Result<()> {
    let mut faults = plan.faults.iter().peekable();
    let mut acts_at = Duration::ZERO;
    while world.now < plan.length && !world.has_failed() {
        while let Some(fault) = faults.next_if(|fault| fault.at <= world.now) {
            world.begin(fault)?;
        }
        if acts_at <= world.now {
            world.within(workload.act());
            acts_at = world.now + workload.pause();
        }
        let next = faults.peek().map_or(plan.length, |fault| fault.at).min(plan.length).min(acts_at);
        world.run_until(next.max(world.now + Duration::from_millis(1)))?;
    }
    Ok(())
}

/// The end of the faults, the time without any, and what must hold then.
fn end(world: &mut World, workload: &mut Workload, plan: &Plan) -> Result<()> {
    world.within(workload.heal_nodes());
    for fault in plan.faults.iter().filter(|fault| fault.at >= plan.length) {
        world.begin(fault)?;
    }
    let probes = world.within(workload.add_probes(PROBES));
    world.run_until(world.now + LAST_FAULT)?;
    world.heal()?;
    let healed = world.now;
    let late_probes = world.within(workload.add_late_probes(PROBES));
    world.run_until(world.now + SETTLING)?;
    let is_calm = world.checker.lock().is_calm();
    let calm_probes = world.within(workload.make_way());
    world.run_until(world.now + HINTED)?;
    world.within(check_probes(&world.server, &world.checker, &probes, &late_probes, healed));
    world.within(check_calm_probes(&world.server, &world.checker, &calm_probes, is_calm));
    let waiting = world.within(waiting(&world.server));
    world.run_until(world.now + FLUSHING)?;
    let still_waiting = world.within(self::waiting(&world.server));
    let pods = world.within(list(&world.server, PODS));
    let is_found = |pod: &&Value| waiting.contains_key(api::uid(pod)) && !api::node_of(pod).is_empty();
    let found = pods.iter().filter(is_found).count();
    world.checker.lock().trace.count("pods found only at the flush", found as u64);
    check_leader(world);
    world.within(check_conditions(&world.server, &world.checker, &still_waiting));
    world.within(InvariantChecker::check_special_claims(&world.checker, &world.server));
    check_that_none_fits(world, plan, &still_waiting)?;
    workload_gone(world, workload)
}

/// Pods without a node that neither gates nor their claims hold, by UID.
async fn waiting(server: &ApiServer) -> BTreeMap<String, Value> {
    let pods = list(server, PODS).await.into_iter();
    let claims = list(server, RESOURCE_CLAIMS).await;
    let claims: BTreeMap<&str, &Value> = claims.iter().map(|claim| (api::name(claim), claim)).collect();
    let is_gated =
        |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let is_waiting = |pod: &Value| {
        let is_held = is_gated(pod) || !has_claims(pod, &claims);
        api::node_of(pod).is_empty() && !is_held && pod["metadata"]["deletionTimestamp"].is_null()
    };
    pods.filter(is_waiting).map(|pod| (api::uid(&pod).to_owned(), pod)).collect()
}

/// Whether the claims of a pod exist. Otherwise PreEnqueue holds it, which writes no condition.
fn has_claims(pod: &Value, claims: &BTreeMap<&str, &Value>) -> bool {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let statuses = items(&pod["status"]["resourceClaimStatuses"]);
    let usable = |name: &str| {
        claims.get(name).is_some_and(|claim| {
            let owners = items(&claim["metadata"]["ownerReferences"]);
            let is_of_another = owners.iter().any(|owner| owner["uid"] != *api::uid(pod));
            claim["metadata"]["deletionTimestamp"].is_null() && !is_of_another
        })
    };
    items(&pod["spec"]["resourceClaims"]).iter().all(|entry| claim_of(entry, &statuses).is_some_and(usable))
}

fn check_leader(world: &World) {
    let lease = world.within(ask(&world.server, Method::GET, LEASE_PATH, None)).1;
    let holder = api::text(&lease, "/spec/holderIdentity");
    let leads = |process: &str| holder.strip_prefix(process).is_some_and(|rest| rest.starts_with('_'));
    let leaders = world.owners().filter(|(process, _)| leads(process)).count();
    let writers = world.writers();
    let mut checker = world.checker.lock();
    if leaders != 1 {
        checker.fail(format!("{leaders} running processes hold the lease of {holder:?}"));
    }
    if !matches!(&writers[..], [one] if leads(one)) {
        checker.fail(format!("{writers:?} may write, and {holder:?} holds the lease"));
    }
}

/// Each pod that waits says why: by its condition, and by an event if it has waited since the end.
async fn check_conditions(
    server: &ApiServer,
    checker: &Mutex<InvariantChecker>,
    waiting: &BTreeMap<String, Value>,
) {
    let (pods, gangs) = (list(server, PODS).await, list(server, POD_GROUPS).await);
    let trees = list(server, COMPOSITES).await;
    let events = list(server, EVENTS).await;
    let failed = events.iter().filter(|event| event["reason"] == "FailedScheduling");
    let failed: BTreeSet<&str> = failed.map(|event| api::text(event, "/regarding/uid")).collect();
    let waits =
        |pod: &&Value| waiting.contains_key(api::uid(pod)) && !is_incomplete(pod, &gangs, &trees, &pods);
    for pod in pods.iter().filter(waits) {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut scheduled = conditions.filter(|condition| condition["type"] == "PodScheduled");
        if scheduled.next().is_none_or(|condition| condition["status"] != "False") {
            checker.lock().fail(format!("pod {} waits, and its conditions do not say why", api::name(pod)));
        }
        if Workload::is_nowhere(api::name(pod)) && !failed.contains(api::uid(pod)) {
            checker.lock().fail(format!("pod {} waits, and no event says why", api::name(pod)));
        }
    }
}

/// Pods that were created at the end have a node, and did not wait too long for it. Those of the
/// time after the last fault have an event, too: writing one is given up if requests are lost, or
/// if its process loses the lease, which may be due to the last fault.
async fn check_probes(
    server: &ApiServer,
    checker: &Mutex<InvariantChecker>,
    probes: &[String],
    late: &[String],
    healed: Duration,
) {
    let events = list(server, EVENTS).await;
    let is_scheduled = |event: &&Value| event["reason"] == "Scheduled";
    let scheduled: BTreeSet<&str> =
        events.iter().filter(is_scheduled).map(|event| api::text(event, "/regarding/uid")).collect();
    for path in probes.iter().chain(late) {
        let pod = ask(server, Method::GET, path, None).await.1;
        let bound_at = checker.lock().bound_at(api::uid(&pod)).unwrap_or_default();
        let delay = bound_at.saturating_sub(healed);
        // A lonely pod waits for another one to go.
        if !Workload::is_lonely(path) {
            checker.lock().trace.greatest("longest wait at the end, ms", delay.as_millis() as u64);
            if delay > SETTLING {
                checker.lock().fail(format!("{path} was bound {delay:?} after the faults"));
            }
        }
        if api::node_of(&pod).is_empty() {
            checker.lock().fail(format!("{path} was created at the end, and has no node"));
        } else if late.contains(path)
            && !scheduled.contains(api::uid(&pod))
            && checker.lock().is_bound_by_leader(api::uid(&pod))
        {
            checker.lock().fail(format!("{path} has a node, and no event"));
        }
    }
}

/// Pods of groups that no fault met have a node, and each of their binds has been checked, unless
/// etcd was restored shortly before.
async fn check_calm_probes(
    server: &ApiServer,
    checker: &Mutex<InvariantChecker>,
    probes: &[String],
    is_calm: bool,
) {
    for path in probes {
        let pod = ask(server, Method::GET, path, None).await.1;
        if api::node_of(&pod).is_empty() {
            checker.lock().fail(format!("{path} was created at the end, and has no node"));
        }
    }
    let mut checker = checker.lock();
    let checks = checker.trace.counts().get("checks of gangs at a bind").copied().unwrap_or_default();
    if is_calm && checks < probes.len() as u64 && checker.failures.is_empty() {
        checker.fail(format!("{checks} binds of {} members were checked", probes.len()));
    }
}

/// A new scheduler, which tries every pod, finds a node for none that waits.
fn check_that_none_fits(world: &World, plan: &Plan, waiting: &BTreeMap<String, Value>) -> Result<()> {
    // Without memory for evaluation tables, every node is evaluated for every pod.
    let quiet = Plan { faults: Vec::new(), table_memory: 0, ..plan.clone() };
    let mut other = World::new(&quiet, || InvariantChecker::new(Trace::new(false)), None)?;
    // The lease is not held there, and events are of no account.
    let saved = world.server.save();
    let is_left_out =
        |object: &&str| object.lines().any(|line| line == "kind: Lease" || line == "kind: Event");
    let objects: Vec<&str> = saved.split("---\n").filter(|object| !is_left_out(object)).collect();
    other.server.load(&objects.join("---\n"))?;
    other.run_until(SETTLING)?;
    let pods = other.within(list(&other.server, PODS));
    let mut checker = world.checker.lock();
    for pod in pods.iter().filter(|pod| waiting.contains_key(api::uid(pod)) && !api::node_of(pod).is_empty())
    {
        let (name, node) = (api::name(pod), api::node_of(pod));
        checker.fail(format!("pod {name} waits, and a new scheduler binds it to {node}"));
    }
    let failures: Vec<String> = other.checker.lock().failures.clone();
    failures.into_iter().for_each(|what| checker.fail(format!("in the copy: {what}")));
    checker.trace.count("waiting pods tried by a new scheduler", waiting.len() as u64);
    Ok(())
}

/// Nothing is left of pods that are gone.
fn workload_gone(world: &mut World, workload: &mut Workload) -> Result<()> {
    world.clear(workload);
    world.run_until(world.now + FORGETTING)?;
    world.within(workload.fill_logs(FEW_CHANGES));
    world.run_until(world.now + HINTED)?;
    check_sizes(world);
    check_memory(world)
}

/// No part of a scheduler has more than what there is.
fn check_sizes(world: &World) {
    let nodes = world.within(list(&world.server, "/api/v1/nodes")).len();
    let claims = world.within(list(&world.server, RESOURCE_CLAIMS)).len();
    let (mut left, mut largest) = (Vec::new(), 0);
    for (process, owner) in world.owners() {
        let stats = owner.scheduler().stats();
        // Not even the log of changes holds them: it is full of others.
        let (pods, old_nodes) =
            (world.retained().pods(process), world.retained().old_nodes(process, owner.scheduler()));
        let held = [("deleted pods", pods, 0), ("old nodes", old_nodes, 0)];
        let surplus =
            sizes(&stats, nodes).into_iter().chain(held).filter(|(_, size, expected)| size != expected);
        left.extend(
            surplus.map(|(what, size, expected)| format!("{process}: {size} {what}, {expected} expected")),
        );
        largest = largest.max(stats.tables.bytes);
    }
    if claims > 0 {
        left.push(format!("{claims} claims, 0 expected"));
    }
    let mut checker = world.checker.lock();
    checker.trace.greatest("largest tables that were left, bytes", largest as u64);
    left.into_iter().for_each(|what| checker.fail(format!("after all pods are gone: {what}")));
}

/// What a scheduler has without pods, and how much it should be.
fn sizes(stats: &Stats, nodes: usize) -> [(&'static str, usize, usize); 10] {
    let groups = stats.groups.unwrap_or_default();
    [
        ("queued pods", stats.unscheduled_pods(), 0),
        ("pods that wait for a group", groups.incomplete + groups.pending, 0),
        ("cached pods", stats.pods, 0),
        ("pending pods", stats.pending_pods, 0),
        ("assumed pods", stats.assumed_pods, 0),
        ("bindings", stats.bindings, 0),
        ("preemptions", stats.preemptions, 0),
        ("pending allocations", stats.pending_allocations, 0),
        ("events in flight", stats.events_in_flight.len(), 0),
        ("nodes", stats.nodes, nodes),
    ]
}

/// No process has much more memory than one that starts now.
fn check_memory(world: &mut World) -> Result<()> {
    let old = world.weigh();
    world.run_until(world.now + SYNCING)?;
    let new = world.weigh().into_iter().map(|(_, bytes)| bytes).max().unwrap_or_default();
    let mut checker = world.checker.lock();
    for (process, bytes) in old {
        let more = bytes.saturating_sub(new);
        checker.trace.greatest("largest growth of a process, bytes", more as u64);
        if more > new + MOST_GROWTH {
            checker.fail(format!("{process} has {bytes} bytes of memory, and a new process {new}"));
        }
    }
    checker.trace.greatest("largest new process, bytes", new as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_scheduler::GroupLengths;

    #[test]
    fn every_size_of_a_scheduler_without_pods_is_checked() {
        let surplus = |change: fn(&mut Stats)| {
            let mut stats = Stats { nodes: 3, ..Stats::default() };
            change(&mut stats);
            let sizes = sizes(&stats, 3).into_iter().filter(|(_, size, expected)| size != expected);
            sizes.map(|(what, ..)| what).collect::<Vec<_>>()
        };
        assert!(surplus(|_| ()).is_empty());
        type Change = (fn(&mut Stats), &'static str);
        let changes: [Change; 12] = [
            (|stats| stats.queue[0] = 1, "queued pods"),
            (|stats| stats.queue[4] = 1, "queued pods"),
            (
                |stats| stats.groups = Some(GroupLengths { pods: [0, 0, 0, 1], ..GroupLengths::default() }),
                "queued pods",
            ),
            (
                |stats| stats.groups = Some(GroupLengths { pending: 1, ..GroupLengths::default() }),
                "pods that wait for a group",
            ),
            (|stats| stats.pods = 1, "cached pods"),
            (|stats| stats.pending_pods = 1, "pending pods"),
            (|stats| stats.assumed_pods = 1, "assumed pods"),
            (|stats| stats.bindings = 1, "bindings"),
            (|stats| stats.preemptions = 1, "preemptions"),
            (|stats| stats.pending_allocations = 1, "pending allocations"),
            (|stats| stats.events_in_flight.push(("a".to_owned(), 1)), "events in flight"),
            (|stats| stats.nodes = 2, "nodes"),
        ];
        for (change, what) in changes {
            assert_eq!(surplus(change), [what]);
        }
    }
}
