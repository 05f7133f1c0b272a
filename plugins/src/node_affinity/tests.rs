use serde_json::{Value, json};
use supercargo_framework::testing::{
    NodeBuilder, PodBuilder, node, node_added, node_info, node_updated, nodes, pod,
};

use super::*;
use crate::testing::{driver, driver_with_args};
use supercargo_framework::affinity::RawRequirement;

/// Arguments that add a required term for the `pool` label and a preferred term for the `disk`
/// label.
fn added() -> Value {
    json!({"addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]},
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}],
    }})
}

fn in_zone(zone: &str) -> NodeBuilder {
    node("n1").label("zone", zone)
}

fn wanting_zone(zone: &str) -> PodBuilder {
    pod("p").required_affinity("zone", "In", &[zone])
}

/// A term with one invalid requirement.
fn broken() -> PodBuilder {
    pod("p").required_affinity("cores", "Gt", &["many"])
}

#[test]
fn a_node_must_match_selector_and_affinity() {
    let mismatch = || Status::unresolvable("node(s) didn't match Pod's node affinity/selector");
    let none = |pod: PodBuilder| {
        let mut pod = pod.build();
        Arc::make_mut(&mut pod.spec).node_affinity =
            Some(affinity::NodeAffinity { required: Some([].into()), ..Default::default() });
        pod
    };
    let cases = [
        ("no demand", pod("p").build(), Status::success()),
        ("the selector matches", pod("p").node_selector("zone", "a").build(), Status::success()),
        ("another value", pod("p").node_selector("zone", "b").build(), mismatch()),
        (
            "one of two labels",
            pod("p").node_selector("zone", "a").node_selector("rack", "1").build(),
            mismatch(),
        ),
        ("the affinity matches", wanting_zone("a").build(), Status::success()),
        ("the affinity does not match", wanting_zone("b").build(), mismatch()),
        (
            "one term of two matches",
            wanting_zone("b").required_affinity("zone", "Exists", &[]).build(),
            Status::success(),
        ),
        (
            "the affinity matches, the selector does not",
            wanting_zone("a").node_selector("zone", "b").build(),
            mismatch(),
        ),
        ("terms of nothing match nothing", none(pod("p")), mismatch()),
        (
            "an empty term matches nothing",
            pod("p").required_term(NodeSelectorTerm::default()).build(),
            mismatch(),
        ),
        ("a term that cannot be evaluated matches nothing", broken().build(), mismatch()),
        (
            "but another term beside it may",
            broken().required_affinity("zone", "Exists", &[]).build(),
            Status::success(),
        ),
        (
            "the name of the node",
            pod("p").required_field(METADATA_NAME, "In", &["n1"]).build(),
            Status::success(),
        ),
        (
            "not the name of the node",
            pod("p").required_field(METADATA_NAME, "NotIn", &["n1"]).build(),
            mismatch(),
        ),
    ];
    let node = node_info(in_zone("a").build(), []);
    for (name, pod, expected) in cases {
        assert_eq!(driver(NAME).filter(&pod, &node), expected, "{name}");
    }
}

#[test]
fn added_affinity_is_checked_first() {
    let enforced = || Status::unresolvable("node(s) didn't match scheduler-enforced node affinity");
    let own = || Status::unresolvable("node(s) didn't match Pod's node affinity/selector");
    let cases = [
        ("both match", in_zone("a").label("pool", "a"), Status::success()),
        ("only the pod's own", in_zone("a"), enforced()),
        ("only the added", in_zone("b").label("pool", "a"), own()),
        ("neither", in_zone("b"), enforced()),
    ];
    for (name, node, expected) in cases {
        let status =
            driver_with_args(NAME, added()).filter(&wanting_zone("a").build(), &node_info(node.build(), []));
        assert_eq!(status, expected, "{name}");
    }
    let free = driver_with_args(NAME, added()).filter(&pod("p").build(), &node_info(node("n").build(), []));
    assert_eq!(free, enforced(), "a pod without affinity is not skipped");
}

