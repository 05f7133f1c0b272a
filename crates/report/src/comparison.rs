//! How the decisions of a record differ with another configuration.

use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_scheduler::record::{Comparison, Decision, Difference, Reason};

use super::{Page, Width, describe, document, page, refusal_json};
use crate::words::count;

/// For people. `unrecorded` names the kinds of which the record has no objects.
pub fn comparison(comparison: &Comparison, unrecorded: &[String], width: Width) -> String {
    page(width, |page| write(page, comparison, unrecorded))
}

fn write(page: &mut Page, comparison: &Comparison, unrecorded: &[String]) -> std::fmt::Result {
    page.wrapped("", &headline(comparison))?;
    let differences = &comparison.differences;
    if !differences.is_empty() {
        writeln!(page)?;
        page.places("POD", "AS RECORDED", "WITH THE OTHER FILE")?;
    }
    for difference in differences.iter().take(page.rows(differences.len())) {
        write_difference(page, difference)?;
    }
    if let Some(more) = page.hidden(differences.len()) {
        writeln!(page, "and {}; --output=wide lists all", count(more, "more difference"))?;
    }
    let notes = notes(comparison, unrecorded);
    if !notes.is_empty() {
        writeln!(page)?;
    }
    notes.iter().try_for_each(|note| page.wrapped("", note))
}

/// How many decisions differ, and how.
fn headline(comparison: &Comparison) -> String {
    let decisions = count(comparison.attempts, "decision");
    let parts = [
        (comparison.moved, "another node"),
        (comparison.gained, "a node only with the other file"),
        (comparison.lost, "a node only as recorded"),
        (comparison.preempts, "another preemption"),
    ];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, how)| format!("{number} {how}")).collect();
    match comparison.differing() {
        _ if comparison.attempts == 0 => "The record has no decision to compare".to_owned(),
        0 => format!("No decision differs, of {decisions}"),
        1 => format!("1 of {decisions} differs: {}", parts.join(", ")),
        differing => format!("{differing} of {decisions} differ: {}", parts.join(", ")),
    }
}

/// What the comparison leaves out.
fn notes(comparison: &Comparison, unrecorded: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.of_groups > 0 {
        notes.push(format!("{} of pod groups are not compared.", count(comparison.of_groups, "attempt")));
    }
    if comparison.extended > 0 {
        let attempts = count(comparison.extended, "attempt");
        notes.push(format!("{attempts} with extenders are not compared: the record has no other answers."));
    }
    if !unrecorded.is_empty() {
        let kinds = unrecorded.join(", ");
        notes.push(format!("The other file reads kinds of which the record has no objects: {kinds}."));
    }
    notes
}

fn write_difference(page: &mut Page, difference: &Difference) -> std::fmt::Result {
    let Difference { pod, recorded, other, attempts, .. } = difference;
    let (recorded, other) = (place(recorded), place(other));
    page.places(&pod.to_string(), &recorded, &other)?;
    let times = if *attempts > 1 { format!(" ({attempts} attempts)") } else { String::new() };
    page.wrapped("  ", &format!("{}{times}", reason_text(difference)))
}

fn place(decision: &Decision) -> String {
    match decision {
        Decision::Node(node) => node.to_string(),
        Decision::Preempts(node) => format!("preempts on {node}"),
        Decision::Pending(_) => "pending".to_owned(),
    }
}

fn reason_text(Difference { recorded, other, reason, .. }: &Difference) -> String {
    match reason {
        Reason::RefusedByOther(node, refusal) => {
            format!("only {} of the other file refuses {node}: {}", refusal.plugin, describe(refusal))
        }
        Reason::RefusedByRecorded(node, refusal) => {
            format!("only {} as recorded refuses {node}: {}", refusal.plugin, describe(refusal))
        }
        Reason::Scores { plugin, lead: (before, after) } => {
            let node = other.node().map(|node| &**node).unwrap_or_default();
            format!("{plugin}: {after:+} points for {node}, {before:+} as recorded")
        }
        Reason::NoProfile => "the other file has no profile for its schedulerName".to_owned(),
        Reason::Unknown => match (recorded, other) {
            (_, Decision::Pending(message)) | (Decision::Pending(message), _) => message.clone(),
            _ => "another sample of nodes, or another victim".to_owned(),
        },
    }
}

/// For programs.
pub fn comparison_json(comparison: &Comparison, unrecorded: &[String]) -> String {
    let fields = json!({
        "headline": headline(comparison),
        "steps": comparison.steps,
        "decisions": comparison.attempts,
        "differing": comparison.differing(),
        "otherNode": comparison.moved,
        "onlyOther": comparison.gained,
        "onlyRecorded": comparison.lost,
        "otherPreemption": comparison.preempts,
        "notCompared": { "groups": comparison.of_groups, "extenders": comparison.extended },
        "unrecordedKinds": unrecorded,
        "differences": comparison.differences.iter().map(difference_json).collect::<Vec<_>>(),
    });
    document("ReplayComparison", fields)
}

