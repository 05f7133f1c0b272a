//! Which plugins decide in a record.

use super::comparison::{cpu, record, replayed, two_nodes};
use super::test_bed::{all_plugins, plugins};
use crate::record::{FilterInfluence, Influence, RecordedCall, ScoreInfluence};
use crate::{PluginLists, Scheduler};

fn influence(record: &[u8], plugins: PluginLists) -> Influence {
    let mut influence = Influence::default();
    let mut before = |scheduler: &mut Scheduler, step: &RecordedCall| influence.before(scheduler, step);
    replayed(record, plugins, &mut before);
    influence
}

fn of_filter(influence: &Influence, plugin: &str) -> FilterInfluence {
    influence.filters.iter().find(|(name, _)| *name == plugin).unwrap().1
}

fn of_score(influence: &Influence, plugin: &str) -> ScoreInfluence {
    influence.scorers.iter().find(|(name, _)| *name == plugin).unwrap().1
}

#[test]
fn filters_that_decide_are_told_from_those_that_only_refuse() {
    // The first pod fits anywhere. The second one needs node b, which has a taint, and gets none.
    let mut nodes = two_nodes();
    nodes[1] = nodes[1].clone().taint("gpu", "yes", supercargo_framework::TaintEffect::NoSchedule);
    let pods = vec![cpu("p", "2"), cpu("wide", "7")];
    let record = record(plugins(Vec::new()), nodes, pods);
    let influence = influence(&record, plugins(Vec::new()));
    assert!(influence.attempts >= 2, "{}", influence.attempts);
    let all = influence.attempts;
    assert_eq!(influence.placed, 1);
    // Without it, "p" would get the emptier node, and "wide" one at all.
    let taint = of_filter(&influence, "TaintToleration");
    assert_eq!((taint.refuses, taint.alone), (all, all));
    assert!((all - 1..=all).contains(&taint.changes), "{taint:?}");
    let fit = of_filter(&influence, "NodeResourcesFit");
    assert_eq!((fit.refuses, fit.alone, fit.changes), (all - 1, all - 1, all - 1));
    assert_eq!(of_filter(&influence, "NodePorts"), FilterInfluence::default());
}

#[test]
fn a_plugin_that_refuses_a_pod_in_pre_filter_decides() {
    let wants_a = cpu("p", "1").required_field("metadata.name", "In", &["elsewhere"]);
    let record = record(plugins(Vec::new()), two_nodes(), vec![wants_a]);
    let influence = influence(&record, plugins(Vec::new()));
    let all = influence.attempts;
    assert!(all > 0 && influence.placed == 0);
    let affinity = of_filter(&influence, "NodeAffinity");
    assert_eq!(affinity, FilterInfluence { refuses: all, alone: all, changes: all });
}

/// Without the filter, the nominated node is still the first choice.
#[test]
fn a_filter_does_not_decide_if_the_nominated_node_fits() {
    let mut nodes = two_nodes();
    nodes[1] = nodes[1].clone().taint("gpu", "yes", supercargo_framework::TaintEffect::NoSchedule);
    let nominated = cpu("p", "2").nominated("a");
    let record = record(plugins(Vec::new()), nodes, vec![cpu("old", "2"), nominated]);
    let influence = influence(&record, plugins(Vec::new()));
    assert_eq!((influence.attempts, influence.placed), (2, 2));
    let taint = of_filter(&influence, "TaintToleration");
    assert_eq!((taint.refuses, taint.alone), (2, 2));
    // The first pod has no choice but for the filter; the second one stays on "a".
    assert!(taint.changes <= 1, "{taint:?}");
}

#[test]
fn a_score_that_outweighs_another_decides() {
    // The label draws to "a", and its load to "b".
    let preferring = |name: &str| cpu(name, "4").preferred_affinity(100, "zone", "In", &["a"]);
    let record = record(all_plugins(Vec::new()), two_nodes(), vec![cpu("old", "4"), preferring("p")]);
    let influence = influence(&record, all_plugins(Vec::new()));
    assert_eq!((influence.attempts, influence.placed), (2, 2));
    let affinity = of_score(&influence, "NodeAffinity");
    assert_eq!((affinity.differs, affinity.changes), (1, 1), "{affinity:?}");
    assert_eq!(of_score(&influence, "ImageLocality").changes, 0);
    let fit = of_score(&influence, "NodeResourcesFit");
    assert_eq!((fit.weight, fit.changes), (1, 0), "{fit:?}");
}

#[test]
fn a_record_without_attempts_has_no_influence() {
    let record = record(all_plugins(Vec::new()), two_nodes(), Vec::new());
    let influence = influence(&record, all_plugins(Vec::new()));
    assert_eq!((influence.attempts, influence.filters.len()), (0, 0));
}
