//! Answers about a cluster, from the scheduler: as text of 80 columns for people, and as JSON for
//! programs. This crate asks nothing and prints nothing.

mod closed_loop;
mod comparison;
mod decisions;
mod devices;
mod group;
mod groups;
mod influence;
mod node;
mod overview;
mod place;
mod pools;
mod search;
mod timeline;
mod what_if;
pub mod words;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::taint::Taint;
use supercargo_framework::{ClusterEvent, EventResource, PodInfo};
use supercargo_scheduler::{Detail, Fits, Fix, PluginScores, PodFix, Refusal, Shortage, Why};

pub use self::closed_loop::{modelled_run, modelled_run_json};
pub use self::comparison::{comparison, comparison_json};
pub use self::decisions::decisions;
pub use self::devices::devices;
pub use self::groups::groups;
pub use self::influence::{influence, influence_json};
pub use self::node::node;
pub use self::overview::overview;
pub use self::place::place;
pub use self::search::search;
pub use self::timeline::{moment, timeline, timeline_json};
pub use self::what_if::{first_obstacle, obstacle_json, what_if, what_if_json};
use self::words::{count, printable, printable_json, quantity, wrap};

/// The version of the answers for programs.
const API_VERSION: &str = "insight.supercargo.dev/v1alpha1";
/// The UID of a pod that is in a manifest only: the API server never assigns it.
pub const UID_OF_MANIFEST: &str = "manifest";
/// The width of a line.
const COLUMNS: usize = 80;
/// The width of the numbers behind a reason.
const NUMBERS: usize = 24;
/// The most nodes that fit and are named.
const MOST_NAMES: usize = 5;
/// The most nodes, or pods of a kind, that have a line.
pub const MOST_LINES: usize = 20;

/// For people. It explains `node`, too, if one is given.
pub fn table(pod: &PodInfo, why: &Why, node: Option<&str>) -> String {
    text(|text| write_table(text, pod, why, node))
}

/// What is written, without what moves a terminal's cursor.
pub fn text(write: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text);
    printable(&text)
}

/// An answer for programs: an object with its version, its kind and these fields.
pub fn document(kind: &str, mut fields: Value) -> String {
    fields["apiVersion"] = API_VERSION.into();
    fields["kind"] = kind.into();
    printable_json(&format!("{fields:#}\n"))
}

/// How many more pods fit, for people.
pub fn fits(pod: &PodInfo, fits: &Fits) -> String {
    text(|text| write_fits(text, pod, fits))
}

/// The answer in a sentence.
pub fn fits_headline(pod: &PodInfo, fits: &Fits) -> String {
    let more = if fits.then.is_none() { "at least " } else { "" };
    format!("{more}{} like {} fit", count(fits.count(), "more pod"), pod.key())
}

fn write_fits(text: &mut String, pod: &PodInfo, fits: &Fits) -> std::fmt::Result {
    write_wrapped(text, "", &fits_headline(pod, fits))?;
    if let Some(key_reason) = fits.then.as_ref().and_then(|why| key_reason(&why.refusals)) {
        write_wrapped(text, "Then  ", &key_reason)?;
    }
    let mut nodes: Vec<_> = fits.by_node.iter().collect();
    nodes.sort_by_key(|(name, pods)| (Reverse(**pods), Arc::clone(name)));
    if !nodes.is_empty() {
        writeln!(text, "\n{:<72}{:>8}", "NODE", "PODS")?;
        for (name, pods) in nodes.iter().take(MOST_LINES) {
            writeln!(text, "{:<72}{pods:>8}", clip(name, 71))?;
        }
    }
    if nodes.len() > MOST_LINES {
        let rest: usize = nodes[MOST_LINES..].iter().map(|(_, pods)| **pods).sum();
        writeln!(text, "{:<72}{rest:>8}", format!("and {}", count(nodes.len() - MOST_LINES, "more node")))?;
    }
    if let Some(why) = &fits.then {
        write_refusals(text, &why.refusals)?;
    }
    Ok(())
}

