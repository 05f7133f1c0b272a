//! Expansion of plugins to extension points.

use super::super::PluginSet;
use super::{errors, valid};

/// The plugins of a single profile with this `plugins` field, which is indented by two.
fn plugins(text: &str) -> PluginSet {
    let mut config = valid(&format!("profiles:\n- plugins:\n{}", indented(text)));
    config.profiles.remove(0).plugins
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

const DEFAULT_FILTERS: &[&str] =
    &["NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"];

fn weights(plugins: &PluginSet) -> Vec<(&str, i32)> {
    plugins.score.iter().map(|(name, weight)| (name.as_str(), *weight)).collect()
}

#[test]
fn default_plugins_are_enabled_at_all_their_points() {
    let plugins = valid("").profiles.remove(0).plugins;
    assert_eq!(plugins.pre_enqueue, ["SchedulingGates"]);
    assert_eq!(plugins.queue_sort, ["PrioritySort"]);
    assert_eq!(plugins.pre_filter, ["NodeAffinity", "NodePorts", "NodeResourcesFit"]);
    assert_eq!(plugins.filter, DEFAULT_FILTERS);
    assert_eq!(plugins.bind, ["DefaultBinder"]);
    assert_eq!(
        weights(&plugins),
        [
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("NodeResourcesFit", 1),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
        ]
    );
    for unused in
        [&plugins.post_filter, &plugins.reserve, &plugins.permit, &plugins.pre_bind, &plugins.post_bind]
    {
        assert_eq!(unused, &Vec::<String>::new());
    }
    assert_eq!(plugins.instances.len(), 11);
    assert!(plugins.instances.iter().all(|(name, plugin)| plugin.name() == name));
}

#[test]
fn a_plugin_at_multi_point_is_enabled_at_all_its_points() {
    let plugins = plugins("multiPoint: {enabled: [{name: Everywhere, weight: 7}]}");
    for (point, names) in [
        ("preEnqueue", &plugins.pre_enqueue),
        ("preFilter", &plugins.pre_filter),
        ("filter", &plugins.filter),
        ("postFilter", &plugins.post_filter),
        ("preScore", &plugins.pre_score),
        ("reserve", &plugins.reserve),
        ("permit", &plugins.permit),
        ("preBind", &plugins.pre_bind),
        ("bind", &plugins.bind),
        ("postBind", &plugins.post_bind),
    ] {
        assert_eq!(names.last().map(String::as_str), Some("Everywhere"), "{point}");
    }
    assert_eq!(weights(&plugins).last(), Some(&("Everywhere", 7)));
    assert_eq!(plugins.queue_sort, ["PrioritySort"]);
}

#[test]
fn a_point_lists_overrides_then_multi_point_then_its_own_plugins() {
    let plugins = plugins("filter: {enabled: [{name: Everywhere}, {name: NodePorts}, {name: NodeName}]}");
    assert_eq!(
        plugins.filter,
        [
            "NodePorts",
            "NodeName",
            "NodeUnschedulable",
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "Everywhere",
        ]
    );
    assert_eq!(plugins.pre_filter, ["NodeAffinity", "NodePorts", "NodeResourcesFit"]);
}

#[test]
fn a_plugin_disabled_at_a_point_stays_enabled_at_others() {
    let plugins = plugins("filter: {disabled: [{name: NodePorts}, {name: NodeName}]}");
    assert_eq!(plugins.filter, ["NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit"]);
    assert_eq!(plugins.pre_filter, ["NodeAffinity", "NodePorts", "NodeResourcesFit"]);
    assert!(plugins.instances.contains_key("NodeName"));
}

#[test]
fn star_in_disabled_at_a_point_keeps_only_its_enabled_plugins() {
    let plugins = plugins("score:\n  disabled: [{name: '*'}]\n  enabled: [{name: ImageLocality}]");
    assert_eq!(weights(&plugins), [("ImageLocality", 1)]);
    assert_eq!(plugins.filter, DEFAULT_FILTERS);
}

#[test]
fn a_plugin_disabled_and_enabled_at_a_point_moves_to_its_end() {
    let plugins = plugins("preFilter: {disabled: [{name: NodeAffinity}], enabled: [{name: NodeAffinity}]}");
    assert_eq!(plugins.pre_filter, ["NodePorts", "NodeResourcesFit", "NodeAffinity"]);
}

#[test]
fn a_default_listed_again_at_multi_point_keeps_its_slot() {
    let plugins = plugins("multiPoint: {enabled: [{name: Everywhere}, {name: TaintToleration, weight: 9}]}");
    assert_eq!(plugins.filter[..3], DEFAULT_FILTERS[..3]);
    assert_eq!(weights(&plugins)[0], ("TaintToleration", 9));
    assert_eq!(plugins.filter.last().map(String::as_str), Some("Everywhere"));
}

#[test]
fn a_default_disabled_at_multi_point_is_removed() {
    let plugins = plugins("multiPoint: {disabled: [{name: NodeAffinity}, {name: ImageLocality}]}");
    assert_eq!(plugins.pre_filter, ["NodePorts", "NodeResourcesFit"]);
    assert!(!plugins.instances.contains_key("NodeAffinity"));
    assert!(!plugins.instances.contains_key("ImageLocality"));
}

#[test]
fn default_disabled_and_enabled_at_multi_point_moves_to_the_end() {
    let plugins = plugins("multiPoint: {disabled: [{name: NodeName}], enabled: [{name: NodeName}]}");
    assert_eq!(
        plugins.filter,
        ["NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "NodeName"]
    );
}

#[test]
fn star_in_disabled_at_multi_point_removes_all_defaults() {
    let text = "
multiPoint:
  disabled: [{name: '*'}]
  enabled: [{name: DefaultBinder}, {name: PrioritySort}, {name: NodeName}]
filter: {enabled: [{name: NodePorts}]}
";
    let plugins = plugins(text);
    assert_eq!(plugins.filter, ["NodeName", "NodePorts"]);
    assert_eq!(plugins.pre_filter, Vec::<String>::new());
    assert_eq!(weights(&plugins), []);
    let instances: Vec<&str> = plugins.instances.keys().map(String::as_str).collect();
    assert_eq!(instances, ["DefaultBinder", "NodeName", "NodePorts", "PrioritySort"]);
}

#[test]
fn disabling_at_multi_point_keeps_plugins_enabled_at_a_point() {
    let text = "multiPoint: {disabled: [{name: NodePorts}]}\nfilter: {enabled: [{name: NodePorts}]}";
    let plugins = plugins(text);
    assert_eq!(plugins.filter.last().map(String::as_str), Some("NodePorts"));
    assert_eq!(plugins.pre_filter, ["NodeAffinity", "NodeResourcesFit"]);
}

#[test]
fn weight_at_score_takes_precedence_over_multi_point() {
    let text = "
multiPoint: {enabled: [{name: NodeAffinity, weight: 5}]}
score: {enabled: [{name: NodeAffinity, weight: 8}]}
";
    let plugins = plugins(text);
    assert_eq!(weights(&plugins)[..2], [("NodeAffinity", 8), ("TaintToleration", 3)]);
}

#[test]
fn unset_weight_at_score_is_1_whatever_multi_point_sets() {
    let text = "score: {enabled: [{name: TaintToleration}, {name: NodeAffinity, weight: 0}]}";
    assert_eq!(weights(&plugins(text))[..2], [("TaintToleration", 1), ("NodeAffinity", 1)]);
    let text = "multiPoint: {enabled: [{name: TaintToleration}]}";
    assert_eq!(weights(&plugins(text))[0], ("TaintToleration", 1));
}

#[test]
fn queue_sort_can_be_replaced() {
    let plugins = plugins("queueSort: {disabled: [{name: '*'}], enabled: [{name: OtherSort}]}");
    assert_eq!(plugins.queue_sort, ["OtherSort"]);
}

#[test]
fn unsupported_plugins_can_be_disabled() {
    let text = "
multiPoint: {disabled: [{name: PodTopologySpread}, {name: EBSLimits}]}
postFilter: {disabled: [{name: DefaultPreemption}]}
";
    assert_eq!(plugins(text).filter, DEFAULT_FILTERS);
}

#[test]
fn a_plugin_is_rejected_at_a_point_it_does_not_implement() {
    let text = "profiles:\n- plugins:\n    filter:\n      enabled:\n      - name: ImageLocality\n";
    assert_eq!(
        errors(text),
        "c.yaml:8:15: profiles[0].plugins.filter.enabled[0].name: ImageLocality does not implement filter; remove it here"
    );
}

#[test]
fn a_plugin_enabled_twice_at_a_point_is_rejected() {
    let text = "profiles: [{plugins: {filter: {enabled: [{name: NodeName}, {name: NodeName}]}}}]";
    assert_eq!(
        errors(text),
        "c.yaml:4:67: profiles[0].plugins.filter.enabled[1].name: NodeName is enabled twice here; keep one"
    );
}

#[test]
fn exactly_one_queue_sort_is_required() {
    let text = "profiles:\n- plugins:\n    queueSort: {disabled: [{name: PrioritySort}]}\n";
    assert_eq!(
        errors(text),
        "c.yaml:6:16: profiles[0].plugins.queueSort: no queue sort plugin is enabled; enable one"
    );
    let text = "profiles:\n- plugins:\n    multiPoint: {enabled: [{name: OtherSort}]}\n";
    assert_eq!(
        errors(text),
        "c.yaml:5:3: profiles[0].plugins.queueSort: only one queue sort plugin can be enabled, \
         these are: PrioritySort, OtherSort"
    );
}

#[test]
fn at_least_one_bind_plugin_is_required() {
    let text = "profiles:\n- plugins:\n    bind:\n      disabled: [{name: '*'}]\n";
    assert_eq!(errors(text), "c.yaml:6:5: profiles[0].plugins.bind: no bind plugin is enabled; enable one");
}

#[test]
fn total_score_must_not_overflow() {
    use super::super::profile::total_fits;
    assert!(total_fits([i32::MAX; 1000].into_iter()));
    // The maximum weight times 100 fits 42,949,673 times.
    assert!(total_fits(std::iter::repeat_n(i32::MAX, 42_949_672)));
    assert!(!total_fits(std::iter::repeat_n(i32::MAX, 42_949_674)));
}
