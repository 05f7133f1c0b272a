use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{JSON, MERGE, Patch, STRATEGIC, apply_to};

pub(super) fn any_json() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..4).prop_map(Value::from)];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map("[a-c]", inner, 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    btree_map("[a-c]", any_json(), 0..4).prop_map(|fields| fields.into_iter().collect())
}

/// The merge patch between two objects without null fields.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let gone = from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = to.iter().filter(|(name, value)| from.get(*name) != Some(value)).map(|(name, value)| {
        (name.clone(), from.get(name).map_or_else(|| value.clone(), |old| difference(old, value)))
    });
    gone.chain(changed).collect()
}

/// Upstream's library keeps nulls in a list that replaces an object, and drops them in one that
/// replaces a list, so lists contain no nulls.
fn without_nulls_in_lists(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, without_nulls_in_lists(value))).collect()
        }
        list @ Value::Array(_) => super::without_nulls(list),
        other => other,
    }
}

fn plain(value: Value) -> Value {
    super::without_nulls(value)
}

type Named = BTreeMap<String, u8>;

fn named() -> impl Strategy<Value = Named> {
    btree_map("[a-f]", any::<u8>(), 0..6)
}

fn deployment(containers: &[(&String, &u8)]) -> Value {
    let items: Vec<Value> =
        containers.iter().map(|(name, image)| json!({"name": name, "image": image.to_string()})).collect();
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"template": {"spec": {"containers": items}}}})
}

/// As kubectl computes it: changed and new items, removed items, and the order of the remaining
/// ones.
fn strategic_difference(from: &Named, to: &[(&String, &u8)]) -> Value {
    let mut items: Vec<Value> = to
        .iter()
        .filter(|(name, image)| from.get(*name) != Some(image))
        .map(|(name, image)| json!({"name": name, "image": image.to_string()}))
        .collect();
    let gone = from.keys().filter(|name| !to.iter().any(|(other, _)| other == name));
    items.extend(gone.map(|name| json!({"name": name, "$patch": "delete"})));
    let order: Vec<Value> = to.iter().map(|(name, _)| json!({"name": name})).collect();
    json!({"spec": {"template": {"spec": {"containers": items, "$setElementOrder/containers": order}}}})
}

proptest! {
    #[test]
    fn merge_patch_is_idempotent(object in any_object(), patch in any_object()) {
        let patch = Patch::Merge(without_nulls_in_lists(patch).as_object().unwrap().clone());
        let once = apply_to(&patch, &object, None).unwrap();
        prop_assert_eq!(apply_to(&patch, &once, None).unwrap(), once);
    }

    #[test]
    fn merge_patch_of_the_difference_gives_the_target(from in any_object(), to in any_object()) {
        let (from, to) = (plain(from), plain(to));
        let patch = Patch::Merge(difference(&from, &to).as_object().unwrap().clone());
        prop_assert_eq!(apply_to(&patch, &from, None).unwrap(), to);
    }

    #[test]
    fn strategic_patch_of_the_difference_gives_the_target(
        from in named(),
        to in named().prop_map(|to| to.into_iter().collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let to: Vec<_> = to.iter().map(|(name, image)| (name, image)).collect();
        let object = deployment(&from.iter().collect::<Vec<_>>());
        let patch = strategic_difference(&from, &to);
        // kubectl sends no order for an emptied list.
        prop_assume!(!to.is_empty());
        prop_assert_eq!(super::patched(STRATEGIC, &object, &patch).unwrap(), deployment(&to));
    }

    #[test]
    fn any_patch_does_not_panic(content_type in prop::sample::select(vec![JSON, MERGE, STRATEGIC]), patch in any_json(), object in any_object()) {
        let mut object = object;
        object["kind"] = "Pod".into();
        object["apiVersion"] = "v1".into();
        let _ = super::patched(content_type, &object, &patch);
    }
}