fn write_table(text: &mut String, pod: &PodInfo, why: &Why, node: Option<&str>) -> std::fmt::Result {
    if let Some(own) = &pod.node_name {
        write_wrapped(text, "", &headline(pod, why))?;
        return write_node(text, why, node.unwrap_or(own));
    }
    let fits = !why.feasible.is_empty();
    for hindrance in hindrances(pod) {
        write_wrapped(text, "", &format!("{} is pending: {hindrance}", pod.key()))?;
    }
    write_wrapped(text, "", &headline(pod, why))?;
    let others: Vec<&str> = why.feasible.iter().skip(1).take(MOST_NAMES).map(|(node, _)| &**node).collect();
    if !others.is_empty() {
        write_wrapped(text, "then ", &others.join(", "))?;
    }
    if *pod.spec.scheduler_name != *why.profile {
        let (asked, profile) = (&pod.spec.scheduler_name, &why.profile);
        let note = format!(
            "The configuration has no profile {asked}, as the pod's schedulerName; {profile} answers."
        );
        write_wrapped(text, "", &note)?;
    }
    match (&why.group, pod.spec.group()) {
        (Some(group), _) => group::write_group(text, group)?,
        (None, Some(group)) => {
            let note = format!("It names PodGroup {group}; groups are off, so it is scheduled alone.");
            write_wrapped(text, "", &note)?;
        }
        (None, None) => {}
    }
    if let Some(key_reason) = key_reason(&why.refusals).filter(|_| !fits) {
        write_wrapped(text, "Key reason  ", &key_reason)?;
    }
    if let Some(node) = node {
        write_node(text, why, node)?;
    }
    if !fits {
        write_fixes(text, why)?;
    }
    write_refusals(text, &why.refusals)?;
    let events = wakes(why);
    if !events.is_empty() && pod.scheduling_gates.is_empty() {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        writeln!(text)?;
        write_wrapped(text, "Tried again if  ", &events.join(", or "))?;
    }
    if !why.message.is_empty() {
        writeln!(text, "\nMESSAGE")?;
        write_wrapped(text, "  ", &why.message)?;
    }
    Ok(())
}

/// The answer in a sentence.
fn headline(pod: &PodInfo, why: &Why) -> String {
    let (key, nodes) = (pod.key(), count(why.nodes, "node"));
    let best = why.feasible.first().map(|(best, _)| best);
    match (&pod.node_name, best, &why.preemption) {
        (Some(own), None, _) => {
            format!("{key} is on node {own}; placed now, it would fit on none of {nodes}")
        }
        (Some(own), Some(best), _) if best == own => {
            format!("{key} is on node {own}; placed now, it would go there again")
        }
        (Some(own), Some(best), _) => format!("{key} is on node {own}; placed now, it would go to {best}"),
        (None, Some(best), _) => match why.group.as_ref().filter(|group| group.obstacle.is_some()) {
            Some(_) => format!(
                "{key} is pending: it fits on {} of {nodes}, but its group does not start",
                why.feasible.len()
            ),
            None => format!("{key} fits on {} of {nodes}; the best is {best}", why.feasible.len()),
        },
        (None, None, Some(node)) => {
            format!("{key} fits on none of {nodes}, but preemption makes room on {node}")
        }
        (None, None, None) => {
            let is = if pod.uid.is(UID_OF_MANIFEST) { "would be" } else { "is" };
            format!("{key} {is} pending: it fits on none of {nodes}")
        }
    }
}

/// The events after which the scheduler tries the pod again, in words.
fn wakes(why: &Why) -> BTreeSet<String> {
    why.wakes_on.iter().flat_map(|(_, events)| events).map(event_text).collect()
}

/// What keeps the scheduler from trying the pod, whatever the nodes say.
pub fn hindrances(pod: &PodInfo) -> impl Iterator<Item = String> {
    let gates = &pod.scheduling_gates;
    let gated = (!gates.is_empty()).then(|| format!("it waits for scheduling gates: {}", gates.join(", ")));
    let deleted = pod.terminating.then(|| "it is being deleted, so no scheduler tries it".to_owned());
    let nominated = pod.status.nominated_node_name.as_ref();
    let nominated =
        nominated.map(|node| format!("it is nominated for node {node}, and waits for its victims to go"));
    [gated, deleted, nominated].into_iter().flatten()
}

