//! What changes of the cluster lead to.

use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_scheduler::{End, PodOutcome, WhatIf};

use super::{Page, Width, document, key_reason, page, refusal_json};
use crate::words::count;

/// For people.
pub fn what_if(what_if: &WhatIf, width: Width) -> String {
    page(width, |page| write(page, what_if))
}

fn write(page: &mut Page, WhatIf { pods, of_nodes, is_still }: &WhatIf) -> std::fmt::Result {
    page.wrapped("", &headline(pods))?;
    if !pods.is_empty() {
        writeln!(page)?;
        page.places("POD", "FROM", "TO")?;
    }
    let (bad, good): (Vec<_>, Vec<_>) = pods.iter().partition(|outcome| outcome.end.is_bad());
    for outcomes in [bad, good] {
        for outcome in outcomes.iter().take(page.rows(outcomes.len())) {
            write_outcome(page, outcome)?;
        }
        if let Some(more) = page.hidden(outcomes.len()) {
            let how = if outcomes[0].end.is_bad() { "also worse off" } else { "none worse off" };
            writeln!(page, "and {}, {how}", count(more, "more pod"))?;
        }
    }
    if *of_nodes > 0 {
        let pods = count(*of_nodes, "pod");
        let note =
            format!("{pods} of DaemonSets or of the kubelet stay on drained nodes, or fail with their node.");
        writeln!(page)?;
        page.wrapped("", &note)?;
    }
    if !is_still {
        writeln!(page)?;
        page.wrapped("", "The simulation ended after ten simulated minutes with pods still pending.")?;
    }
    Ok(())
}

/// Whether a pod is worse off, and what happens to how many.
fn headline(pods: &[PodOutcome]) -> String {
    let bad = match pods.iter().filter(|outcome| outcome.end.is_bad()).count() {
        0 => "No pod is worse off".to_owned(),
        1 => "1 pod is worse off".to_owned(),
        bad => format!("{bad} pods are worse off"),
    };
    let number = |is: fn(&PodOutcome) -> bool| pods.iter().filter(|outcome| is(outcome)).count();
    let parts = [
        (number(|it| matches!(it.end, End::Pending(_))), "stays pending", "stay pending"),
        (number(|it| matches!(it.end, End::HeldUp { .. })), "cannot be evicted", "cannot be evicted"),
        (number(|it| matches!(it.end, End::Back(_))), "comes back", "come back"),
        (number(|it| matches!(it.end, End::Gone)), "is not replaced", "are not replaced"),
        (number(|it| matches!(it.end, End::Unknown)), "needs volumes", "need volumes"),
        (number(|it| !it.end.is_bad() && it.from.is_some()), "goes to another node", "go to other nodes"),
        (number(|it| !it.end.is_bad() && it.from.is_none()), "gets a node", "get a node"),
        (number(|it| it.is_preempted), "is preempted", "are preempted"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, one, several)| format!("{number} {}", if number == 1 { one } else { several }))
        .collect();
    if parts.is_empty() {
        "Every pod stays where it is".to_owned()
    } else {
        format!("{bad}: {}", parts.join(", "))
    }
}

fn write_outcome(
    page: &mut Page,
    PodOutcome { pod, from, is_preempted, end, .. }: &PodOutcome,
) -> std::fmt::Result {
    let to = match end {
        End::On(node) | End::Back(node) => node.to_string(),
        End::Pending(_) => "pending".to_owned(),
        End::Gone => "not replaced".to_owned(),
        End::HeldUp { node, .. } if from.as_ref() == Some(node) => "stays".to_owned(),
        End::HeldUp { node, .. } => format!("stays on {node}"),
        End::Unknown => "unknown".to_owned(),
    };
    let from = from.as_deref().unwrap_or("-");
    page.places(&pod.to_string(), from, &to)?;
    if *is_preempted {
        writeln!(page, "  another pod preempts it")?;
    }
    match obstacle(end) {
        none if none.is_empty() => Ok(()),
        obstacle => page.wrapped("  ", &obstacle),
    }
}

/// The first pod that is worse off, and why.
pub fn first_obstacle(what_if: &WhatIf) -> Option<(String, String)> {
    let bad = what_if.pods.iter().find(|outcome| outcome.end.is_bad())?;
    Some((bad.pod.to_string(), obstacle(&bad.end)))
}

/// The same for programs.
pub fn obstacle_json(first: Option<&(String, String)>) -> Value {
    first.map(|(pod, why)| json!({ "pod": pod, "reason": why })).into()
}

/// Why a pod is worse off; empty if it is not, or if nobody has looked for the reason.
fn obstacle(end: &End) -> String {
    match end {
        End::On(_) | End::Pending(None) => String::new(),
        End::Back(_) => "tolerates the cordon of a drained node".to_owned(),
        End::Pending(Some(why)) if !why.feasible.is_empty() => {
            "fits alone, and waits for its PodGroup or its turn".to_owned()
        }
        End::Pending(Some(why)) => key_reason(&why.refusals).unwrap_or_else(|| why.message.clone()),
        End::Gone => "no controller replaces it".to_owned(),
        End::HeldUp { budgets, .. } if budgets.len() > 1 => {
            format!("has several PodDisruptionBudgets: {}", budgets.join(", "))
        }
        End::HeldUp { budgets, .. } => {
            format!("PodDisruptionBudget {} allows no eviction", budgets.join(", "))
        }
        End::Unknown => "ephemeral volumes of its replacement are not simulated".to_owned(),
    }
}

