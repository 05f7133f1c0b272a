//! Decoding of the kinds of resource.k8s.io and of the claims of pods.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use supercargo_framework::objects::{
    Body, CapacityPolicy, CapacityRange, ConstraintRule, DeviceAttribute, DeviceClass, DeviceCount,
    DevicePlace, DeviceTaintRule, DeviceTolerationOperator, Object, ObjectBody, Quantities, RequestChoice,
    ResourceClaim, ResourceSlice, TaintRuleSelector,
};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::taint::TaintEffect;

use super::{pod_json, pod_kind};
use crate::ObjectKind;

const CLAIM: &str = "resource.k8s.io/ResourceClaim";
const SLICE: &str = "resource.k8s.io/ResourceSlice";
const CLASS: &str = "resource.k8s.io/DeviceClass";
const RULE: &str = "resource.k8s.io/DeviceTaintRule";

fn named(mut object: Value) -> Value {
    object["metadata"]["name"] = json!("o");
    object["metadata"]["namespace"] = json!("ns");
    object
}

fn object(resource: &str, object: Value) -> Object {
    ObjectKind::of(resource).unwrap().decode(named(object).to_string().as_bytes()).unwrap()
}

fn body<T: ObjectBody + Clone>(resource: &str, value: Value) -> T {
    T::of(&object(resource, value).body).unwrap().clone()
}

fn slice(spec: Value) -> ResourceSlice {
    body(SLICE, json!({"spec": spec}))
}

fn texts(list: &[Arc<str>]) -> Vec<&str> {
    list.iter().map(|text| &**text).collect()
}

fn amounts(list: &Quantities) -> Vec<(&str, &str)> {
    list.iter().map(|(name, amount)| (&**name, &**amount)).collect()
}

fn selector(key: &str) -> Value {
    json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": key, "operator": "In", "values": ["a"]}, {"key": "b", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]})
}

