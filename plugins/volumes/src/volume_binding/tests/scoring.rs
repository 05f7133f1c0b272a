//! PreScore and Score.

use serde_json::{Value, json};
use supercargo_framework::objects::Object;
use supercargo_framework::testing::node;
use supercargo_framework::{Code, Feature, Features};

use super::world::*;

/// The score of a node in zone `a`; `None` if PreScore skips.
fn score(args: &Value, on: bool, objects: Vec<Object>, claims: &[&str]) -> Option<i64> {
    let features = Features::default().with(Feature::StorageCapacityScoring, on);
    let world = World::with(args, &features, objects, [node("n").label("zone", "a")]);
    let pod = pod_with(claims).build();
    let (mut state, cx) = (world.state(&pod), world.context());
    let pre_score = world.points.pre_score.as_ref().unwrap();
    match pre_score.pre_score(&cx, &mut state, &pod, world.nodes.order()).code() {
        Code::Skip => None,
        Code::Success => {
            let info = world.nodes.get("n").unwrap();
            Some(world.points.score.as_ref().unwrap().score(&cx, &state, &pod, info).unwrap())
        }
        code => panic!("{code}"),
    }
}

fn sized(name: &str, capacity: i64) -> Object {
    volume(name, |volume| volume.capacity = capacity)
}

fn asking(name: &str, class: &str, request: i64) -> Object {
    claim(name, |claim| {
        claim.storage_class = class.into();
        claim.request = Some(request);
    })
}

#[test]
fn scoring_requires_its_feature_gate() {
    let objects = || vec![sized("v", 100), asking("c", LOCAL, 30)];
    assert_eq!(score(&Value::Null, false, objects(), &["c"]), None);
    assert_eq!(score(&Value::Null, true, objects(), &["c"]), Some(70));
}

#[test]
fn less_used_storage_scores_higher() {
    let counted = |capacity| [csi_driver(true), storage("s", Some("a"), capacity, Some(1000))];
    let other_class = || {
        volume("w", |volume| {
            volume.storage_class = DYNAMIC.into();
            volume.capacity = 100;
        })
    };
    let cases: [(&str, Vec<Object>, &[&str], i64); 7] = [
        ("all of a volume", vec![sized("v", 10), asking("c", LOCAL, 10)], &["c"], 0),
        (
            "two volumes of a class together",
            vec![sized("v", 20), sized("w", 80), asking("c", LOCAL, 10), asking("d", LOCAL, 40)],
            &["c", "d"],
            50,
        ),
        (
            "the mean over classes, rounded",
            vec![sized("v", 100), other_class(), asking("c", LOCAL, 30), asking("d", DYNAMIC, 35)],
            &["c", "d"],
            68,
        ),
        (
            "provisioned: the storage counts once",
            counted(Some(100))
                .into_iter()
                .chain([asking("c", DYNAMIC, 20), asking("d", DYNAMIC, 30)])
                .collect(),
            &["c", "d"],
            50,
        ),
        (
            "provisioned: more than there is",
            counted(Some(100))
                .into_iter()
                .chain([asking("c", DYNAMIC, 80), asking("d", DYNAMIC, 80)])
                .collect(),
            &["c", "d"],
            0,
        ),
        (
            "provisioned: of unknown size",
            counted(None).into_iter().chain([asking("c", DYNAMIC, 20)]).collect(),
            &["c"],
            0,
        ),
        (
            "existing volumes take precedence over storage",
            counted(Some(100))
                .into_iter()
                .chain([sized("v", 100), asking("c", LOCAL, 10), asking("d", DYNAMIC, 90)])
                .collect(),
            &["c", "d"],
            90,
        ),
    ];
    for (name, objects, claims, expected) in cases {
        assert_eq!(score(&Value::Null, true, objects, claims), Some(expected), "{name}");
    }
}

#[test]
fn pods_that_no_node_can_have_storage_for_are_not_scored() {
    let unknown = |name: &str| [csi_driver(false), storage(name, Some("a"), Some(100), None)];
    let cases: [(&str, Vec<Object>, &[&str]); 6] = [
        ("no claims", vec![], &[]),
        ("bound claims only", vec![sized("v", 10), bound_claim("c", "v")], &["c"]),
        ("provisioned by a driver without CSIDriver", vec![asking("c", DYNAMIC, 20)], &["c"]),
        (
            "provisioned by a driver that does not report capacity",
            unknown("s").into_iter().chain([asking("c", DYNAMIC, 20)]).collect(),
            &["c"],
        ),
        (
            "provisioned by a driver without any capacity",
            vec![csi_driver(true), asking("c", DYNAMIC, 20)],
            &["c"],
        ),
        (
            "a volume that is too small, and no provisioner",
            vec![sized("v", 10), asking("c", LOCAL, 20)],
            &["c"],
        ),
    ];
    for (name, objects, claims) in cases {
        assert_eq!(score(&Value::Null, true, objects, claims), None, "{name}");
    }
}

#[test]
fn a_shape_can_prefer_full_storage() {
    let args = json!({"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]});
    let objects = vec![sized("v", 100), asking("c", LOCAL, 30)];
    assert_eq!(score(&args, true, objects, &["c"]), Some(30));
}
