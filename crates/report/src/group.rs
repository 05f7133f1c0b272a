//! What a trial of a pod's group shows, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_framework::objects::{GroupKey, GroupKind};
use supercargo_scheduler::{Obstacle, WhyGroup};

use crate::Page;
use crate::words::count;

/// Writes the answer below that about the pod.
pub(crate) fn write_group(page: &mut Page, group: &WhyGroup) -> std::fmt::Result {
    writeln!(page)?;
    page.wrapped("GROUP  ", &sentence(group))?;
    let noun = if group.key.kind == GroupKind::Groups { "group" } else { "pod" };
    let needs = count(usize::try_from(group.min_count).unwrap_or_default(), noun);
    let tried = format!(
        "needs {needs} at once; {} on nodes, {} waiting, {} of these fit together",
        group.scheduled, group.waiting, group.placed
    );
    if group.obstacle != Some(Obstacle::Missing) {
        page.wrapped("  ", &tried)?;
    }
    if let Some((pod, message)) = &group.refused {
        page.wrapped("  ", &format!("beside the others, {pod} fits nowhere: {message}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn why(obstacle: Option<Obstacle>) -> WhyGroup {
        WhyGroup {
            key: GroupKey::of_pods("default/g".into()),
            min_count: 3,
            scheduled: 1,
            waiting: 2,
            placed: 1,
            node: None,
            obstacle,
            refused: Some((supercargo_framework::testing::pod("p").build().key(), "0/1 nodes".to_owned())),
        }
    }

    #[test]
    fn the_first_line_says_whether_the_group_starts() {
        let preempts = Obstacle::Unschedulable("too few".to_owned(), true);
        for (obstacle, expected) in [
            (None, "PodGroup default/g fits and starts, but without the pod"),
            (Some(Obstacle::Incomplete), "PodGroup default/g waits for more pods"),
            (Some(Obstacle::Gated(1)), "PodGroup default/g would fit, but 1 pod waits for scheduling gates"),
            (Some(preempts), "PodGroup default/g does not fit: too few; preemption makes room for it"),
        ] {
            assert_eq!(sentence(&why(obstacle)), expected);
        }
        let why = why(Some(Obstacle::Incomplete));
        let text = crate::page(crate::Width::Usual, |page| write_group(page, &why));
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            [
                "  needs 3 pods at once; 1 on nodes, 2 waiting, 1 of these fit together",
                "  beside the others, default/p fits nowhere: 0/1 nodes",
            ]
        );
    }
}