/// For programs.
pub fn what_if_json(WhatIf { pods, of_nodes, is_still }: &WhatIf) -> String {
    let fields = json!({
        "headline": headline(pods),
        "worseOff": pods.iter().filter(|outcome| outcome.end.is_bad()).count(),
        "pods": pods.iter().map(outcome_json).collect::<Vec<_>>(),
        "podsOfNodes": of_nodes,
        "atRest": is_still,
    });
    document("WhatIf", fields)
}

fn outcome_json(PodOutcome { pod, from, is_preempted, end, .. }: &PodOutcome) -> Value {
    let mut object = json!({
        "namespace": pod.namespace, "name": pod.name, "from": from, "preempted": is_preempted,
        "worse": end.is_bad(), "reason": obstacle(end),
        "end": match end {
            End::On(_) => "Node",
            End::Back(_) => "Back",
            End::Pending(_) => "Pending",
            End::Gone => "Gone",
            End::HeldUp { .. } => "HeldUp",
            End::Unknown => "Unknown",
        },
    });
    match end {
        End::On(node) | End::Back(node) => object["to"] = json!(node),
        End::Pending(Some(why)) => {
            object["message"] = json!(why.message);
            object["refusals"] = why.refusals.iter().map(refusal_json).collect();
        }
        End::HeldUp { node, budgets } => {
            object["to"] = json!(node);
            object["podDisruptionBudgets"] = json!(budgets);
        }
        _ => {}
    }
    object
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    fn outcome(name: &str, from: Option<&str>, end: End) -> PodOutcome {
        let pod = pod(name).build();
        PodOutcome { pod: pod.key(), uid: pod.uid, from: from.map(Into::into), is_preempted: false, end }
    }

    fn held_up(node: &str, budgets: &[&str]) -> End {
        End::HeldUp { node: node.into(), budgets: budgets.iter().map(|&name| name.into()).collect() }
    }

    fn answer(pods: Vec<PodOutcome>) -> WhatIf {
        WhatIf { pods, of_nodes: 0, is_still: true }
    }

    #[test]
    fn the_first_line_answers() {
        let first_line =
            |pods: Vec<PodOutcome>| what_if(&answer(pods), Width::Usual).lines().next().unwrap().to_owned();
        assert_eq!(first_line(Vec::new()), "Every pod stays where it is");
        let moved = || outcome("m", Some("a"), End::On("b".into()));
        assert_eq!(first_line(vec![moved()]), "No pod is worse off: 1 goes to another node");
        let pending = |name| outcome(name, Some("a"), End::Pending(None));
        assert_eq!(
            first_line(vec![pending("p"), pending("q"), moved()]),
            "2 pods are worse off: 2 stay pending, 1 goes to another node"
        );
    }

    #[test]
    fn rows_fit_a_terminal_and_the_worst_come_first() {
        let long = "x".repeat(80);
        let text = what_if(
            &WhatIf {
                pods: vec![
                    outcome("a-moved", Some(&long), End::On(long.as_str().into())),
                    outcome(&long, Some("n1"), held_up("n1", &["one", "two"])),
                ],
                of_nodes: 3,
                is_still: false,
            },
            Width::Usual,
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let place = |part: &str| text.find(part).unwrap();
        assert!(place("stays\n  has several PodDisruptionBudgets: one, two\n") < place("a-moved"), "{text}");
        assert!(text.contains("3 pods of DaemonSets") && text.contains("still pending"), "{text}");
    }

    #[test]
    fn long_lists_are_cut() {
        let pods = (0..25).map(|i| outcome(&format!("p{i}"), Some("a"), End::On("b".into()))).collect();
        let text = what_if(&answer(pods), Width::Usual);
        assert!(text.ends_with("\nand 5 more pods, none worse off\n"), "{text}");
        assert_eq!(text.lines().count(), 3 + crate::MOST_LINES + 1);
    }

    #[test]
    fn programs_read_every_end() {
        let pods = vec![
            outcome("on", Some("a"), End::On("b".into())),
            outcome("held", Some("a"), held_up("a", &["web"])),
            outcome("gone", Some("a"), End::Gone),
        ];
        let object: Value = serde_json::from_str(&what_if_json(&answer(pods))).unwrap();
        assert_eq!((&object["worseOff"], &object["atRest"]), (&json!(2), &json!(true)));
        assert_eq!((&object["pods"][0]["to"], &object["pods"][1]["end"]), (&json!("b"), &json!("HeldUp")));
        assert_eq!(object["pods"][1]["podDisruptionBudgets"], json!(["web"]));
    }
}