#[test]
fn a_slice_is_read_with_every_field() {
    let memory = json!({"value": "40Gi", "requestPolicy": {
        "default": "1Gi", "validValues": ["1Gi", "2Gi"], "validRange": {"min": "1Gi", "max": "4Gi", "step": "512Mi"},
    }});
    let device = json!({
        "name": "gpu-0",
        "attributes": {"z": {"int": -1}, "a": {"bool": true}, "d/s": {"string": "x"}, "v": {"version": "1.2.3"}, "l": {"ints": [1]}},
        "capacity": {"memory": memory, "cores": {"value": "8"}},
        "consumesCounters": [{"counterSet": "set", "counters": {"b": {"value": "2"}, "a": {"value": "1"}}},
                             {"counterSet": "other", "compatibilityGroups": ["g"]}],
        "taints": [{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-03-01T12:00:00Z"}, {"key": "n", "effect": "None"}],
        "bindsToNode": true, "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"],
        "allowMultipleAllocations": true,
    });
    let found = slice(json!({
        "driver": "d", "pool": {"name": "p", "generation": 7, "resourceSliceCount": 2}, "nodeName": "n", "devices": [device],
        "sharedCounters": [{"name": "set", "counters": {"m": {"value": "4Gi"}}}], "partitionTypeAttribute": "d/t",
    }));
    assert_eq!((&*found.driver, &*found.pool, found.generation, found.slice_count), ("d", "p", 7, 2));
    assert_eq!(found.place, DevicePlace::Node("n".into()));
    assert_eq!(amounts(&found.shared_counters[0].counters), [("m", "4Gi")]);
    let device = &found.devices[0];
    let attributes: Vec<_> = device.attributes.iter().map(|(name, value)| (&**name, value.clone())).collect();
    let expected = [
        ("a", DeviceAttribute::Bool(true)),
        ("d/s", DeviceAttribute::String("x".into())),
        ("l", DeviceAttribute::Unsupported),
        ("v", DeviceAttribute::Version("1.2.3".into())),
        ("z", DeviceAttribute::Int(-1)),
    ];
    assert_eq!(attributes, expected);
    let [(cores, eight), (memory, forty)] = &*device.capacity else { panic!("{:?}", device.capacity) };
    assert_eq!((&**cores, &*eight.value, &eight.policy), ("cores", "8", &None));
    let policy = CapacityPolicy {
        default: Some("1Gi".into()),
        valid_values: ["1Gi".into(), "2Gi".into()].into(),
        valid_range: Some(CapacityRange {
            min: Some("1Gi".into()),
            max: Some("4Gi".into()),
            step: Some("512Mi".into()),
        }),
    };
    assert_eq!((&**memory, &*forty.value, &forty.policy), ("memory", "40Gi", &Some(policy)));
    let [first, second] = &*device.consumes_counters else { panic!("{:?}", device.consumes_counters) };
    assert_eq!((&*first.counter_set, amounts(&first.counters)), ("set", vec![("a", "1"), ("b", "2")]));
    assert_eq!([first.has_compatibility_groups, second.has_compatibility_groups], [false, true]);
    let effects: Vec<_> =
        device.taints.iter().map(|taint| (&*taint.key, &*taint.value, taint.effect)).collect();
    assert_eq!(effects, [("k", "v", TaintEffect::NoExecute), ("n", "", TaintEffect::Unknown)]);
    assert!(device.binds_to_node && device.allows_multiple_allocations);
    assert_eq!(device.binding_conditions.as_deref().map(texts), Some(vec!["Ready"]));
    assert_eq!(texts(&device.binding_failure_conditions), ["Broken"]);
}

#[test]
fn slices_belong_to_the_node_that_they_name() {
    let node_of = |spec: Value| object(SLICE, json!({"spec": spec})).node_name;
    assert_eq!(node_of(json!({"nodeName": "n"})).as_deref(), Some("n"));
    assert_eq!(node_of(json!({"nodeName": ""})), None);
    assert_eq!(node_of(json!({"allNodes": true})), None);
}

#[test]
fn places_of_slices_and_devices_are_told_apart() {
    let places = |spec: Value| {
        let slice = slice(spec);
        (slice.place, slice.devices.first().map(|device| device.place.clone()))
    };
    let per_device = |device: Value| places(json!({"perDeviceNodeSelection": true, "devices": [device]}));
    assert_eq!(places(json!({"allNodes": true})), (DevicePlace::AllNodes, None));
    assert_eq!(places(json!({"allNodes": false})), (DevicePlace::Unset, None));
    for (device, expected) in [
        (json!({"nodeName": "n"}), DevicePlace::Node("n".into())),
        (json!({"allNodes": true}), DevicePlace::AllNodes),
        (json!({}), DevicePlace::Unset),
    ] {
        assert_eq!(per_device(device), (DevicePlace::PerDevice, Some(expected)));
    }
    let (DevicePlace::Selector(of_slice), _) = places(json!({"nodeSelector": selector("zone")})) else {
        panic!()
    };
    assert_eq!((of_slice.terms.len(), &*of_slice.raw), (2, &selector("zone")));
    let (_, Some(DevicePlace::Selector(of_device))) = per_device(json!({"nodeSelector": selector("rack")}))
    else {
        panic!()
    };
    assert_eq!(*of_device.raw, selector("rack"));
}

#[test]
fn unset_binding_conditions_differ_from_none() {
    let of = |device: Value| slice(json!({"devices": [device]})).devices[0].binding_conditions.clone();
    assert_eq!(of(json!({})), None);
    assert_eq!(of(json!({"bindingConditions": []})), Some(Box::default()));
}

#[test]
fn of_repeated_names_the_last_one_counts() {
    let text = r#"{"metadata": {"name": "o"}, "spec": {"devices": [{"name": "d", "attributes":
        {"b": {"int": 1}, "a": {"int": 2}, "b": {"int": 3}}}]}}"#;
    let object = ObjectKind::of(SLICE).unwrap().decode(text.as_bytes()).unwrap();
    let Body::ResourceSlice(slice) = object.body else { panic!() };
    let expected = [("a".into(), DeviceAttribute::Int(2)), ("b".into(), DeviceAttribute::Int(3))];
    assert_eq!(*slice.devices[0].attributes, expected);
}

#[test]
fn a_class_is_read_with_every_field() {
    let opaque = json!({"opaque": {"driver": "d", "parameters": {"kind": "X", "deep": [{"a": null}]}}});
    let class: DeviceClass = body(
        CLASS,
        json!({
            "metadata": {"creationTimestamp": "1970-01-01T01:00:00Z"},
            "spec": {"selectors": [{"cel": {"expression": "true"}}, {}], "config": [opaque], "extendedResourceName": "e/x"},
        }),
    );
    assert_eq!(*class.selectors, [Some("true".into()), None]);
    assert_eq!(*class.config, [Arc::new(opaque)]);
    assert_eq!((class.extended_resource_name.as_deref(), class.created), (Some("e/x"), 3600));
    assert_eq!(body::<DeviceClass>(CLASS, json!({})), DeviceClass::default());
}

