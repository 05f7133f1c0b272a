//! Answers about a cluster, from the scheduler: as text for people, and as JSON for
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
mod page;
mod place;
mod pools;
mod search;
mod timeline;
mod what_if;
pub mod words;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
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
pub use self::page::{Page, Width, page};
pub use self::place::place;
pub use self::search::search;
pub use self::timeline::{moment, timeline, timeline_json};
pub use self::what_if::{first_obstacle, obstacle_json, what_if, what_if_json};
use self::words::{count, printable_json, quantity, wrap};

/// The version of the answers for programs.
const API_VERSION: &str = "insight.supercargo.dev/v1alpha1";
/// The UID of a pod that is in a manifest only: the API server never assigns it.
pub const UID_OF_MANIFEST: &str = "manifest";
/// The width of the numbers behind a reason.
const NUMBERS: usize = 24;
/// The most nodes that fit, or of a group, that are named.
const MOST_NAMES: usize = 5;
/// The most groups of nodes with the same reasons.
const MOST_GROUPS: usize = 200;
/// The most nodes, or pods of a kind, that have a line.
pub const MOST_LINES: usize = 20;

/// For people. It explains `node`, too, if one is given.
pub fn table(pod: &PodInfo, why: &Why, node: Option<&str>, width: Width) -> String {
    page(width, |page| write_table(page, pod, why, node))
}

/// An answer for programs: an object with its version, its kind and these fields.
pub fn document(kind: &str, mut fields: Value) -> String {
    fields["apiVersion"] = API_VERSION.into();
    fields["kind"] = kind.into();
    printable_json(&format!("{fields:#}\n"))
}

/// How many more pods fit, for people.
pub fn fits(pod: &PodInfo, fits: &Fits, width: Width) -> String {
    page(width, |page| write_fits(page, pod, fits))
}

/// The answer in a sentence.
pub fn fits_headline(pod: &PodInfo, fits: &Fits) -> String {
    let more = if fits.then.is_none() { "at least " } else { "" };
    format!("{more}{} like {} fit", count(fits.count(), "more pod"), pod.key())
}

fn write_fits(page: &mut Page, pod: &PodInfo, fits: &Fits) -> fmt::Result {
    page.wrapped("", &fits_headline(pod, fits))?;
    if let Some(key_reason) = fits.then.as_ref().and_then(|why| key_reason(&why.refusals)) {
        page.wrapped("Then  ", &key_reason)?;
    }
    let mut nodes: Vec<_> = fits.by_node.iter().collect();
    nodes.sort_by_key(|(name, pods)| (Reverse(**pods), Arc::clone(name)));
    if !nodes.is_empty() {
        writeln!(page, "\n{}{:>8}", page.name("NODE", 72), "PODS")?;
        for (name, pods) in nodes.iter().take(page.rows(nodes.len())) {
            writeln!(page, "{}{pods:>8}", page.name(name, 72))?;
        }
    }
    if let Some(more) = page.hidden(nodes.len()) {
        let rest: usize = nodes[page.rows(nodes.len())..].iter().map(|(_, pods)| **pods).sum();
        writeln!(page, "{:<72}{rest:>8}", format!("and {}", count(more, "more node")))?;
    }
    if let Some(why) = &fits.then {
        write_refusals(page, &why.refusals)?;
    }
    Ok(())
}

