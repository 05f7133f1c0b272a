//! Rejected plugins and arguments: positions and messages.

use super::{Catalog, Config, HEADER, check, errors};

#[test]
fn unsupported_settings_are_rejected_by_name() {
    let not_here = |what: &str| {
        format!("{what} is known to kube-scheduler, but not supported by supercargo yet; remove it")
    };
    let cases = [
        (
            "profiles:\n- plugins:\n    multiPoint:\n      enabled:\n      - name: PodTopologySpread\n",
            "8:15: profiles[0].plugins.multiPoint.enabled[0].name",
            "PodTopologySpread",
        ),
        (
            "profiles: [{plugins: {postFilter: {enabled: [{name: DefaultPreemption}]}}}]\n",
            "4:53: profiles[0].plugins.postFilter.enabled[0].name",
            "DefaultPreemption",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: VolumeBinding\n",
            "6:11: profiles[0].pluginConfig[0].name",
            "VolumeBinding",
        ),
        (
            "profiles:\n- plugins:\n    placementGenerate: {enabled: [{name: TopologyPlacementGenerator}]}\n",
            "6:42: profiles[0].plugins.placementGenerate.enabled[0].name",
            "TopologyPlacementGenerator",
        ),
    ];
    for (text, place, what) in cases {
        assert_eq!(errors(text), format!("c.yaml:{place}: {}", not_here(what)));
    }
}

#[test]
fn unsupported_plugins_of_kube_scheduler_are_rejected_by_name() {
    let names = [
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DefaultPreemption",
        "NodeDeclaredFeatures",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
        "DeferredPodScheduling",
    ];
    for name in names {
        let text = format!("profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}}}]\n");
        let message = format!(
            ".name: {name} is known to kube-scheduler, but not supported by supercargo yet; remove it"
        );
        assert!(errors(&text).ends_with(&message), "{}", errors(&text));
    }
}

#[test]
fn plugins_removed_from_kube_scheduler_are_rejected() {
    for name in ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"] {
        let text = format!(
            "profiles:\n- plugins: {{filter: {{enabled: [{{name: {name}}}]}}}}\n  pluginConfig: [{{name: {name}}}]\n"
        );
        let expected = format!(
            "c.yaml:5:39: profiles[0].plugins.filter.enabled[0].name: {name} is invalid in v1: kube-scheduler dropped it for NodeVolumeLimits; remove it\n\
             c.yaml:6:25: profiles[0].pluginConfig[0].name: {name} is invalid in v1: kube-scheduler dropped it for NodeVolumeLimits; remove it"
        );
        assert_eq!(errors(&text), expected);
    }
}