/// The nodes that PreFilter returns, if any, or its rejection.
type Names<'a> = Result<Option<&'a [&'a str]>, &'a str>;

#[test]
fn pre_filter_returns_nodes_if_every_term_names_them() {
    let field = |pod: PodBuilder, name: &str| pod.required_field(METADATA_NAME, "In", &[name]);
    let both = |a: &str, b: &str| {
        let requirement = |value: &str| affinity::RawRequirement {
            key: METADATA_NAME.into(),
            operator: "In".into(),
            values: vec![value.into()],
        };
        NodeSelectorTerm::parse(vec![], vec![requirement(a), requirement(b)])
    };
    let cases: [(&str, PodBuilder, Names<'_>); 8] = [
        ("one name", field(pod("p"), "n1"), Ok(Some(&["n1"]))),
        ("a name per term", field(field(pod("p"), "n2"), "n1"), Ok(Some(&["n1", "n2"]))),
        ("one term names none", field(pod("p"), "n1").required_affinity("zone", "Exists", &[]), Ok(None)),
        ("NotIn names none", pod("p").required_field(METADATA_NAME, "NotIn", &["n1"]), Ok(None)),
        ("a selector names none", pod("p").node_selector("a", "b"), Ok(None)),
        ("the same name twice in a term", pod("p").required_term(both("n1", "n1")), Ok(Some(&["n1"]))),
        (
            "a term that contradicts itself",
            pod("p").required_term(both("n1", "n2")),
            Err("pod affinity terms conflict"),
        ),
        (
            "beside one that does not",
            field(pod("p").required_term(both("n1", "n2")), "n3"),
            Ok(Some(&["n3"])),
        ),
    ];
    for (name, pod, expected) in cases {
        let found = match driver(NAME).pre_filter(&pod.build()) {
            PreFilter::AllNodes => Ok(None),
            PreFilter::Nodes(names) => {
                let mut names: Vec<_> = names.iter().map(ToString::to_string).collect();
                names.sort();
                Ok(Some(names))
            }
            PreFilter::Reject(status) => {
                assert_eq!(status.code(), Code::UnschedulableAndUnresolvable, "{name}");
                Err(status.message())
            }
            PreFilter::Skip => panic!("{name}: skipped"),
        };
        let expected = expected
            .map(|names| names.map(|names| names.iter().map(ToString::to_string).collect()))
            .map_err(str::to_owned);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn pods_without_affinity_skip_unless_affinity_is_added() {
    let plain = pod("p").preferred_affinity(1, "a", "Exists", &[]).build();
    assert!(matches!(driver(NAME).pre_filter(&plain), PreFilter::Skip));
    assert!(matches!(driver_with_args(NAME, added()).pre_filter(&plain), PreFilter::AllNodes));
}

#[test]
fn matching_preferences_add_their_weights() {
    let three = || {
        nodes(
            [
                node("n1").label("zone", "a").label("disk", "ssd"),
                node("n2").label("zone", "a"),
                node("n3").label("zone", "b"),
            ]
            .map(|node| node_info(node.build(), [])),
        )
    };
    let preferring = || {
        pod("p").preferred_affinity(30, "zone", "In", &["a"]).preferred_affinity(10, "disk", "Exists", &[])
    };
    let cases = [
        ("the pod's own", json!({}), preferring(), [40, 30, 0], [100, 75, 0]),
        ("the added too", added(), preferring(), [47, 30, 0], [100, 63, 0]),
        ("only the added", added(), pod("p"), [7, 0, 0], [100, 0, 0]),
        (
            "no match at all leaves zeros",
            json!({}),
            pod("p").preferred_affinity(5, "x", "Exists", &[]),
            [0, 0, 0],
            [0, 0, 0],
        ),
        (
            "terms without weight are ignored, even invalid ones",
            json!({}),
            preferring().preferred_affinity(0, "zone", "Gt", &["x"]),
            [40, 30, 0],
            [100, 75, 0],
        ),
    ];
    for (name, args, pod, raw, normalized) in cases {
        let (plugin, pod) = (driver_with_args(NAME, args), pod.build());
        assert_eq!(plugin.raw_scores(&pod, &three()), Some(raw.to_vec()), "{name}");
        assert_eq!(plugin.scores(&pod, &three()), normalized, "{name}");
    }
}

#[test]
fn pre_score_skips_without_preferences_and_fails_on_invalid_ones() {
    let gt = |index: usize, value: &str| {
        format!(
            "[{index}].matchExpressions[0].values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
        )
    };
    let prefer = |pod: PodBuilder, value: &str| pod.preferred_affinity(1, "cores", "Gt", &[value]);
    let two_errors = {
        let requirement = |value: &str| affinity::RawRequirement {
            key: "cores".into(),
            operator: "Gt".into(),
            values: vec![value.into()],
        };
        let term = NodeSelectorTerm::parse(vec![requirement("x"), requirement("y")], vec![]);
        let mut pod = pod("p").build();
        Arc::make_mut(&mut pod.spec).node_affinity = Some(affinity::NodeAffinity {
            required: None,
            preferred: [PreferredTerm { weight: 1, term }].into(),
        });
        pod
    };
    let cases = [
        (
            "nothing preferred",
            pod("p").node_selector("a", "b").build(),
            Status::with_reasons(Code::Skip, Reasons::new()),
        ),
        ("a preference", prefer(pod("p"), "3").build(), Status::success()),
        (
            "one that cannot be evaluated",
            prefer(prefer(pod("p"), "3"), "many").build(),
            Status::error(gt(1, "many")),
        ),
        (
            "two of them",
            prefer(prefer(prefer(pod("p"), "x"), "3"), "y").build(),
            Status::error(format!("[{}, {}]", gt(0, "x"), gt(2, "y"))),
        ),
        (
            "two errors in one term",
            two_errors,
            Status::error(format!(
                "[{}, {}]",
                gt(0, "x"),
                gt(0, "y").replace("matchExpressions[0]", "matchExpressions[1]")
            )),
        ),
    ];
    let cluster = nodes([node_info(node("n").build(), [])]);
    for (name, pod, expected) in cases {
        assert_eq!(driver(NAME).pre_score(&pod, &cluster), expected, "{name}");
    }
}

/// The API server checks no values of preferred terms.
#[test]
fn errors_of_a_giant_are_short() {
    let values = |i: usize| (0..i).map(|i| format!("!{i}").into()).collect();
    let requirement = |values| RawRequirement { key: "k".into(), operator: "In".into(), values };
    let long = vec!["!".repeat(1 << 20).into()];
    for term in [
        NodeSelectorTerm::parse(vec![requirement(values(1000))], Vec::new()),
        NodeSelectorTerm::parse((0..1000).map(|_| requirement(values(1))).collect(), Vec::new()),
        NodeSelectorTerm::parse(vec![requirement(long)], Vec::new()),
    ] {
        let bytes: usize = term.invalid.iter().map(|error| error.len()).sum();
        assert!((1..1 << 16).contains(&bytes), "{bytes}");
        let terms: Vec<PreferredTerm> =
            (0..1000).map(|_| PreferredTerm { weight: 1, term: term.clone() }).collect();
        let error = preferred_error(&terms).unwrap();
        assert!(error.len() < 1 << 16, "{}", error.len());
    }
}

#[test]
fn nodes_that_start_to_match_wake_the_pod() {
    use QueueingHint::{Queue, Skip};
    let a = || in_zone("a").build();
    let b = || in_zone("b").build();
    let cases = [
        ("a new node that matches", node_added(a()), Queue),
        ("a new node that does not", node_added(b()), Skip),
        ("the label came", node_updated(b(), a()), Queue),
        ("the label went", node_updated(a(), b()), Skip),
        ("it matched before", node_updated(a(), in_zone("a").label("x", "y").build()), Skip),
        ("it still does not match", node_updated(b(), b()), Skip),
    ];
    for (name, change, expected) in cases {
        let action = match change.old_node() {
            None => ActionType::ADD,
            Some(_) => ActionType::UPDATE_NODE_LABEL,
        };
        for waiting in [wanting_zone("a"), pod("p").node_selector("zone", "a")] {
            let hint = driver(NAME).hint(EventResource::Node, action, &waiting.build(), &change);
            assert_eq!(hint, Some(Ok(expected)), "{name}");
        }
    }
}

#[test]
fn added_affinity_is_checked_on_the_new_node_only() {
    let plugin = driver_with_args(NAME, added());
    let hint = |change: &Change| {
        plugin.hint(EventResource::Node, ActionType::UPDATE_NODE_LABEL, &wanting_zone("a").build(), change)
    };
    let pool = |zone: &str| in_zone(zone).label("pool", "a").build();
    let cases = [
        (
            "the pod's label came, the pool is wrong",
            node_updated(in_zone("b").build(), in_zone("a").build()),
            QueueingHint::Skip,
        ),
        ("the pod's label came, the pool is right", node_updated(pool("b"), pool("a")), QueueingHint::Queue),
        ("only the pool came", node_updated(in_zone("a").build(), pool("a")), QueueingHint::Skip),
    ];
    for (name, change, expected) in cases {
        assert_eq!(hint(&change), Some(Ok(expected)), "{name}");
    }
}

#[test]
fn hints_fail_on_invalid_terms_unless_already_decided() {
    let hint = |waiting: PodBuilder, change: &Change| {
        driver(NAME)
            .hint(EventResource::Node, ActionType::ADD, &waiting.build(), change)
            .expect("added nodes are registered")
    };
    let added = node_added(in_zone("a").build());
    let error = "nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: \"many\": for 'Gt', 'Lt' operators, the value must be an integer";
    assert_eq!(hint(broken(), &added), Err(error.to_owned()));
    assert_eq!(
        hint(broken().required_affinity("zone", "Exists", &[]), &added),
        Ok(QueueingHint::Queue),
        "another term matches"
    );
    assert_eq!(
        hint(broken().node_selector("zone", "b"), &added),
        Ok(QueueingHint::Skip),
        "the selector does not match"
    );
    assert!(hint(broken(), &Change::Unspecified).is_err(), "no node to look at");
}