fn write_table(page: &mut Page, pod: &PodInfo, why: &Why, node: Option<&str>) -> fmt::Result {
    if let Some(own) = &pod.node_name {
        page.wrapped("", &headline(pod, why))?;
        return write_node(page, why, node.unwrap_or(own));
    }
    let fits = !why.feasible.is_empty();
    for hindrance in hindrances(pod) {
        page.wrapped("", &format!("{} is pending: {hindrance}", pod.key()))?;
    }
    page.wrapped("", &headline(pod, why))?;
    let most = if page.is_wide() { usize::MAX } else { MOST_NAMES };
    let others: Vec<&str> = why.feasible.iter().skip(1).take(most).map(|(node, _)| &**node).collect();
    if !others.is_empty() {
        page.wrapped("then ", &others.join(", "))?;
    }
    if *pod.spec.scheduler_name != *why.profile {
        let (asked, profile) = (&pod.spec.scheduler_name, &why.profile);
        let note = format!(
            "The configuration has no profile {asked}, as the pod's schedulerName; {profile} answers."
        );
        page.wrapped("", &note)?;
    }
    match (&why.group, pod.spec.group()) {
        (Some(group), _) => group::write_group(page, group)?,
        (None, Some(group)) => {
            let note = format!("It names PodGroup {group}; groups are off, so it is scheduled alone.");
            page.wrapped("", &note)?;
        }
        (None, None) => {}
    }
    if let Some(key_reason) = key_reason(&why.refusals).filter(|_| !fits) {
        page.wrapped("Key reason  ", &key_reason)?;
    }
    if let Some(node) = node {
        write_node(page, why, node)?;
    }
    if !fits {
        write_fixes(page, why)?;
    }
    write_refusals(page, &why.refusals)?;
    let events = wakes(why);
    if !events.is_empty() && pod.scheduling_gates.is_empty() {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        writeln!(page)?;
        page.wrapped("Tried again if  ", &events.join(", or "))?;
    }
    if !why.message.is_empty() {
        writeln!(page, "\nMESSAGE")?;
        page.wrapped("  ", &why.message)?;
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

fn write_refusals(page: &mut Page, refusals: &[Refusal]) -> fmt::Result {
    if refusals.is_empty() {
        return Ok(());
    }
    let reasons = page.columns() - NUMBERS;
    writeln!(page, "\n{:<reasons$}{:>8}{:>8}{:>8}", "REFUSED FOR", "NODES", "ALONE", "LEFT")?;
    let mut last = "";
    for refusal in refusals {
        let plugin = if refusal.detail == Detail::Nominated { "Nominated pods" } else { &*refusal.plugin };
        if plugin != last {
            writeln!(page, "{plugin}")?;
            last = plugin;
        }
        let lines = wrap(&describe(refusal), reasons - 3);
        for (i, line) in lines.iter().enumerate() {
            if i + 1 < lines.len() {
                writeln!(page, "  {line}")?;
            } else {
                let Refusal { only, left, .. } = refusal;
                let nodes = refusal.nodes.len();
                writeln!(page, "  {line:<width$}{nodes:>8}{only:>8}{left:>8}", width = reasons - 2)?;
            }
        }
        if page.is_wide() {
            page.wrapped("    on ", &refusal.nodes.join(", "))?;
        }
    }
    Ok(())
}

/// What refuses the pod on a node; or the node's scores beside those of the best one, or of the
/// second best if it is the best itself.
fn write_node(page: &mut Page, why: &Why, name: &str) -> fmt::Result {
    let place = |name: &str| why.feasible.iter().position(|(node, _)| **node == *name);
    let Some(one) = place(name) else {
        writeln!(page, "\n{name} refuses the pod")?;
        for refusal in why.refusals.iter().filter(|refusal| refusal.nodes.iter().any(|node| **node == *name))
        {
            page.wrapped(&format!("  {:<26}", &*refusal.plugin), &describe_on_node(refusal, name))?;
        }
        return Ok(());
    };
    let other = usize::from(one == 0);
    if other >= why.feasible.len() {
        return writeln!(page, "\nNo other node fits, so scores do not matter.");
    }
    let (a, b) = (&why.feasible[one], &why.feasible[other]);
    writeln!(
        page,
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
        writeln!(page, "{:<33}{weight:>6}  {one:>14}{other:>16}{difference:>+9}", &**plugin)?;
    }
    writeln!(page, "{:<41}{:>14}{:>16}{:>+9}", "TOTAL", a.1, b.1, a.1 - b.1)?;
    let nodes = count(why.feasible.len(), "node");
    let place = format!("{name} is number {} of {nodes}; of equal nodes, the first one is chosen", one + 1);
    page.wrapped("", &place)
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

fn write_fixes(page: &mut Page, why: &Why) -> fmt::Result {
    if why.fixes.is_empty() {
        return if why.preemption.is_some() {
            Ok(())
        } else {
            writeln!(page, "\nNone of the tried changes to the pod helps.")
        };
    }
    writeln!(page, "\nEACH OF THESE HELPS (tried)")?;
    for (i, fix) in why.fixes.iter().enumerate() {
        page.wrapped(&format!("  {}  ", i + 1), &fix_text(fix))?;
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

/// Nodes that are refused for the same reasons.
struct Alike<'a> {
    /// The places of the refusals.
    reasons: Vec<usize>,
    nodes: Vec<&'a Arc<str>>,
}

/// Those with the fewest reasons come first; of these, those of the most nodes.
fn alike(refusals: &[Refusal]) -> Vec<Alike<'_>> {
    let mut of_node: BTreeMap<&Arc<str>, Vec<usize>> = BTreeMap::new();
    for (place, refusal) in refusals.iter().enumerate() {
        for node in &refusal.nodes {
            of_node.entry(node).or_default().push(place);
        }
    }
    let mut groups: BTreeMap<Vec<usize>, Vec<&Arc<str>>> = BTreeMap::new();
    for (node, reasons) in of_node {
        groups.entry(reasons).or_default().push(node);
    }
    let mut groups: Vec<_> = groups.into_iter().map(|(reasons, nodes)| Alike { reasons, nodes }).collect();
    groups.sort_by_key(|group| (group.reasons.len(), Reverse(group.nodes.len())));
    groups
}

/// For programs. With `rows`, lists of nodes have no more items than that, except the pod's node.
pub fn json(pod: &PodInfo, why: &Why, rows: Option<usize>) -> String {
    let rows = rows.unwrap_or(usize::MAX);
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
    let is_shown = |(place, (name, _)): &(usize, &(Arc<str>, i64))| {
        *place < rows || pod.node_name.as_ref() == Some(name)
    };
    let refusal = |refusal: &Refusal| {
        let mut object = refusal_json(refusal);
        object["nodeNames"] = refusal
            .nodes
            .iter()
            .take(rows)
            .cloned()
            .collect::<Vec<_>>()
            .into_iter()
            .map(|it| Value::from(&*it))
            .collect();
        object
    };
    let group = |Alike { reasons, nodes }: &Alike<'_>| {
        let names = &nodes[..nodes.len().min(MOST_NAMES)];
        json!({ "refusals": reasons, "nodes": nodes.len(), "suchAs": names })
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
        "fitting": why.feasible.len(),
        "feasible": why.feasible.iter().enumerate().filter(is_shown).map(node).collect::<Vec<_>>(),
        "preemption": why.preemption,
        "refusals": why.refusals.iter().map(refusal).collect::<Vec<_>>(),
        "alike": alike(&why.refusals).iter().take(MOST_GROUPS).map(group).collect::<Vec<_>>(),
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
        let text = table(
            &pod("p").build(),
            &why(vec![refusal("Custom", &hostile, Detail::None, (3, 3))]),
            None,
            Width::Usual,
        );
        assert!(text.lines().all(|line| line.chars().count() <= page::COLUMNS), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn a_wide_answer_has_all_rows_and_whole_names() {
        let long = "n".repeat(90);
        let by_node = (0..30).map(|i| (format!("{long}-{i:02}").into(), 1)).collect();
        let fits = Fits { by_node, then: None };
        let [usual, wide] = [Width::Usual, Width::Wide].map(|width| fits_of(&fits, width));
        assert!(usual.contains("and 10 more nodes") && !usual.contains(&long), "{usual}");
        assert!(wide.lines().filter(|line| line.contains(&long)).count() == 30, "{wide}");
        let refused = refusal("NodeAffinity", "elsewhere", Detail::None, (30, 0));
        let text = table(&pod("p").build(), &why(vec![refused]), None, Width::Wide);
        assert!(text.contains("    on node-0, node-1, ") && text.contains("node-29\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn nodes_with_the_same_reasons_are_a_group() {
        let of = |nodes: &[&str]| Refusal {
            nodes: nodes.iter().map(|node| Arc::from(*node)).collect(),
            ..refusal("Custom", "x", Detail::None, (0, 0))
        };
        let mut why = why(vec![of(&["a", "b", "c", "d"]), of(&["c", "d", "e"])]);
        why.feasible = (0..4).map(|i| (format!("f-{i}").into(), 9 - i)).collect();
        let answer = |rows| -> Value {
            serde_json::from_str(&json(&pod("p").node("f-3").build(), &why, rows)).unwrap()
        };
        let group = |reasons: &[usize], nodes: usize, names: &[&str]| json!({ "refusals": reasons, "nodes": nodes, "suchAs": names });
        let expected = [group(&[0], 2, &["a", "b"]), group(&[1], 1, &["e"]), group(&[0, 1], 2, &["c", "d"])];
        assert_eq!(answer(None)["alike"], json!(expected));
        assert_eq!(answer(None)["feasible"].as_array().unwrap().len(), 4);
        let short = answer(Some(2));
        assert_eq!((&short["alike"], &short["fitting"]), (&json!(expected), &json!(4)));
        assert_eq!(
            (&short["refusals"][0]["nodeNames"], &short["refusals"][0]["nodes"]),
            (&json!(["a", "b"]), &json!(4))
        );
        let nodes: Vec<&Value> = short["feasible"].as_array().unwrap().iter().map(|it| &it["node"]).collect();
        assert_eq!(nodes, ["f-0", "f-1", "f-3"], "the pod's own is there");
    }

    fn fits_of(fits: &Fits, width: Width) -> String {
        super::fits(&pod("p").build(), fits, width)
    }

    #[test]
    fn gates_other_schedulers_and_bound_pods_are_told() {
        let gated = pod("p").gate("quota").build();
        let text = table(&gated, &why(Vec::new()), None, Width::Usual);
        assert!(text.starts_with("default/p is pending: it waits for scheduling gates: quota\n"), "{text}");
        let foreign = pod("p").scheduler("default-scheduler").build();
        let text = table(&foreign, &why(Vec::new()), None, Width::Usual);
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
        let text = table(&on("a-node-with-quite-a-long-name"), &why, None, Width::Usual);
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
        assert!(table(&on("node-17"), &why, None, Width::Usual).contains("it would go there again"));
        let answer: Value = serde_json::from_str(&json(&on("node-17"), &why, None)).unwrap();
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