/// The refusal that keeps the most nodes out alone; if there is none, the one of the most nodes.
pub fn key_reason(refusals: &[Refusal]) -> Option<String> {
    let refusal = refusals.iter().rev().max_by_key(|refusal| (refusal.only, refusal.nodes.len()))?;
    let text = describe(refusal);
    Some(match (refusal.only, &refusal.detail) {
        (0, _) => format!("{text}; every node is refused for several reasons"),
        (only, Detail::Short(Shortage { resource, requested, free, node })) => format!(
            "{text}: the only reason on {}; {node} is closest and lacks {}",
            count(only, "node"),
            quantity(resource, requested.saturating_sub(*free))
        ),
        (only, _) => format!("{text}: the only reason on {}", count(only, "node")),
    })
}

/// An event of the cluster, in words.
fn event_text(event: &ClusterEvent) -> String {
    match &event.resource {
        EventResource::AssignedPod | EventResource::Pod => {
            "a pod on a node is added, removed or updated".to_owned()
        }
        EventResource::TargetPod => "this pod is updated".to_owned(),
        EventResource::UnscheduledPod => "a pod without a node is added".to_owned(),
        EventResource::Node => "a node is added or updated".to_owned(),
        EventResource::Any => "anything changes".to_owned(),
        EventResource::Other(kind) => {
            format!("an object of kind {} is added or updated", kind.rsplit('/').next().unwrap_or(kind))
        }
    }
}

fn taint_text(Taint { key, value, effect }: &Taint) -> String {
    let equals = if value.is_empty() { "" } else { "=" };
    format!("{key}{equals}{value}:{}", effect.as_str())
}

/// A reason with its numbers.
fn describe(Refusal { reason, detail, .. }: &Refusal) -> String {
    match detail {
        Detail::None | Detail::Nominated => reason.to_string(),
        Detail::Taint(taint) => format!("untolerated taint {}", taint_text(taint)),
        Detail::Short(Shortage { resource, requested, free, .. }) => format!(
            "{resource}: requests {}, at most {} free",
            quantity(resource, *requested),
            quantity(resource, (*free).max(0))
        ),
    }
}

fn write_refusals(text: &mut String, refusals: &[Refusal]) -> std::fmt::Result {
    if refusals.is_empty() {
        return Ok(());
    }
    let reasons = COLUMNS - NUMBERS;
    writeln!(text, "\n{:<reasons$}{:>8}{:>8}{:>8}", "REFUSED FOR", "NODES", "ALONE", "LEFT")?;
    let mut last = "";
    for refusal in refusals {
        let plugin = if refusal.detail == Detail::Nominated { "Nominated pods" } else { &*refusal.plugin };
        if plugin != last {
            writeln!(text, "{plugin}")?;
            last = plugin;
        }
        let lines = wrap(&describe(refusal), reasons - 3);
        for (i, line) in lines.iter().enumerate() {
            if i + 1 < lines.len() {
                writeln!(text, "  {line}")?;
            } else {
                let Refusal { only, left, .. } = refusal;
                let nodes = refusal.nodes.len();
                writeln!(text, "  {line:<width$}{nodes:>8}{only:>8}{left:>8}", width = reasons - 2)?;
            }
        }
    }
    Ok(())
}

/// What refuses the pod on a node; or the node's scores beside those of the best one, or of the
/// second best if it is the best itself.
fn write_node(text: &mut String, why: &Why, name: &str) -> std::fmt::Result {
    let place = |name: &str| why.feasible.iter().position(|(node, _)| **node == *name);
    let Some(one) = place(name) else {
        writeln!(text, "\n{name} refuses the pod")?;
        for refusal in why.refusals.iter().filter(|refusal| refusal.nodes.iter().any(|node| **node == *name))
        {
            write_wrapped(text, &format!("  {:<26}", &*refusal.plugin), &describe_on_node(refusal, name))?;
        }
        return Ok(());
    };
    let other = usize::from(one == 0);
    if other >= why.feasible.len() {
        return writeln!(text, "\nNo other node fits, so scores do not matter.");
    }
    let (a, b) = (&why.feasible[one], &why.feasible[other]);
    writeln!(
        text,
        "\n{:<33}{:>6}  {:>14}{:>16}{:>9}",
        "SCORES",
        "WEIGHT",
        clip(&a.0, 14),
        clip(&b.0, 15),
        "DIFF"
    )?;
    for PluginScores { plugin, weight, scores } in &why.scores {
        let cell = |(raw, normalized): (i64, i64)| format!("{raw} → {}", normalized * weight);
        let difference = (scores[one].1 - scores[other].1) * weight;
        let (one, other) = (cell(scores[one]), cell(scores[other]));
        writeln!(text, "{:<33}{weight:>6}  {one:>14}{other:>16}{difference:>+9}", &**plugin)?;
    }
    writeln!(text, "{:<41}{:>14}{:>16}{:>+9}", "TOTAL", a.1, b.1, a.1 - b.1)?;
    let nodes = count(why.feasible.len(), "node");
    let place = format!("{name} is number {} of {nodes}; of equal nodes, the first one is chosen", one + 1);
    write_wrapped(text, "", &place)
}