#[test]
fn unknown_plugins_are_rejected_with_suggestions() {
    check(&[
        (
            "enabled",
            "profiles: [{plugins: {filter: {enabled: [{name: NodePort}]}}}]\n",
            "c.yaml:4:49: profiles[0].plugins.filter.enabled[0].name: unknown plugin \"NodePort\"; did you mean \"NodePorts\"?",
        ),
        (
            "disabled",
            "profiles: [{plugins: {filter: {disabled: [{name: nodeports}]}}}]\n",
            "c.yaml:4:50: profiles[0].plugins.filter.disabled[0].name: unknown plugin \"nodeports\"; did you mean \"NodePorts\"?",
        ),
        (
            "enabled at a point of groups",
            "profiles: [{plugins: {placementScore: {enabled: [{name: NodePort}]}}}]\n",
            "c.yaml:4:57: profiles[0].plugins.placementScore.enabled[0].name: unknown plugin \"NodePort\"; the plugins of placementScore are Picky",
        ),
        (
            "disabled at a point of groups",
            "profiles: [{plugins: {placementScore: {disabled: [{name: NodePort}]}}}]\n",
            "c.yaml:4:58: profiles[0].plugins.placementScore.disabled[0].name: unknown plugin \"NodePort\"; did you mean \"NodePorts\"?",
        ),
        (
            "configured",
            "profiles: [{pluginConfig: [{name: ImageLocalit}]}]\n",
            "c.yaml:4:35: profiles[0].pluginConfig[0].name: unknown plugin \"ImageLocalit\"; did you mean \"ImageLocality\"?",
        ),
        (
            "near one that is not here",
            "profiles: [{pluginConfig: [{name: VolumeBindings}]}]\n",
            "c.yaml:4:35: profiles[0].pluginConfig[0].name: unknown plugin \"VolumeBindings\"; the plugins are DefaultBinder, Everywhere, ImageLocality, NodeAffinity, NodeName, NodePorts, NodeResourcesBalancedAllocation, NodeResourcesFit, NodeUnschedulable, OtherSort, Picky, PrioritySort, SchedulingGates, TaintToleration",
        ),
        (
            "near one that is not here, but may be disabled",
            "profiles: [{plugins: {filter: {disabled: [{name: VolumeBindings}]}}}]\n",
            "c.yaml:4:50: profiles[0].plugins.filter.disabled[0].name: unknown plugin \"VolumeBindings\"; did you mean \"VolumeBinding\"?",
        ),
        (
            "near a name of upstream's that cannot be enabled here",
            "profiles: [{plugins: {filter: {enabled: [{name: Coscheduling}]}}}]\n",
            "c.yaml:4:49: profiles[0].plugins.filter.enabled[0].name: unknown plugin \"Coscheduling\"; the plugins of filter are Everywhere, NodeAffinity, NodeName, NodePorts, NodeResourcesFit, NodeUnschedulable, Picky, TaintToleration",
        ),
        (
            "near none",
            "profiles: [{pluginConfig: [{name: Trimaran}]}]\n",
            "c.yaml:4:35: profiles[0].pluginConfig[0].name: unknown plugin \"Trimaran\"; the plugins are DefaultBinder, Everywhere, ImageLocality, NodeAffinity, NodeName, NodePorts, NodeResourcesBalancedAllocation, NodeResourcesFit, NodeUnschedulable, OtherSort, Picky, PrioritySort, SchedulingGates, TaintToleration",
        ),
        (
            "a star",
            "profiles: [{plugins: {filter: {enabled: [{name: '*'}]}}}]\n",
            "c.yaml:4:49: profiles[0].plugins.filter.enabled[0].name: \"*\" stands for all plugins in disabled only; enable plugins by name",
        ),
        (
            "no name",
            "profiles: [{plugins: {filter: {enabled: [{weight: 1}]}}}]\n",
            "c.yaml:4:42: profiles[0].plugins.filter.enabled[0].name: is missing",
        ),
    ]);
}

#[test]
fn suggested_plugins_implement_the_extension_point() {
    let refused = |point: &str, name: &str| {
        let text = format!("{HEADER}profiles: [{{plugins: {{{point}: {{enabled: [{{name: {name}}}]}}}}}}]\n");
        Config::parse("c.yaml", &text, &Catalog::in_tree()).expect_err("refused").to_string()
    };
    for point in ["permit", "multiPoint"] {
        let error = refused(point, "Coscheduling");
        assert!(error.ends_with("did you mean \"GangScheduling\"?"), "{error}");
    }
    let error = refused("filter", "Coscheduling");
    assert!(error.contains("the plugins of filter are ") && !error.contains("GangScheduling"), "{error}");
    assert!(error.contains("NodePorts") && !error.contains("ImageLocality"), "{error}");
    let error = refused("preBind", "DefaultBind");
    assert!(!error.contains("DefaultBinder"), "{error}");
}

#[test]
fn all_argument_errors_of_one_item_are_reported() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let affinity = |terms: &str| format!("addedAffinity: {{{required}: {{nodeSelectorTerms: [{terms}]}}}}");
    let strategy = |fields: &str| format!("scoringStrategy: {{{fields}}}");
    let cases: [(&str, String, &[&str]); 8] = [
        (
            "PodTopologySpread",
            "defaultConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: X, labelSelector: {}}], \
             defaultingType: Lists"
                .to_owned(),
            &["maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "defaultingType"],
        ),
        (
            "NodeResourcesFit",
            strategy("type: Foo, resources: [{name: cpu, weight: 101}, {name: '', weight: 1000}]"),
            &["type", "resources[0].weight", "resources[1].weight"],
        ),
        (
            "NodeResourcesFit",
            strategy("type: Foo, requestedToCapacityRatio: {shape: [{utilization: 101, score: 11}]}"),
            &["type", "utilization", "score"],
        ),
        (
            "NodeResourcesFit",
            strategy(
                "type: LeastAllocated, requestedToCapacityRatio: {shape: [{utilization: 101, score: 11}]}",
            ),
            &["requestedToCapacityRatio"],
        ),
        (
            "NodeResourcesBalancedAllocation",
            "resources: [{name: cpu}, {name: cpu, weight: 2}]".to_owned(),
            &["resources[1].name", "resources[1].weight"],
        ),
        (
            "NodeAffinity",
            affinity("{matchExpressions: [{key: '', operator: Is}, {operator: Exists}]}"),
            &["matchExpressions[0].key", "matchExpressions[0].operator", "matchExpressions[1]"],
        ),
        (
            "VolumeBinding",
            "bindTimeoutSeconds: -1, shape: [{utilization: 101, score: 11}]".to_owned(),
            &["bindTimeoutSeconds", "shape[0].utilization", "shape[0].score"],
        ),
        (
            "VolumeBinding",
            "shape: [{utilization: 0, score: 11}, {utilization: 101, score: -1}]".to_owned(),
            &["shape[0].score", "shape[1].utilization", "shape[1].score"],
        ),
    ];
    for (plugin, args, fields) in cases {
        let text = format!("{HEADER}profiles: [{{pluginConfig: [{{name: {plugin}, args: {{{args}}}}}]}}]\n");
        let errors = Config::parse("c.yaml", &text, &Catalog::in_tree()).expect_err("refused").to_string();
        for field in fields {
            assert_eq!(errors.matches(&format!("{field}: ")).count(), 1, "{field}:\n{errors}");
        }
        assert_eq!(errors.lines().count(), fields.len(), "{errors}");
    }
}