#[test]
fn a_rule_without_a_selector_differs_from_an_empty_selector() {
    let rule = |spec: Value| body::<DeviceTaintRule>(RULE, json!({"spec": spec}));
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    let found = rule(json!({"deviceSelector": {"driver": "d", "pool": "p", "device": "x"}, "taint": taint}));
    let text = |text: &str| Some(text.into());
    let selector = TaintRuleSelector { driver: text("d"), pool: text("p"), device: text("x") };
    assert_eq!(found.selector, Some(selector));
    assert_eq!(
        (&*found.taint.key, &*found.taint.value, found.taint.effect),
        ("k", "v", TaintEffect::NoSchedule)
    );
    assert_eq!(rule(json!({"taint": taint})).selector, None);
    assert_eq!(rule(json!({"deviceSelector": {}})).selector, Some(TaintRuleSelector::default()));
}

fn claim(requests: Value) -> ResourceClaim {
    body(CLAIM, json!({"spec": {"devices": {"requests": requests}}}))
}

#[test]
fn a_claims_requests_are_read() {
    let toleration =
        json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30});
    let exactly = json!({
        "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "e"}}], "allocationMode": "ExactCount", "count": 2,
        "adminAccess": false, "tolerations": [toleration, {"key": "x", "operator": "New"}],
        "capacity": {"requests": {"memory": "1Gi"}}, "derivedAttributes": [{}],
    });
    let found = claim(json!([
        {"name": "one", "exactly": exactly},
        {"name": "any", "firstAvailable": [
            {"name": "big", "deviceClassName": "big", "allocationMode": "All"}, {"name": "odd", "allocationMode": "Some"},
        ]},
        {"name": "new", "someOf": {}},
    ]));
    let RequestChoice::Exactly(exactly) = &found.requests[0].choice else { panic!() };
    assert_eq!((&*exactly.name, &*exactly.class, &exactly.count), ("", "gpu", &DeviceCount::Exact(2)));
    assert_eq!(*exactly.selectors, [Some("e".into())]);
    assert_eq!((exactly.admin_access, exactly.has_derived_attributes), (Some(false), true));
    assert_eq!(exactly.capacity.as_ref().map(amounts), Some(vec![("memory", "1Gi")]));
    let [first, second] = &*exactly.tolerations else { panic!() };
    assert_eq!(
        (first.operator, first.effect),
        (DeviceTolerationOperator::Exists, Some(TaintEffect::NoExecute))
    );
    assert_eq!(*first.raw, toleration);
    assert_eq!((second.operator, second.effect), (DeviceTolerationOperator::Unknown, None));
    let RequestChoice::FirstAvailable(any) = &found.requests[1].choice else { panic!() };
    let counts: Vec<_> =
        any.iter().map(|one| (&*one.name, one.count.clone(), one.capacity.is_some())).collect();
    let odd = DeviceCount::Unknown("Some".into());
    assert_eq!(counts, [("big", DeviceCount::All, false), ("odd", odd, false)]);
    assert_eq!(found.requests[2].choice, RequestChoice::Unknown);
}

#[test]
fn constraints_and_configuration_of_a_claim_are_read() {
    let opaque = json!({"driver": "d", "parameters": [1]});
    let found: ResourceClaim = body(
        CLAIM,
        json!({"spec": {"devices": {
            "constraints": [{"requests": ["a", "b/c"], "matchAttribute": "d/x"}, {"distinctAttribute": "d/y"}, {"other": 1}],
            "config": [{"requests": ["a"], "opaque": opaque}, {"new": {}}],
        }}}),
    );
    let rules: Vec<_> =
        found.constraints.iter().map(|one| (texts(&one.requests), one.rule.clone())).collect();
    let expected = [
        (vec!["a", "b/c"], ConstraintRule::Match("d/x".into())),
        (vec![], ConstraintRule::Distinct("d/y".into())),
        (vec![], ConstraintRule::Unknown),
    ];
    assert_eq!(rules, expected);
    assert_eq!(
        (texts(&found.config[0].requests), &*found.config[0].raw),
        (vec!["a"], &json!({"opaque": opaque}))
    );
    assert_eq!(*found.config[1].raw, json!({}));
}