/// The end of a long name, where numbers are.
pub fn clip(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length + 1 - columns)).collect()
}

/// A reason as it is on a node: the numbers of other nodes do not matter.
fn describe_on_node(refusal: &Refusal, name: &str) -> String {
    match &refusal.detail {
        Detail::Short(shortage) if *shortage.node != *name => refusal.reason.to_string(),
        _ => describe(refusal),
    }
}

fn write_fixes(text: &mut String, why: &Why) -> std::fmt::Result {
    if why.fixes.is_empty() {
        return if why.preemption.is_some() {
            Ok(())
        } else {
            writeln!(text, "\nNone of the tried changes to the pod helps.")
        };
    }
    writeln!(text, "\nEACH OF THESE HELPS (tried)")?;
    for (i, fix) in why.fixes.iter().enumerate() {
        write_wrapped(text, &format!("  {}  ", i + 1), &fix_text(fix))?;
    }
    Ok(())
}

/// What to change, and what it leads to.
pub fn fix_text(fix: &Fix) -> String {
    let changes: Vec<String> = fix.changes.iter().map(change_text).collect();
    let then = if fix.preempts { "the pod then preempts others on" } else { "the pod then goes to" };
    format!("{}; {then} {}", changes.join(", and "), fix.node)
}

fn change_text(change: &PodFix) -> String {
    match change {
        PodFix::Request { resource, from, to } => {
            format!("request {resource} {} instead of {}", quantity(resource, *to), quantity(resource, *from))
        }
        PodFix::Tolerate(taint) => format!("tolerate {}", taint_text(taint)),
        PodFix::NoNodeAffinity => "drop the node selector and the required node affinity".to_owned(),
        PodFix::SoftSpread => "let topology spread constraints be ScheduleAnyway".to_owned(),
        PodFix::NoPodAffinity => "drop required affinity and anti-affinity to pods".to_owned(),
        PodFix::NoHostPorts => "use no host port".to_owned(),
        PodFix::Priority(priority) => format!("have priority {priority}"),
    }
}

