//! The answer as text for people, and as JSON for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_framework::taint::Taint;
use supercargo_framework::{ClusterEvent, PodInfo};
use supercargo_scheduler::{Detail, Fix, PodChange, Refusal, Shortage, Why};

use crate::text::{count, quantity, wrap};

/// The width of a line.
const COLUMNS: usize = 80;
/// The width of the numbers behind a reason.
const NUMBERS: usize = 24;
/// The most nodes that fit and are named.
const MOST_NAMES: usize = 5;

/// For people.
pub(super) fn table(pod: &PodInfo, why: Option<&Why>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut text, pod, why);
    // Messages may come from strangers: nothing in them may move a terminal's cursor.
    text.chars().map(|c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Whether a terminal shows the character as itself: no control character, and no change of the
/// writing direction.
fn is_printable(c: char) -> bool {
    c == '\n'
        || !(c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
}

fn write_table(text: &mut String, pod: &PodInfo, why: Option<&Why>) -> std::fmt::Result {
    let key = pod.key();
    let Some(why) = why else {
        return writeln!(text, "{key} is on node {}", pod.node_name.as_deref().unwrap_or_default());
    };
    let gates = &pod.scheduling_gates;
    if !gates.is_empty() {
        write_wrapped(
            text,
            "",
            &format!("{key} is pending: it waits for scheduling gates: {}", gates.join(", ")),
        )?;
    }
    let nodes = count(why.nodes, "node");
    if let Some((best, _)) = why.feasible.first() {
        write_wrapped(
            text,
            "",
            &format!("{key} fits on {} of {nodes}; the best is {best}", why.feasible.len()),
        )?;
        let others: Vec<&str> =
            why.feasible.iter().skip(1).take(MOST_NAMES).map(|(node, _)| &**node).collect();
        if !others.is_empty() {
            write_wrapped(text, "then ", &others.join(", "))?;
        }
    } else if let Some(node) = &why.preemption {
        write_wrapped(
            text,
            "",
            &format!("{key} fits on none of {nodes}, but preemption makes room on {node}"),
        )?;
    } else {
        write_wrapped(text, "", &format!("{key} is pending: it fits on none of {nodes}"))?;
    }
    if *pod.spec.scheduler_name != *why.profile {
        write_wrapped(
            text,
            "",
            &format!(
                "No profile of the configuration has the pod's schedulerName, {}; {} answers.",
                pod.spec.scheduler_name, why.profile
            ),
        )?;
    }
    if let Some(group) = pod.spec.group() {
        write_wrapped(
            text,
            "",
            &format!("It belongs to PodGroup {group}; this answer is about the pod alone."),
        )?;
    }
    if let Some(key_reason) = key_reason(&why.refusals) {
        write_wrapped(text, "Key reason  ", &key_reason)?;
    }
    write_fixes(text, why)?;
    write_refusals(text, &why.refusals)?;
    let events: BTreeSet<String> =
        why.wakes_on.iter().flat_map(|(_, events)| events).map(event_text).collect();
    if !events.is_empty() {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        writeln!(text)?;
        write_wrapped(
            text,
            "Tried again  ",
            &format!("after five minutes, or if it may help that {}", events.join("; ")),
        )?;
    }
    if !why.message.is_empty() {
        writeln!(text, "\nMESSAGE")?;
        write_wrapped(text, "  ", &why.message)?;
    }
    Ok(())
}

/// The refusal that keeps the most nodes out alone; if there is none, the one of the most nodes.
fn key_reason(refusals: &[Refusal]) -> Option<String> {
    let refusal = refusals.iter().rev().max_by_key(|refusal| (refusal.only, refusal.nodes))?;
    let text = describe(refusal);
    Some(match (refusal.only, &refusal.detail) {
        (0, _) => format!("{text}; every node is refused for several reasons"),
        (only, Detail::Short(Shortage { resource, requested, free, node })) => format!(
            "{text}: nothing else refuses {}; {node} has the most, and is short by {}",
            count(only, "node"),
            quantity(resource, requested - free)
        ),
        (only, _) => format!("{text}: nothing else refuses {}", count(only, "node")),
    })
}

/// An event of the cluster, in words.
fn event_text(event: &ClusterEvent) -> String {
    let name = event.to_string();
    match &*name {
        "AssignedPodDelete" => "a pod on a node is deleted".to_owned(),
        "AssignedPodUpdatePodScaleDown" => "a pod on a node requests less".to_owned(),
        "AssignedPodAdd" => "a pod gets a node".to_owned(),
        "AssignedPodUpdatePodLabel" => "labels of a pod on a node change".to_owned(),
        "TargetPodUpdatePodScaleDown" => "this pod requests less".to_owned(),
        "TargetPodUpdatePodToleration" => "this pod tolerates more".to_owned(),
        "TargetPodUpdatePodLabel" => "labels of this pod change".to_owned(),
        _ if name.starts_with("Node") => "a node is added or changed".to_owned(),
        _ => {
            let kind = name.rsplit('/').next().unwrap_or(&name);
            format!("a {kind} is added or changed")
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
        Detail::None => reason.to_string(),
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
        let plugin = if refusal.plugin.is_empty() { "Nominated pods" } else { &*refusal.plugin };
        if plugin != last {
            writeln!(text, "{plugin}")?;
            last = plugin;
        }
        let lines = wrap(&describe(refusal), reasons - 3);
        for (i, line) in lines.iter().enumerate() {
            if i + 1 < lines.len() {
                writeln!(text, "  {line}")?;
            } else {
                let Refusal { nodes, only, left, .. } = refusal;
                writeln!(text, "  {line:<width$}{nodes:>8}{only:>8}{left:>8}", width = reasons - 2)?;
            }
        }
    }
    Ok(())
}

fn write_fixes(text: &mut String, why: &Why) -> std::fmt::Result {
    if !why.feasible.is_empty() {
        return Ok(());
    }
    if why.fixes.is_empty() {
        return writeln!(
            text,
            "\nNo single change of the pod, and no pair of changes, was found that helps."
        );
    }
    writeln!(text, "\nEACH OF THESE HELPS (tried)")?;
    for (i, fix) in why.fixes.iter().enumerate() {
        let changes: Vec<String> = fix.changes.iter().map(change_text).collect();
        let line = format!("{}; the pod then goes to {}", changes.join(", and "), fix.node);
        write_wrapped(text, &format!("  {}  ", i + 1), &line)?;
    }
    Ok(())
}

fn change_text(change: &PodChange) -> String {
    match change {
        PodChange::Request { resource, from, to } => {
            format!("request {resource} {} instead of {}", quantity(resource, *to), quantity(resource, *from))
        }
        PodChange::Tolerate(taint) => format!("tolerate {}", taint_text(taint)),
        PodChange::NoNodeAffinity => "drop the node selector and the required node affinity".to_owned(),
        PodChange::NoHardSpread => "let topology spread constraints be ScheduleAnyway".to_owned(),
        PodChange::NoPodAffinity => "drop affinity and anti-affinity to pods".to_owned(),
        PodChange::NoHostPorts => "use no host port".to_owned(),
        PodChange::Priority(priority) => format!("priority {priority}, which preempts other pods"),
    }
}

/// Writes a text behind a prefix, wrapped and indented below its start.
fn write_wrapped(text: &mut String, prefix: &str, content: &str) -> std::fmt::Result {
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
pub(super) fn json(pod: &PodInfo, why: Option<&Why>) -> String {
    let key = pod.key();
    let mut object = json!({
        "apiVersion": "insight.supercargo.dev/v1alpha1",
        "kind": "Why",
        "pod": { "namespace": key.namespace, "name": key.name, "node": pod.node_name },
    });
    if let Some(why) = why {
        object["schedulingGates"] = json!(pod.scheduling_gates);
        object["profile"] = json!(why.profile);
        object["nodes"] = json!(why.nodes);
        object["message"] = json!(why.message);
        object["feasible"] =
            why.feasible.iter().map(|(node, score)| json!({ "node": node, "score": score })).collect();
        object["preemption"] = json!(why.preemption);
        object["refusals"] = why.refusals.iter().map(refusal_json).collect();
        object["fixes"] = why.fixes.iter().map(fix_json).collect();
        let events = why.wakes_on.iter().map(|(plugin, events)| {
            (plugin.to_string(), events.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        object["wakesOn"] = json!(events.collect::<BTreeMap<_, _>>());
    }
    format!("{object:#}\n")
}

fn taint_json(Taint { key, value, effect }: &Taint) -> Value {
    json!({ "key": key, "value": value, "effect": effect.as_str() })
}

fn refusal_json(refusal: &Refusal) -> Value {
    let Refusal { plugin, reason, detail, nodes, only, left } = refusal;
    let mut object = json!({
        "plugin": &**plugin, "reason": &**reason, "nodes": nodes, "alone": only, "left": left, "code": code(refusal),
    });
    match detail {
        Detail::None => {}
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
        (_, "") => "PromisedTo",
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

fn fix_json(Fix { changes, node }: &Fix) -> Value {
    let change = |change: &PodChange| match change {
        PodChange::Request { resource, from, to } => json!({
            "change": "Request", "resource": resource,
            "from": quantity(resource, *from), "to": quantity(resource, *to),
        }),
        PodChange::Tolerate(taint) => json!({ "change": "Tolerate", "taint": taint_json(taint) }),
        PodChange::NoNodeAffinity => json!({ "change": "NoNodeAffinity" }),
        PodChange::NoHardSpread => json!({ "change": "NoHardSpread" }),
        PodChange::NoPodAffinity => json!({ "change": "NoPodAffinity" }),
        PodChange::NoHostPorts => json!({ "change": "NoHostPorts" }),
        PodChange::Priority(priority) => json!({ "change": "Priority", "to": priority }),
    };
    json!({ "changes": changes.iter().map(change).collect::<Vec<_>>(), "node": node })
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    fn refusal(plugin: &'static str, reason: &str, detail: Detail, (nodes, only): (usize, usize)) -> Refusal {
        let reason = reason.to_owned().into();
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
            first: BTreeMap::new(),
            feasible: Vec::new(),
            preemption: None,
            fixes: Vec::new(),
            wakes_on: Vec::new(),
        }
    }

    #[test]
    fn key_reason_is_what_keeps_most_nodes_out_alone() {
        let taint = || refusal("TaintToleration", "tainted", Detail::None, (4000, 2));
        let memory =
            |only| refusal("NodeResourcesFit", "Insufficient memory", short(4 << 30, 3 << 30), (900, only));
        assert_eq!(
            key_reason(&[taint(), memory(38)]).unwrap(),
            "memory: requests 4Gi, at most 3Gi free: nothing else refuses 38 nodes; node-112 has the most, and is \
             short by 1Gi"
        );
        assert_eq!(key_reason(&[taint(), memory(1)]).unwrap(), "tainted: nothing else refuses 2 nodes");
        let both = refusal("NodeAffinity", "elsewhere", Detail::None, (5000, 0));
        assert_eq!(key_reason(&[both]).unwrap(), "elsewhere; every node is refused for several reasons");
        assert_eq!(key_reason(&[]), None);
    }

    #[test]
    fn lines_fit_a_terminal_and_move_no_cursor() {
        let hostile = format!("red \u{1b}[31m, left \u{202e}, {}", "long ".repeat(60));
        let text =
            table(&pod("p").build(), Some(&why(vec![refusal("Custom", &hostile, Detail::None, (3, 3))])));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn gates_other_schedulers_and_bound_pods_are_told() {
        let gated = pod("p").gate("quota").build();
        let text = table(&gated, Some(&why(Vec::new())));
        assert!(text.starts_with("default/p is pending: it waits for scheduling gates: quota\n"), "{text}");
        let foreign = pod("p").scheduler("default-scheduler").build();
        let text = table(&foreign, Some(&why(Vec::new())));
        assert!(text.contains("has the pod's schedulerName, default-scheduler;"), "{text}");
        assert_eq!(table(&pod("p").node("n").build(), None), "default/p is on node n\n");
        assert_eq!(
            serde_json::from_str::<Value>(&json(&pod("p").node("n").build(), None)).unwrap()["pod"]["node"],
            "n"
        );
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
        assert_eq!(code_of("", "promised"), "PromisedTo");
        assert_eq!(code_of("Custom", "x"), "Other");
        assert_eq!(
            code(&refusal("NodeResourcesFit", "Insufficient memory", short(2, 1), (1, 1))),
            "ResourceShort"
        );
    }
}
