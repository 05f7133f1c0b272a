//! PreFilter and Filter.

use std::sync::Arc;

use supercargo_framework::objects::{
    CsiSource, Object, ObjectBody, PersistentVolume, VolumeMode, annotations,
};
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{CycleState, Feature, Features, NodeSelectorTerm, OwnerRef, PodInfo, Status};

use super::world::*;

const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const OUT_OF_REACH: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_STORAGE: &str = "node(s) did not have enough free storage";
const LOST: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The verdict on a node in zone `a` for a pod that uses claim `c` and, if it exists, `d`.
fn verdict(objects: impl IntoIterator<Item = Object>) -> String {
    let world = World::new(objects, [node("n").label("zone", "a")]);
    let names: &[&str] = match world.objects.get("PersistentVolumeClaim", "default/d") {
        Some(_) => &["c", "d"],
        None => &["c"],
    };
    world.reasons(&pod_with(names).build()).remove(0)
}

#[test]
fn pods_without_claims_skip() {
    let world = World::new([], []);
    assert!(matches!(world.pre_filter(&mut CycleState::new(), &pod("p").build()), PreFilter::Skip));
}

#[test]
fn unusable_claims_reject_the_pod_in_pre_filter() {
    let owned = |uid: &str| {
        let owner = OwnerRef { uid: uid.into(), ..Default::default() };
        Object { controller: Some(Arc::new(owner)), ..claim("p-scratch", |_| {}) }
    };
    let lost = claim("c", |claim| {
        claim.phase = "Lost".into();
        claim.volume_name = "v".into();
    });
    let plain = || pod_with(&["c"]).build();
    let immediate = claim("c", |claim| claim.storage_class = IMMEDIATE.into());
    let cases: [(Option<Object>, PodInfo, &str); 11] = [
        (None, plain(), "persistentvolumeclaim \"c\" not found"),
        (
            None,
            pod_with_ephemeral().build(),
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-scratch\"",
        ),
        (Some(lost), plain(), "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\""),
        (
            Some(Object { terminating: true, ..claim("c", |_| {}) }),
            plain(),
            "persistentvolumeclaim \"c\" is being deleted",
        ),
        (
            Some(claim("p-scratch", |_| {})),
            pod_with_ephemeral().build(),
            "PVC default/p-scratch was not created for pod default/p (pod is not owner)",
        ),
        (
            Some(owned("another")),
            pod_with_ephemeral().build(),
            "PVC default/p-scratch was not created for pod default/p (pod is not owner)",
        ),
        (Some(owned("p")), pod_with_ephemeral().build(), ""),
        (Some(immediate), plain(), "pod has unbound immediate PersistentVolumeClaims"),
        (
            Some(claim("c", |claim| claim.storage_class = "absent".into())),
            plain(),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            Some(claim("c", |claim| claim.storage_class = "".into())),
            plain(),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            Some(claim("c", |claim| claim.volume_name = "v".into())),
            plain(),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ];
    for (object, pod, expected) in cases {
        let status = World::new(object, []).rejection(&pod);
        let expected = (!expected.is_empty()).then(|| Status::unresolvable(expected.to_owned()));
        assert_eq!(status, expected);
    }
}

#[test]
fn storage_classes_without_binding_mode_are_errors() {
    let objects = [class("odd", DRIVER, None), claim("c", |claim| claim.storage_class = "odd".into())];
    let status = World::new(objects, []).rejection(&pod_with(&["c"]).build());
    assert_eq!(status, Some(Status::error("VolumeBindingMode not set for StorageClass \"odd\"")));
}

#[test]
fn bound_volumes_must_exist_and_match_the_node() {
    let on = |zone: &str| volume("v", |volume| volume.node_affinity = affinity("zone", &[zone]));
    let nowhere = volume("v", |volume| volume.node_affinity = Some([].into()));
    let only_fields = volume("v", |volume| {
        let field = supercargo_framework::affinity::RawRequirement {
            key: "metadata.name".into(),
            operator: "In".into(),
            values: vec!["elsewhere".into()],
        };
        volume.node_affinity = Some([NodeSelectorTerm::parse(vec![], vec![field])].into());
    });
    let cases = [
        ("no affinity", Some(volume("v", |_| {})), ""),
        ("reached", Some(on("a")), ""),
        ("out of reach", Some(on("b")), OUT_OF_REACH),
        ("an empty list of terms", Some(nowhere), OUT_OF_REACH),
        ("requirements on fields do not count", Some(only_fields), ""),
        ("missing", None, LOST),
    ];
    for (name, volume, expected) in cases {
        let objects = volume.into_iter().chain([bound_claim("c", "v")]);
        assert_eq!(verdict(objects), expected, "{name}");
    }
}

#[test]
fn reasons_add_up_in_upstreams_order() {
    let far = volume("far", |volume| volume.node_affinity = affinity("zone", &["b"]));
    let full = || [csi_driver(true), storage("s", Some("a"), Some(1), None)];
    let cases: [(&str, Vec<Object>, String); 4] = [
        (
            "reach before volumes",
            vec![far.clone(), bound_claim("c", "far"), claim("d", |_| {})],
            format!("{OUT_OF_REACH}, {NO_VOLUME}"),
        ),
        (
            "volumes before what is lost",
            vec![bound_claim("c", "gone"), claim("d", |_| {})],
            format!("{NO_VOLUME}, {LOST}"),
        ),
        (
            "storage before what is lost",
            full().into_iter().chain([bound_claim("c", "gone"), dynamic_claim("d")]).collect(),
            format!("{NO_STORAGE}, {LOST}"),
        ),
        (
            "the first bound claim speaks for all",
            vec![far, bound_claim("c", "gone"), bound_claim("d", "far")],
            LOST.to_owned(),
        ),
    ];
    for (name, objects, expected) in cases {
        assert_eq!(verdict(objects), expected, "{name}");
    }
}

#[test]
fn volumes_must_match_the_claim() {
    type Change = fn(&mut supercargo_framework::objects::PersistentVolume);
    let cases: [(&str, Change, &str); 10] = [
        ("as is", |_| {}, ""),
        ("too small", |volume| volume.capacity = 4, NO_VOLUME),
        ("just large enough", |volume| volume.capacity = 5, ""),
        ("another mode", |volume| volume.volume_mode = VolumeMode::Block, NO_VOLUME),
        ("another class", |volume| volume.storage_class = DYNAMIC.into(), NO_VOLUME),
        ("an attributes class", |volume| volume.attributes_class = Some("gold".into()), NO_VOLUME),
        ("not available", |volume| volume.phase = "Released".into(), NO_VOLUME),
        ("another claim's", |volume| volume.claim = claim_ref("other", ""), NO_VOLUME),
        ("other access modes", |volume| volume.access_modes = ["ReadOnlyMany".into()].into(), NO_VOLUME),
        ("out of reach", |volume| volume.node_affinity = affinity("zone", &["b"]), NO_VOLUME),
    ];
    for (name, change, expected) in cases {
        assert_eq!(verdict([volume("v", change), claim("c", |_| {})]), expected, "{name}");
    }
    let deleted = Object { terminating: true, ..volume("v", |_| {}) };
    assert_eq!(verdict([deleted, claim("c", |_| {})]), NO_VOLUME, "on its way out");
}

#[test]
fn claims_match_selector_and_attributes_class() {
    let selecting = || claim("c", |claim| claim.selector = Some(selector("tier", "fast")));
    assert_eq!(verdict([volume("v", |_| {}), selecting()]), NO_VOLUME);
    assert_eq!(verdict([labelled(volume("v", |_| {}), "tier", "fast"), selecting()]), "");
    let golden = || claim("c", |claim| claim.attributes_class = Some("gold".into()));
    assert_eq!(verdict([volume("v", |_| {}), golden()]), NO_VOLUME);
    let gold = volume("v", |volume| volume.attributes_class = Some("gold".into()));
    assert_eq!(verdict([gold.clone(), golden()]), "");
    assert_eq!(verdict([gold, claim("c", |claim| claim.attributes_class = Some("".into()))]), NO_VOLUME);
}

#[test]
fn attributes_classes_require_their_feature_gate() {
    let off = Features::default().with(Feature::VolumeAttributesClass, false);
    let world = |claim: Object, class: Option<&str>| {
        let volume = volume("v", |volume| volume.attributes_class = class.map(Into::into));
        World::with(&serde_json::Value::Null, &off, [volume, claim], [node("n")])
    };
    let pod = pod_with(&["c"]).build();
    let golden = claim("c", |claim| claim.attributes_class = Some("gold".into()));
    assert_eq!(
        world(golden, Some("gold")).reasons(&pod),
        ["unsupported volumeAttributesClassName is set on claim default/c when the feature-gate \
             VolumeAttributesClass is disabled"]
    );
    assert_eq!(world(claim("c", |_| {}), None).reasons(&pod), [""]);
    assert_eq!(world(claim("c", |_| {}), Some("gold")).reasons(&pod), [NO_VOLUME]);
}

#[test]
fn a_prebound_volume_takes_precedence() {
    let own = |zone: &str, uid: &str| {
        volume("own", |volume| {
            volume.claim = claim_ref("c", uid);
            volume.phase = "Bound".into();
            volume.access_modes = [].into();
            volume.node_affinity = affinity("zone", &[zone]);
        })
    };
    let other = || volume("other", |volume| volume.capacity = 6);
    assert_eq!(verdict([own("a", ""), other(), claim("c", |_| {})]), "", "phase and modes do not count");
    assert_eq!(verdict([own("a", "uid-default/c"), claim("c", |_| {})]), "");
    assert_eq!(verdict([own("a", "another"), claim("c", |_| {})]), NO_VOLUME);
    assert_eq!(verdict([own("b", ""), other(), claim("c", |_| {})]), NO_VOLUME, "no other one will do");
}

#[test]
fn claims_get_the_smallest_matching_volume() {
    let sized = |name: &str, size| volume(name, |volume| volume.capacity = size);
    let asking = |name: &str, size| claim(name, |claim| claim.request = Some(size));
    let volumes = || [sized("large", 10), sized("small", 5)];
    let both = volumes().into_iter().chain([asking("c", 8), asking("d", 3)]);
    assert_eq!(verdict(both), "", "the small claim leaves the large volume alone");
    let two_large = volumes().into_iter().chain([asking("c", 8), asking("d", 8)]);
    assert_eq!(verdict(two_large), NO_VOLUME, "a volume is assigned once");
}

#[test]
fn a_claim_of_several_volumes_of_the_pod_counts_for_each() {
    let bound_after = |volumes: &[&str]| {
        let objects = volumes.iter().map(|name| volume(name, |_| {})).chain([claim("c", |_| {})]);
        let mut world = World::new(objects, [node("n")]);
        if world.feasible(&pod_with(&["c", "c"]).build()) == [false] {
            return None;
        }
        world.reserve(&pod_with(&["c", "c"]).build(), "n");
        let is_bound = |volume: &&Arc<Object>| {
            PersistentVolume::of(&volume.body).is_some_and(|volume| volume.claim.is_some())
        };
        Some(world.objects.list("PersistentVolume").filter(is_bound).count())
    };
    assert_eq!(bound_after(&["v"]), None);
    assert_eq!(bound_after(&["v", "w", "x"]), Some(2));
}

#[test]
fn a_selected_node_is_the_only_candidate() {
    let selected = |node: &str| annotated(dynamic_claim("c"), annotations::SELECTED_NODE, node);
    assert_eq!(verdict([selected("n")]), "");
    assert_eq!(verdict([selected("m")]), NO_VOLUME);
    let local = annotated(claim("c", |_| {}), annotations::SELECTED_NODE, "n");
    assert_eq!(verdict([local, volume("v", |_| {})]), NO_VOLUME, "it is provisioned or nothing");
}

#[test]
fn provisioning_respects_allowed_topologies() {
    let cases: [(&str, &[Term<'_>], bool); 6] = [
        ("any", &[], true),
        ("this zone", &[&[("zone", &["b", "a"])]], true),
        ("other zones", &[&[("zone", &["b"])]], false),
        ("one of two terms", &[&[("zone", &["b"])], &[("zone", &["a"])]], true),
        ("all of a term", &[&[("zone", &["a"]), ("rack", &["1"])]], false),
        ("a term that says nothing", &[&[]], false),
    ];
    for (name, terms, allowed) in cases {
        let expected = if allowed { "" } else { NO_VOLUME };
        assert_eq!(verdict([dynamic_class_for(terms), dynamic_claim("c")]), expected, "{name}");
    }
}

#[test]
fn storage_capacity_is_checked_if_the_driver_reports_it() {
    let cases: [(&str, Vec<Object>, &str); 9] = [
        ("no driver object", vec![], ""),
        ("does not count", vec![csi_driver(false)], ""),
        ("nothing said", vec![csi_driver(true)], NO_STORAGE),
        ("enough", vec![csi_driver(true), storage("s", Some("a"), Some(5), None)], ""),
        ("too little", vec![csi_driver(true), storage("s", Some("a"), Some(4), None)], NO_STORAGE),
        (
            "the largest volume goes before the sum",
            vec![csi_driver(true), storage("s", Some("a"), Some(9), Some(4))],
            NO_STORAGE,
        ),
        ("elsewhere", vec![csi_driver(true), storage("s", Some("b"), Some(9), None)], NO_STORAGE),
        ("nowhere", vec![csi_driver(true), storage("s", None, Some(9), None)], NO_STORAGE),
        ("of unknown size", vec![csi_driver(true), storage("s", Some("a"), None, None)], NO_STORAGE),
    ];
    for (name, objects, expected) in cases {
        assert_eq!(verdict(objects.into_iter().chain([dynamic_claim("c")])), expected, "{name}");
    }
    let of_class = |class: &str| {
        let mut other = storage("s", Some("a"), Some(9), None);
        if let supercargo_framework::objects::Body::CsiStorageCapacity(body) = &mut other.body {
            body.storage_class = class.into();
        }
        verdict([csi_driver(true), other, dynamic_claim("c")])
    };
    assert_eq!((of_class(DYNAMIC), of_class(LOCAL)), (String::new(), NO_STORAGE.to_owned()));
    let asking = |request| {
        claim("c", |claim| {
            claim.storage_class = DYNAMIC.into();
            claim.request = request;
        })
    };
    let little = || storage("s", Some("a"), Some(0), None);
    for (name, request, objects, expected) in [
        ("no request needs no storage", None, vec![], ""),
        ("a request of 0 needs a capacity", Some(0), vec![], NO_STORAGE),
        ("a capacity of 0 satisfies a request of 0", Some(0), vec![little()], ""),
        ("but not a request of 1", Some(1), vec![little()], NO_STORAGE),
    ] {
        let objects = objects.into_iter().chain([csi_driver(true), asking(request)]);
        assert_eq!(verdict(objects), expected, "{name}");
    }
    let own = volume("v", |volume| volume.storage_class = DYNAMIC.into());
    assert_eq!(verdict([csi_driver(true), own, dynamic_claim("c")]), "", "an existing volume needs none");
}

#[test]
fn migrated_plugins_use_the_drivers_zone_labels() {
    const KEY: &str = "topology.gke.io/zone";
    let migrating = |change: fn(&mut supercargo_framework::objects::PersistentVolume)| {
        volume("v", |volume| {
            volume.csi = Some(CsiSource {
                driver: "pd.csi.storage.gke.io".into(),
                handle: "h".into(),
                migrated_from: Some("kubernetes.io/gce-pd".into()),
            });
            change(volume);
        })
    };
    let zoned = || {
        migrating(|volume| volume.node_affinity = affinity("failure-domain.beta.kubernetes.io/zone", &["a"]))
    };
    let by_label = || labelled(migrating(|_| {}), "topology.kubernetes.io/zone", "a__b");
    let old = || node("n").label("failure-domain.beta.kubernetes.io/zone", "a");
    let new = |zone: &str| node("n").label(KEY, zone);
    let other_plugin = "kubernetes.io/aws-ebs";
    let migrated = "kubernetes.io/aws-ebs,kubernetes.io/gce-pd";
    let cases = [
        ("not migrated, in-tree label", zoned(), old(), other_plugin, true),
        ("not migrated, driver's label", zoned(), new("a"), other_plugin, false),
        ("migrated, in-tree label", zoned(), old(), migrated, false),
        ("migrated, driver's label", zoned(), new("a"), migrated, true),
        ("migrated, another zone", zoned(), new("b"), migrated, false),
        ("labels alone say nothing before", by_label(), new("c"), other_plugin, true),
        ("the volume's labels count", by_label(), new("b"), migrated, true),
        ("the volume's labels keep others out", by_label(), new("c"), migrated, false),
    ];
    for (name, volume, node, plugins, expected) in cases {
        let objects = [volume, bound_claim("c", "v"), csi_node("n", plugins)];
        let world = World::new(objects, [node]);
        assert_eq!(world.feasible(&pod_with(&["c"]).build()), [expected], "{name}");
    }
}

#[test]
fn an_untranslatable_volume_is_an_error_where_its_plugin_is_migrated() {
    let verdict = |plugins: &str, claims: &[&str]| {
        let objects = [untranslatable("v"), bound_claim("c", "v"), bound_claim("lost", "none")];
        let objects = objects.into_iter().chain([csi_node("n", plugins)]);
        let world = World::new(objects, [node("n").label("zone", "a")]);
        let pod = pod_with(claims).build();
        let state = world.state(&pod);
        let caching = world.points.caching.as_ref().unwrap();
        assert!(!caching.filter_never_fails(&world.context(), &state, &pod));
        let info = world.nodes.get("n").unwrap();
        world.points.filter.as_ref().unwrap().filter(&world.context(), &state, &pod, info)
    };
    let (migrated, other) = ("kubernetes.io/azure-disk", "kubernetes.io/aws-ebs");
    assert_eq!(verdict(migrated, &["c"]), Status::error(UNTRANSLATABLE));
    assert_eq!(verdict(other, &["c"]), Status::success());
    assert_eq!(verdict(migrated, &["lost", "c"]), Status::unresolvable(LOST), "the first claim decides");
}
