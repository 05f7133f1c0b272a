//! Extenders.

use std::sync::Arc;

use supercargo_framework::testing::{node, pod};

use super::bed::Bed;
use crate::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, Place};

fn extender(name: &str) -> ExtenderSpec {
    ExtenderSpec {
        name: name.into(),
        filters: true,
        weight: None,
        ignorable: false,
        managed_resources: Vec::new(),
    }
}

type Answer = Box<dyn Fn(&str, &[Arc<str>]) -> Result<ExtenderAnswer, String>>;

/// Answers with a closure that is given the extender's name and the nodes, and notes what was asked.
struct Fakes {
    filter: Answer,
    prioritize: Answer,
    asked: Vec<String>,
}

impl Fakes {
    fn new() -> Self {
        let keep_all = |_: &str, nodes: &[Arc<str>]| Ok(filtered(nodes, &[], &[]));
        let no_scores = |_: &str, _: &[Arc<str>]| Ok(ExtenderAnswer::Prioritized(Vec::new()));
        Self { filter: Box::new(keep_all), prioritize: Box::new(no_scores), asked: Vec::new() }
    }

    fn filter(
        mut self,
        answer: impl Fn(&str, &[Arc<str>]) -> Result<ExtenderAnswer, String> + 'static,
    ) -> Self {
        self.filter = Box::new(answer);
        self
    }

    fn prioritize(
        mut self,
        answer: impl Fn(&str, &[Arc<str>]) -> Result<ExtenderAnswer, String> + 'static,
    ) -> Self {
        self.prioritize = Box::new(answer);
        self
    }
}

impl Calls for Fakes {
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String> {
        let (verb, nodes, answer) = match question {
            ExtenderQuestion::Filter { nodes, .. } => ("filter", nodes, &self.filter),
            ExtenderQuestion::Prioritize { nodes, .. } => ("prioritize", nodes, &self.prioritize),
        };
        self.asked.push(format!("{} {verb} {}", extender.name, nodes.join(" ")));
        answer(&extender.name, nodes)
    }
}

fn filtered(nodes: &[Arc<str>], failed: &[(&str, &str)], hopeless: &[(&str, &str)]) -> ExtenderAnswer {
    let reasons = |list: &[(&str, &str)]| {
        list.iter().map(|(node, reason)| (Arc::from(*node), String::from(*reason))).collect()
    };
    ExtenderAnswer::Filtered {
        nodes: nodes.to_vec(),
        failed: reasons(failed),
        failed_and_unresolvable: reasons(hopeless),
    }
}

fn with_three_nodes(extenders: Vec<ExtenderSpec>) -> Bed {
    let mut bed = Bed::extended(extenders);
    for name in ["n1", "n2", "n3"] {
        bed.node(node(name));
    }
    bed
}

#[test]
fn each_extender_filters_what_the_one_before_it_left() {
    let mut bed = with_three_nodes(vec![extender("x"), extender("y")]);
    let mut calls = Fakes::new().filter(|name, nodes| match name {
        "x" => Ok(filtered(&nodes[1..], &[("n1", "x does not like it")], &[])),
        _ => Ok(filtered(&nodes[1..], &[], &[("n2", "y does not like it")])),
    });
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x filter n1 n2 n3", "y filter n2 n3"]);
    assert_eq!(bed.said(), ["a bind to n3"]);
}

#[test]
fn nodes_that_extenders_turn_down_are_counted_and_any_event_brings_the_pod_back() {
    let mut bed = with_three_nodes(vec![extender("x")]);
    let mut calls = Fakes::new().filter(|_, _| {
        Ok(filtered(&[], &[("n1", "full"), ("n2", "full"), ("n3", "no")], &[("n2", "never")]))
    });
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    let message = "0/3 nodes are available: 1 full, 1 never, 1 no.";
    assert_eq!(bed.said()[1], format!("a patch False Unschedulable: {message}"));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    assert_eq!(bed.queued("a").unschedulable_plugins.iter().map(|p| &**p).collect::<Vec<_>>(), ["Extender"]);
    bed.assigned(pod("x").node("n1"));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
}

#[test]
fn an_extender_that_fails_fails_the_attempt_unless_it_is_ignorable() {
    for (ignorable, expected) in [(true, "a bind to n1"), (false, "a patch False SchedulerError: down")] {
        let mut bed = with_three_nodes(vec![ExtenderSpec { ignorable, ..extender("x") }]);
        bed.pod(pod("a"));
        bed.cycle_with(&mut Fakes::new().filter(|_, _| Err("down".to_owned())));
        assert_eq!(bed.said().last().unwrap(), expected);
    }
}

#[test]
fn scores_of_extenders_count_ten_times_their_weight() {
    for (weight, expected) in [(1, "a bind to n2"), (100, "a bind to n3")] {
        let prioritizes = ExtenderSpec { filters: false, weight: Some(weight), ..extender("x") };
        let mut bed = with_three_nodes(vec![prioritizes]);
        bed.assigned(pod("load1").request("cpu", "1").node("n1"));
        bed.assigned(pod("load3").request("cpu", "3").node("n3"));
        let mut calls = Fakes::new().prioritize(|_, _| {
            Ok(ExtenderAnswer::Prioritized(vec![("n3".into(), 2), ("n1".into(), 1), ("n9".into(), 10)]))
        });
        bed.pod(pod("a").request("cpu", "1"));
        bed.cycle_with(&mut calls);
        assert_eq!(calls.asked, ["x prioritize n1 n2 n3"]);
        assert_eq!(bed.said(), [expected], "weight {weight}");
    }
}

#[test]
fn an_extender_that_cannot_prioritize_is_left_out() {
    let prioritizes = ExtenderSpec { filters: false, weight: Some(5), ..extender("x") };
    let mut bed = with_three_nodes(vec![prioritizes]);
    bed.pod(pod("a"));
    bed.cycle_with(&mut Fakes::new().prioritize(|_, _| Err("down".to_owned())));
    assert_eq!(bed.said(), ["a bind to n1"]);
}

#[test]
fn an_extender_that_manages_resources_is_asked_about_pods_that_want_them_only() {
    let managed_resources = vec!["example.com/gpu".into()];
    let mut bed = with_three_nodes(vec![ExtenderSpec { managed_resources, ..extender("x") }]);
    bed.node(node("g").allocatable("example.com/gpu", "1"));
    let mut calls = Fakes::new();
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert!(calls.asked.is_empty());
    bed.pod(pod("b").request("example.com/gpu", "1"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x filter g"]);
}

#[test]
fn a_nominated_node_that_an_extender_turns_down_is_searched_past() {
    let mut bed = with_three_nodes(vec![extender("x")]);
    let mut calls = Fakes::new().filter(|_, nodes| {
        let kept: Vec<_> = nodes.iter().filter(|node| ***node != *"n2").cloned().collect();
        Ok(filtered(&kept, &[("n2", "no")], &[]))
    });
    bed.pod(pod("a").nominated("n2"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x filter n2", "x filter n1 n2 n3"]);
    assert_eq!(bed.said(), ["a bind to n1"]);
}

#[test]
fn with_a_filtering_extender_large_clusters_are_sampled() {
    let mut bed = Bed::extended(vec![extender("x")]);
    for i in 0..300 {
        bed.node(node(&format!("n{i}")));
    }
    let mut calls = Fakes::new();
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked[0].split(' ').count() - 2, 144, "48 % of 300");
}