#[test]
fn the_status_of_a_claim_is_read() {
    let results = json!([
        {"request": "a", "driver": "d", "pool": "p", "device": "x", "adminAccess": true, "bindingConditions": ["B"],
         "bindingFailureConditions": ["F"], "tolerations": [{"key": "k"}]},
        {"request": "b/c", "driver": "d", "pool": "p", "device": "y", "shareID": "s", "consumedCapacity": {"m": "1Gi"},
         "skipNodeOperations": ["PrepareResources"]},
    ]);
    let allocation = json!({
        "devices": {"results": results, "config": [{"source": "FromClass", "opaque": {"driver": "d", "parameters": {}}}]},
        "nodeSelector": selector("zone"), "allocationTimestamp": "1970-01-01T00:00:01Z",
    });
    let whole = named(json!({
        "metadata": {"finalizers": ["other", "resource.kubernetes.io/delete-protection"]},
        "status": {
            "allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
            "devices": [{"driver": "d", "pool": "p", "device": "y", "shareID": "s", "conditions": [
                {"type": "B", "status": "True", "reason": "R", "message": "M"}, {"type": "F", "status": "False"},
            ]}],
        },
    }));
    let found: ResourceClaim = body(CLAIM, whole.clone());
    assert!(found.has_finalizer);
    let found_allocation = found.allocation.as_ref().unwrap();
    assert_eq!(*found_allocation.raw, allocation);
    assert_eq!(found_allocation.allocated_at, Some(1000));
    assert_eq!(*found_allocation.node_selector.as_ref().unwrap().raw, selector("zone"));
    let [first, second] = &*found_allocation.results else { panic!() };
    assert_eq!((&*first.device.device, first.admin_access, &first.share_id), ("x", true, &None));
    assert_eq!(texts(&first.binding_conditions), ["B"]);
    assert_eq!(texts(&first.binding_failure_conditions), ["F"]);
    assert_eq!((second.share_id.as_deref(), amounts(&second.consumed)), (Some("s"), vec![("m", "1Gi")]));
    assert_eq!([first.skips_node_operations, second.skips_node_operations], [false, true]);
    let consumer = &found.reserved_for[0];
    assert_eq!(
        [&*consumer.api_group, &consumer.resource, &consumer.name, &consumer.uid],
        ["", "pods", "p", "u"]
    );
    let conditions: Vec<_> =
        found.devices[0].conditions.iter().map(|one| (&*one.kind, one.is_true)).collect();
    assert_eq!(conditions, [("B", true), ("F", false)]);
    let mut typed = whole;
    typed["apiVersion"] = json!("resource.k8s.io/v1");
    typed["kind"] = json!("ResourceClaim");
    assert_eq!(*found.raw, typed);
}

#[test]
fn an_empty_claim_is_not_allocated_and_keeps_its_annotations() {
    let annotations = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    let found =
        object(CLAIM, json!({"metadata": {"annotations": annotations}, "status": {"allocation": null}}));
    let marked = found.annotations.get("resource.kubernetes.io/extended-resource-claim");
    assert_eq!(marked.map(|value| &**value), Some("true"));
    let Body::ResourceClaim(claim) = &found.body else { panic!() };
    assert_eq!((&claim.allocation, claim.has_finalizer, claim.reserved_for.len()), (&None, false, 0));
}