fn difference_json(difference: &Difference) -> Value {
    let Difference { step, time, pod, recorded, other, reason, attempts } = difference;
    let mut object = json!({
        "namespace": pod.namespace, "name": pod.name, "step": step, "time": time.to_rfc3339(),
        "attempts": attempts, "recorded": decision_json(recorded), "other": decision_json(other),
        "text": reason_text(difference),
    });
    match reason {
        Reason::RefusedByOther(node, refusal) | Reason::RefusedByRecorded(node, refusal) => {
            let is_other = matches!(reason, Reason::RefusedByOther(..));
            let by = if is_other { "Other" } else { "Recorded" };
            object["refused"] = json!({ "node": node, "by": by, "refusal": refusal_json(refusal) });
        }
        Reason::Scores { plugin, lead: (before, after) } => {
            object["scores"] = json!({ "plugin": plugin.to_string(), "recorded": before, "other": after });
        }
        Reason::NoProfile | Reason::Unknown => {}
    }
    object
}

fn decision_json(decision: &Decision) -> Value {
    match decision {
        Decision::Node(node) => json!({ "end": "Node", "node": node }),
        Decision::Preempts(node) => json!({ "end": "Preempts", "node": node }),
        Decision::Pending(message) => json!({ "end": "Pending", "message": message }),
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Timestamp;
    use supercargo_framework::testing::pod;
    use supercargo_scheduler::{Detail, Refusal};

    use super::*;

    fn on(node: &str) -> Decision {
        Decision::Node(node.into())
    }

    fn pending() -> Decision {
        Decision::Pending("0/2 nodes are available".to_owned())
    }

    fn difference(name: &str, recorded: Decision, other: Decision, reason: Reason) -> Difference {
        let pod = pod(name).build().key();
        Difference { step: 7, time: Timestamp(0), pod, recorded, other, reason, attempts: 1 }
    }

    fn refusal() -> Refusal {
        Refusal {
            plugin: "NodeAffinity".into(),
            reason: "node(s) didn't match".into(),
            detail: Detail::None,
            nodes: vec!["b".into()],
            only: 1,
            left: 0,
        }
    }

    #[test]
    fn the_first_line_answers() {
        let first_line =
            |it: &Comparison| comparison(it, &[], Width::Usual).lines().next().unwrap().to_owned();
        assert_eq!(first_line(&Comparison::default()), "The record has no decision to compare");
        let same = Comparison { attempts: 12, ..Comparison::default() };
        assert_eq!(comparison(&same, &[], Width::Usual), "No decision differs, of 12 decisions\n");
        let one = Comparison { moved: 1, ..same.clone() };
        assert_eq!(first_line(&one), "1 of 12 decisions differs: 1 another node");
        let more = Comparison { moved: 2, gained: 1, lost: 3, preempts: 1, ..same };
        assert_eq!(
            comparison(&more, &[], Width::Usual),
            "7 of 12 decisions differ: 2 another node, 1 a node only with the other file, 3 a\n\
             node only as recorded, 1 another preemption\n"
        );
    }

    #[test]
    fn rows_fit_a_terminal_and_say_why() {
        let long = "x".repeat(90);
        let lead = Reason::Scores { plugin: "NodeResourcesFit".into(), lead: (-8, 12) };
        let gained = Reason::RefusedByRecorded("b".into(), refusal());
        let differences = vec![
            difference(&long, on(&long), on("b"), lead),
            Difference { attempts: 3, ..difference("p", pending(), on("b"), gained) },
            difference("q", Decision::Preempts("a".into()), pending(), Reason::Unknown),
            difference("r", on("a"), pending(), Reason::NoProfile),
        ];
        let compared =
            Comparison { attempts: 9, moved: 1, of_groups: 2, extended: 1, ..Comparison::default() };
        let text = comparison(&Comparison { differences, ..compared }, &["pods.v1".to_owned()], Width::Usual);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in [
            "  NodeResourcesFit: +12 points for b, -8 as recorded\n",
            "  only NodeAffinity as recorded refuses b: node(s) didn't match (3 attempts)\n",
            "preempts on a        pending\n  0/2 nodes are available\n",
            "has no profile",
            "2 attempts of pod groups are not compared.",
            "1 attempt with extenders",
            "no objects: pods.v1.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn long_lists_are_cut_for_people_only() {
        let one = |i| difference(&format!("p{i}"), on("a"), on("b"), Reason::Unknown);
        let differences: Vec<_> = (0..25).map(one).collect();
        let compared = Comparison { attempts: 25, moved: 25, differences, ..Comparison::default() };
        assert!(comparison(&compared, &[], Width::Usual).contains("\nand 5 more differences; "));
        assert!(!comparison(&compared, &[], Width::Wide).contains("more differences"));
        let object: Value = serde_json::from_str(&comparison_json(&compared, &[])).unwrap();
        assert_eq!(object["differences"].as_array().unwrap().len(), 25);
    }

    #[test]
    fn programs_read_both_decisions_and_the_reason() {
        let refused = difference("p", on("b"), pending(), Reason::RefusedByOther("b".into(), refusal()));
        let compared = Comparison { lost: 1, differences: vec![refused], ..Comparison::default() };
        let object: Value = serde_json::from_str(&comparison_json(&compared, &[])).unwrap();
        let first = &object["differences"][0];
        assert_eq!((&first["recorded"]["node"], &first["other"]["end"]), (&json!("b"), &json!("Pending")));
        assert_eq!(first["refused"]["refusal"]["code"], json!("LabelMismatch"));
        assert_eq!((&object["onlyRecorded"], &first["step"]), (&json!(1), &json!(7)));
    }
}
