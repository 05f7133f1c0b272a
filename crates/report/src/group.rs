//! What a trial of a pod's group shows, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_framework::objects::{GroupKey, GroupKind};
use supercargo_scheduler::{Obstacle, WhyGroup};

use crate::words::count;
use crate::write_wrapped;

/// Writes the answer below that about the pod.
pub(crate) fn write_group(text: &mut String, group: &WhyGroup) -> std::fmt::Result {
    writeln!(text)?;
    write_wrapped(text, "GROUP  ", &sentence(group))?;
    let noun = if group.key.kind == GroupKind::Groups { "group" } else { "pod" };
    let needs = count(usize::try_from(group.min_count).unwrap_or_default(), noun);
    let tried = format!(
        "needs {needs} at once; {} on nodes, {} waiting, {} of these fit together",
        group.scheduled, group.waiting, group.placed
    );
    if group.obstacle != Some(Obstacle::Missing) {
        write_wrapped(text, "  ", &tried)?;
    }
    if let Some((pod, message)) = &group.refused {
        write_wrapped(text, "  ", &format!("beside the others, {pod} fits nowhere: {message}"))?;
    }
    Ok(())
}

/// Whether the group would start, and why not.
fn sentence(group: &WhyGroup) -> String {
    let name = name(&group.key);
    match &group.obstacle {
        None => match &group.node {
            Some(node) => format!("{name} fits and starts; the pod goes to {node}"),
            None => format!("{name} fits and starts, but without the pod"),
        },
        Some(Obstacle::Missing) => {
            format!("{name}, or a group above it, does not exist; its pods wait for it")
        }
        Some(Obstacle::Incomplete) => format!("{name} waits for more pods"),
        Some(Obstacle::Gated(pods)) => {
            format!("{name} would fit, but {} for scheduling gates", waits(*pods))
        }
        Some(Obstacle::Unschedulable(message, preempts)) => {
            let then = if *preempts { "; preemption makes room for it" } else { "" };
            format!("{name} does not fit: {message}{then}")
        }
        Some(Obstacle::Error(error)) => format!("{name} cannot be tried: {error}"),
    }
}

fn waits(pods: usize) -> String {
    if pods == 1 { "1 pod waits".to_owned() } else { format!("{pods} pods wait") }
}

fn name(key: &GroupKey) -> String {
    let kind = match key.kind {
        GroupKind::Pods => "PodGroup",
        GroupKind::Groups => "CompositePodGroup",
    };
    format!("{kind} {key}")
}

/// For programs.
pub(crate) fn json(group: &WhyGroup) -> Value {
    let (obstacle, preempts) = match &group.obstacle {
        None => (None, false),
        Some(Obstacle::Missing) => (Some("Missing"), false),
        Some(Obstacle::Incomplete) => (Some("Incomplete"), false),
        Some(Obstacle::Gated(_)) => (Some("Gated"), false),
        Some(Obstacle::Unschedulable(_, preempts)) => (Some("Unschedulable"), *preempts),
        Some(Obstacle::Error(_)) => (Some("Error"), false),
    };
    json!({
        "group": name(&group.key),
        "text": sentence(group),
        "minCount": group.min_count,
        "scheduled": group.scheduled,
        "waiting": group.waiting,
        "placed": group.placed,
        "node": group.node,
        "starts": obstacle.is_none(),
        "obstacle": obstacle,
        "preempts": preempts,
        "refused": group.refused.as_ref().map(|(pod, message)| json!({ "pod": pod.to_string(), "message": message })),
    })
}