#[test]
fn errors_of_devices_name_the_field() {
    let request = |request: Value| json!({"spec": {"devices": {"requests": [{}, request]}}});
    let device = |device: Value| json!({"spec": {"devices": [device]}});
    let policy = |policy: Value| device(json!({"capacity": {"m": {"value": "1", "requestPolicy": policy}}}));
    let result = json!({"consumedCapacity": {"m": "?"}});
    for (resource, value, expected) in [
        (
            SLICE,
            device(json!({"capacity": {"m": {"value": "lots"}}})),
            "spec.devices[0].capacity[m].value: quantity \"lots\"",
        ),
        (SLICE, device(json!({"capacity": {"m": {}}})), "spec.devices[0].capacity[m].value: quantity \"\""),
        (
            SLICE,
            policy(json!({"default": "?"})),
            "spec.devices[0].capacity[m].requestPolicy.default: quantity",
        ),
        (
            SLICE,
            policy(json!({"validValues": ["1", "?"]})),
            "spec.devices[0].capacity[m].requestPolicy.validValues[1]: quantity",
        ),
        (
            SLICE,
            policy(json!({"validRange": {"step": "?"}})),
            "spec.devices[0].capacity[m].requestPolicy.validRange.step: quantity",
        ),
        (
            SLICE,
            device(json!({"consumesCounters": [{"counters": {"c": {"value": "?"}}}]})),
            "spec.devices[0].consumesCounters[0].counters[c].value: quantity",
        ),
        (
            SLICE,
            json!({"spec": {"sharedCounters": [{"counters": {"c": {}}}]}}),
            "spec.sharedCounters[0].counters[c].value: quantity",
        ),
        (
            SLICE,
            device(json!({"attributes": {"a": {"int": "1"}}})),
            "spec.devices[0].attributes.a.int: invalid type",
        ),
        (
            SLICE,
            device(json!({"attributes": {"a": {"int": 1e30}}})),
            "spec.devices[0].attributes.a.int: invalid type",
        ),
        (CLASS, json!({"metadata": {"creationTimestamp": "noon"}}), "metadata.creationTimestamp: "),
        (
            CLAIM,
            request(json!({"exactly": {"capacity": {"requests": {"m": "?"}}}})),
            "spec.devices.requests[1].exactly.capacity.requests[m]: quantity",
        ),
        (
            CLAIM,
            request(json!({"firstAvailable": [{}, {"capacity": {"requests": {"m": "?"}}}]})),
            "spec.devices.requests[1].firstAvailable[1].capacity.requests[m]: quantity",
        ),
        (
            CLAIM,
            request(json!({"exactly": {"count": "1"}})),
            "spec.devices.requests[1].exactly.count: invalid type",
        ),
        (
            CLAIM,
            json!({"status": {"allocation": {"devices": {"results": [result]}}}}),
            "status.allocation.devices.results[0].consumedCapacity[m]: quantity",
        ),
        (
            CLAIM,
            json!({"status": {"allocation": {"allocationTimestamp": "noon"}}}),
            "status.allocation.allocationTimestamp: ",
        ),
    ] {
        let text = named(value).to_string();
        let error = ObjectKind::of(resource).unwrap().decode(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{resource} ns/o: {expected}")), "{error}");
    }
}

#[test]
fn parameters_that_nest_too_deep_are_an_error() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let claim = |levels: usize| {
        format!(
            r#"{{"metadata": {{"name": "o", "namespace": "ns"}}, "spec": {{"devices": {{"config": [
                {{"opaque": {{"driver": "d", "parameters": {}}}}}]}}}}}}"#,
            deep(levels)
        )
    };
    let kind = ObjectKind::of(CLAIM).unwrap();
    assert!(kind.decode(claim(100).as_bytes()).is_ok());
    let error = kind.decode(claim(5000).as_bytes()).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn the_claims_of_a_pod_are_read_with_their_sources() {
    let spec = json!({"resourceClaims": [
        {"name": "a", "resourceClaimName": "mine"}, {"name": "b", "resourceClaimTemplateName": "t"}, {"name": "c"},
        {"name": "d", "resourceClaimName": "mine", "resourceClaimTemplateName": "t"},
    ]});
    let status = json!({"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "c"}],
        "extendedResourceClaimStatus": {}});
    let pod = pod_kind().decode(&pod_json(spec, status)).unwrap();
    let claims = |name: &str, source| PodClaim { name: name.into(), source };
    let expected = [
        claims("a", PodClaimSource::Claim("mine".into())),
        claims("b", PodClaimSource::Template("t".into())),
        claims("c", PodClaimSource::Unknown),
        claims("d", PodClaimSource::Claim("mine".into())),
    ];
    assert_eq!(pod.spec.resource_claims(), expected);
    let statuses = pod.status.claims.as_ref().unwrap();
    let generated: Vec<_> = statuses.generated.iter().map(|one| (&*one.name, one.claim.as_deref())).collect();
    assert_eq!(generated, [("b", Some("p-b-x")), ("c", None)]);
    assert!(statuses.extended.is_some());
}

/// A claim and a slice as an API server sends them.
fn whole(resource: &str) -> Value {
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All", "capacity": {"requests": {"m": "1"}}}}]);
    let allocation = json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]},
        "nodeSelector": selector("zone"), "allocationTimestamp": "2026-03-01T12:00:00Z"});
    let device = json!({"name": "x", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1"}}, "nodeSelector": selector("z")});
    named(match resource {
        CLAIM => json!({"spec": {"devices": {"requests": requests}}, "status": {"allocation": allocation}}),
        _ => json!({"spec": {"driver": "d", "perDeviceNodeSelection": true, "devices": [device]}}),
    })
}

proptest! {
    #[test]
    fn damaged_claims_and_slices_never_panic(
        resource in prop::sample::select(vec![CLAIM, SLICE]),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = whole(resource).to_string().into_bytes();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = ObjectKind::of(resource).unwrap().decode(&bytes);
    }
}