/// Writes a text behind a prefix, wrapped and indented below its start.
pub fn write_wrapped(text: &mut String, prefix: &str, content: &str) -> std::fmt::Result {
    let indent = prefix.chars().count();
    for (i, line) in wrap(content, COLUMNS.saturating_sub(indent)).iter().enumerate() {
        if i == 0 {
            writeln!(text, "{prefix}{line}")?;
        } else {
            writeln!(text, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}

/// For programs.
pub fn json(pod: &PodInfo, why: &Why) -> String {
    let key = pod.key();
    let events = why.wakes_on.iter().map(|(plugin, events)| {
        (plugin.to_string(), events.iter().map(ToString::to_string).collect::<Vec<_>>())
    });
    let node = |(place, (name, total)): (usize, &(Arc<str>, i64))| {
        let score = |it: &PluginScores| {
            let (raw, normalized) = it.scores[place];
            (it.plugin.to_string(), json!({ "raw": raw, "normalized": normalized, "weight": it.weight }))
        };
        let plugins: BTreeMap<_, _> = why.scores.iter().map(score).collect();
        json!({ "node": name, "score": total, "plugins": plugins })
    };
    let fields = json!({
        "headline": headline(pod, why),
        "hindrances": hindrances(pod).collect::<Vec<_>>(),
        "keyReason": key_reason(&why.refusals),
        "triedAgainIf": wakes(why),
        "pod": { "namespace": key.namespace, "name": key.name, "node": pod.node_name },
        "schedulingGates": pod.scheduling_gates,
        "profile": why.profile,
        "nodes": why.nodes,
        "message": why.message,
        "feasible": why.feasible.iter().enumerate().map(node).collect::<Vec<_>>(),
        "preemption": why.preemption,
        "refusals": why.refusals.iter().map(refusal_json).collect::<Vec<_>>(),
        "fixes": why.fixes.iter().map(fix_json).collect::<Vec<_>>(),
        "wakesOn": events.collect::<BTreeMap<_, _>>(),
        "group": why.group.as_ref().map(group::json),
    });
    document("Why", fields)
}

fn taint_json(Taint { key, value, effect }: &Taint) -> Value {
    json!({ "key": key, "value": value, "effect": effect.as_str() })
}

/// A refusal, for programs.
pub fn refusal_json(refusal: &Refusal) -> Value {
    let Refusal { plugin, reason, detail, nodes, only, left } = refusal;
    let mut object = json!({
        "plugin": &**plugin, "reason": &**reason, "nodes": nodes.len(), "nodeNames": nodes, "alone": only, "left": left, "code": code(refusal),
        "text": describe(refusal),
    });
    match detail {
        Detail::None | Detail::Nominated => {}
        Detail::Taint(taint) => object["taint"] = taint_json(taint),
        Detail::Short(Shortage { resource, requested, free, node }) => {
            object["shortage"] = json!({
                "resource": resource, "node": node,
                "requested": quantity(resource, *requested), "free": quantity(resource, *free),
            });
        }
    }
    object
}

/// The closed list of codes, by which programs tell reasons apart.
fn code(Refusal { plugin, reason, detail, .. }: &Refusal) -> &'static str {
    match (detail, &**plugin) {
        (Detail::Taint(_), _) => "TaintNotTolerated",
        (Detail::Short(_), _) => "ResourceShort",
        (Detail::Nominated, _) => "PromisedTo",
        (_, "NodeResourcesFit") if **reason == *"Too many pods" => "TooManyPods",
        (_, "NodeResourcesFit") => "ResourceShort",
        (_, "NodeUnschedulable") => "NodeCordoned",
        (_, "NodeName") => "OtherNodeNamed",
        (_, "NodeAffinity") => "LabelMismatch",
        (_, "PodTopologySpread") => "SpreadSkew",
        (_, "InterPodAffinity") if reason.contains("anti-affinity") => "AntiAffinityWith",
        (_, "InterPodAffinity") => "AffinityUnmet",
        (_, "NodePorts") => "PortTaken",
        (_, "VolumeZone") => "VolumeZone",
        (_, "NodeVolumeLimits") => "VolumeLimit",
        (_, "VolumeBinding" | "VolumeRestrictions") => "VolumeUnavailable",
        (_, "DynamicResources") => "ClaimUnavailable",
        _ => "Other",
    }
}

fn fix_json(fix: &Fix) -> Value {
    let Fix { changes, node, preempts } = fix;
    let change = |change: &PodFix| match change {
        PodFix::Request { resource, from, to } => json!({
            "change": "Request", "resource": resource,
            "from": quantity(resource, *from), "to": quantity(resource, *to),
        }),
        PodFix::Tolerate(taint) => json!({ "change": "Tolerate", "taint": taint_json(taint) }),
        PodFix::NoNodeAffinity => json!({ "change": "NoNodeAffinity" }),
        PodFix::SoftSpread => json!({ "change": "SoftSpread" }),
        PodFix::NoPodAffinity => json!({ "change": "NoPodAffinity" }),
        PodFix::NoHostPorts => json!({ "change": "NoHostPorts" }),
        PodFix::Priority(priority) => json!({ "change": "Priority", "to": priority }),
    };
    let changes: Vec<Value> = changes.iter().map(change).collect();
    json!({ "changes": changes, "node": node, "preempts": preempts, "text": fix_text(fix) })
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    fn refusal(plugin: &'static str, reason: &str, detail: Detail, (nodes, only): (usize, usize)) -> Refusal {
        let reason = reason.to_owned().into();
        let nodes = (0..nodes).map(|i| format!("node-{i}").into()).collect();
        Refusal { plugin: plugin.into(), reason, detail, nodes, only, left: 0 }
    }

    fn short(requested: i64, free: i64) -> Detail {
        let (resource, node) = ("memory".into(), "node-112".into());
        Detail::Short(Shortage { resource, requested, free, node })
    }

    fn why(refusals: Vec<Refusal>) -> Why {
        Why {
            profile: "supercargo".into(),
            nodes: 5000,
            message: "0/5000 nodes are available".to_owned(),
            refusals,
            feasible: Vec::new(),
            scores: Vec::new(),
            preemption: None,
            fixes: Vec::new(),
            wakes_on: Vec::new(),
            group: None,
        }
    }

    #[test]
    fn key_reason_is_what_keeps_most_nodes_out_alone() {
        let taint = || refusal("TaintToleration", "tainted", Detail::None, (4000, 2));
        let memory =
            |only| refusal("NodeResourcesFit", "Insufficient memory", short(4 << 30, 3 << 30), (900, only));
        assert_eq!(
            key_reason(&[taint(), memory(38)]).unwrap(),
            "memory: requests 4Gi, at most 3Gi free: the only reason on 38 nodes; node-112 is closest and \
             lacks 1Gi"
        );
        assert_eq!(key_reason(&[taint(), memory(1)]).unwrap(), "tainted: the only reason on 2 nodes");
        let both = refusal("NodeAffinity", "elsewhere", Detail::None, (5000, 0));
        assert_eq!(key_reason(&[both]).unwrap(), "elsewhere; every node is refused for several reasons");
        assert_eq!(key_reason(&[]), None);
    }

    #[test]
    fn lines_fit_a_terminal_and_move_no_cursor() {
        let hostile = format!("red \u{1b}[31m, left \u{202e}, {}", "long ".repeat(60));
        let text =
            table(&pod("p").build(), &why(vec![refusal("Custom", &hostile, Detail::None, (3, 3))]), None);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn gates_other_schedulers_and_bound_pods_are_told() {
        let gated = pod("p").gate("quota").build();
        let text = table(&gated, &why(Vec::new()), None);
        assert!(text.starts_with("default/p is pending: it waits for scheduling gates: quota\n"), "{text}");
        let foreign = pod("p").scheduler("default-scheduler").build();
        let text = table(&foreign, &why(Vec::new()), None);
        assert!(text.contains("no profile default-scheduler, as"), "{text}");
    }

    #[test]
    fn a_pod_on_a_node_is_compared_with_the_best_node() {
        let mut why = why(Vec::new());
        let name = |name: &str| Arc::<str>::from(name);
        why.feasible = vec![(name("node-17"), 631), (name("a-node-with-quite-a-long-name"), 608)];
        let spread =
            PluginScores { plugin: "PodTopologySpread".into(), weight: 2, scores: vec![(4, 100), (6, 50)] };
        why.scores = vec![spread];
        let on = |node: &str| pod("p").node(node).build();
        let text = table(&on("a-node-with-quite-a-long-name"), &why, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "default/p is on node a-node-with-quite-a-long-name; placed now, it would go to",
                "node-17",
                "",
                "SCORES                           WEIGHT  …e-a-long-name         node-17     DIFF",
                "PodTopologySpread                     2         6 → 100         4 → 200     -100",
                "TOTAL                                               608             631      -23",
                "a-node-with-quite-a-long-name is number 2 of 2 nodes; of equal nodes, the first",
                "one is chosen",
            ]
        );
        assert!(table(&on("node-17"), &why, None).contains("it would go there again"));
        let answer: Value = serde_json::from_str(&json(&on("node-17"), &why)).unwrap();
        assert_eq!(answer["pod"]["node"], "node-17");
        let plugin = &answer["feasible"][0]["plugins"]["PodTopologySpread"];
        assert_eq!(*plugin, json!({ "raw": 4, "normalized": 100, "weight": 2 }));
    }

    #[test]
    fn codes_tell_reasons_apart() {
        let code_of =
            |plugin: &'static str, reason: &str| code(&refusal(plugin, reason, Detail::None, (1, 1)));
        assert_eq!(code_of("NodeResourcesFit", "Too many pods"), "TooManyPods");
        assert_eq!(
            code_of("InterPodAffinity", "node(s) didn't match pod anti-affinity rules"),
            "AntiAffinityWith"
        );
        assert_eq!(code_of("InterPodAffinity", "node(s) didn't match pod affinity rules"), "AffinityUnmet");
        assert_eq!(code(&refusal("", "reserved", Detail::Nominated, (1, 1))), "PromisedTo");
        assert_eq!(code_of("Custom", "x"), "Other");
        assert_eq!(
            code(&refusal("NodeResourcesFit", "Insufficient memory", short(2, 1), (1, 1))),
            "ResourceShort"
        );
    }
}