#[test]
fn argument_errors_of_plugins_have_a_position() {
    let fit =
        |args: &str| format!("profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n{args}");
    let cases = [
        (
            "unknown field",
            fit("      ignoredResource: []\n"),
            "c.yaml:8:7: profiles[0].pluginConfig[0].args.ignoredResource: unknown field `ignoredResource`, expected `ignoredResources` or `scoringStrategy`",
        ),
        (
            "wrong type",
            fit("      ignoredResources: 5\n"),
            "c.yaml:8:25: profiles[0].pluginConfig[0].args.ignoredResources: invalid type: integer `5`, expected a sequence",
        ),
        (
            "deep value",
            fit(
                "      scoringStrategy:\n        resources:\n        - {name: cpu, weight: 1}\n        - name: memory\n          weight: 101\n",
            ),
            "c.yaml:12:19: profiles[0].pluginConfig[0].args.scoringStrategy.resources[1].weight: must be from 1 to 100",
        ),
        (
            "missing field",
            fit("      scoringStrategy:\n        resources:\n        - weight: 1\n"),
            "c.yaml:10:11: profiles[0].pluginConfig[0].args.scoringStrategy.resources[0]: missing field `name`",
        ),
        (
            "wrong version",
            fit("      apiVersion: kubescheduler.config.k8s.io/v1beta3\n"),
            "c.yaml:8:19: profiles[0].pluginConfig[0].args.apiVersion: v1beta3 was removed from kube-scheduler; write kubescheduler.config.k8s.io/v1",
        ),
        (
            "wrong kind",
            fit("      kind: NodeAffinityArgs\n"),
            "c.yaml:8:13: profiles[0].pluginConfig[0].args.kind: must be NodeResourcesFitArgs, is \"NodeAffinityArgs\"",
        ),
        (
            "no arguments at all",
            "profiles:\n- pluginConfig:\n  - name: NodeName\n    args: {x: 1}\n".to_owned(),
            "c.yaml:7:11: profiles[0].pluginConfig[0].args: NodeName takes no arguments; remove them",
        ),
        (
            "a plugin that is not enabled",
            "profiles:\n- pluginConfig:\n  - name: Picky\n    args: {x: 1}\n".to_owned(),
            "c.yaml:7:11: profiles[0].pluginConfig[0].args.needed: is missing",
        ),
        (
            "no args",
            "profiles:\n- pluginConfig:\n  - name: Picky\n".to_owned(),
            "c.yaml:6:5: profiles[0].pluginConfig[0].args.needed: is missing",
        ),
        (
            "not configured",
            "profiles:\n- plugins: {filter: {enabled: [{name: Picky}]}}\n".to_owned(),
            "c.yaml:5:39: profiles[0].plugins.filter.enabled[0].name: Picky cannot be built: needed: is missing",
        ),
        (
            "configured twice",
            "profiles:\n- pluginConfig:\n  - name: NodeAffinity\n  - name: NodeAffinity\n".to_owned(),
            "c.yaml:7:11: profiles[0].pluginConfig[1].name: NodeAffinity is configured twice; keep one",
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(errors(&text), expected, "{name}");
    }
}
