use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::fixtures;
use super::*;
use crate::kinds::{Verbs, built_in};
use crate::schema::{Shape, Type};
use crate::tests::any_kind;

fn id_of(object: &Value) -> TypeId {
    message_type(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap()
}

fn normalised(mut object: Value) -> Value {
    assert_eq!(crate::decode::decode(id_of(&object), &mut object), Ok(Vec::new()));
    object
}

#[test]
fn recorded_messages_decode_to_recorded_json() {
    for fixture in fixtures::all().iter().filter(|fixture| !fixture.is_event()) {
        let decoded = decode(&fixture.body()).unwrap();
        assert_eq!(normalised(decoded), fixture.json, "{}", fixture.name);
    }
}

#[test]
fn objects_round_trip_through_protobuf() {
    for fixture in fixtures::all().iter().filter(|fixture| !fixture.is_event()) {
        let decoded = decode(&encode(&fixture.json).unwrap()).unwrap();
        assert_eq!(normalised(decoded), fixture.json, "{}", fixture.name);
    }
}

#[test]
fn list_is_assembled_from_encoded_items() {
    let pods = fixtures::all().into_iter().find(|fixture| fixture.name == "pod list").unwrap().json;
    let id = message_type("v1", "Pod").unwrap();
    let items = pods["items"].as_array().unwrap();
    let items: Vec<Bytes> = items.iter().map(|pod| encode_message(id, pod).unwrap()).collect();
    let body = encode_list("v1", "PodList", &pods["metadata"], &items).unwrap();
    assert_eq!(body.len(), encode(&pods).unwrap().len());
    assert_eq!(normalised(decode(&body).unwrap()), pods);
    let empty = encode_list("v1", "PodList", &json!({}), &[]).unwrap();
    assert_eq!(decode(&empty).unwrap(), json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}}));
}

#[test]
fn watch_frame_equals_the_recorded_one() {
    let events: Vec<_> = fixtures::all().into_iter().filter(fixtures::Fixture::is_event).collect();
    assert_eq!(events.len(), 2);
    for fixture in events {
        let real = fixture.body();
        let event = fixture.json["type"].as_str().unwrap();
        let start = real.windows(4).position(|bytes| bytes == MAGIC).unwrap();
        let object = &real[start..];
        assert_eq!(normalised(decode(object).unwrap()), fixture.json["object"], "{}", fixture.name);
        assert_eq!(watch_frame(event, object), real, "{}", fixture.name);
    }
}

#[test]
fn wrapped_message_equals_the_recorded_one() {
    for fixture in fixtures::all().iter().filter(|fixture| !fixture.is_event()) {
        let body = fixture.body();
        let Unknown { api_version, kind, raw, content_type } = Unknown::of(&body[MAGIC.len()..]).unwrap();
        assert_eq!(content_type, "");
        assert_eq!(wrap(api_version, kind, raw), body, "{}", fixture.name);
    }
}

#[test]
fn lists_in_maps_round_trip() {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
        "status": {"userInfo": {"username": "u", "extra": {"a": ["b", "c"], "d": [""]}}},
    });
    assert_eq!(normalised(decode(&encode(&review).unwrap()).unwrap()), review);
}

#[test]
fn packed_numbers_are_decoded() {
    let spec = Schema::get().named("io.k8s.api.core.v1.PodSecurityContext").unwrap();
    let field = Schema::get().get_type(spec).field("supplementalGroups").unwrap().number;
    let mut message = Vec::new();
    wire::bytes(field, &[1, 0xac, 0x02], &mut message);
    let decoded = decode::message(Schema::get().get_type(spec), &message).unwrap();
    assert_eq!(decoded, json!({"supplementalGroups": [1, 300]}));
}

#[test]
fn kinds_without_messages_are_rejected() {
    let resource = json!({"apiVersion": "example.com/v1", "kind": "Foo"});
    assert!(matches!(encode(&resource), Err(ProtobufError::NoMessage { .. })));
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    assert!(matches!(encode(&crd), Err(ProtobufError::NoMessage { .. })));
    assert!(matches!(decode(&wrap("v1", "Foo", &[])), Err(ProtobufError::NoMessage { .. })));
    assert!(matches!(decode(b"{}"), Err(ProtobufError::NoPrefix)));
    let wrong = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": 5}});
    assert!(matches!(encode(&wrong), Err(ProtobufError::WrongType { .. })));
}

#[test]
fn decoding_recursive_messages_terminates() {
    let ours = |id: TypeId| Schema::get().get_type(id);
    let props = Schema::get()
        .named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .unwrap();
    let number = ours(props).field("not").unwrap().number;
    let mut message = Vec::new();
    for _ in 0..200 {
        let inner = std::mem::take(&mut message);
        wire::bytes(number, &inner, &mut message);
    }
    assert!(matches!(decode::message(ours(props), &message), Err(ProtobufError::Broken("too deep"))));
}

/// Catches a type that cannot be encoded before a client requests it.
#[test]
fn fields_of_every_served_kind_have_unique_numbers() {
    fn check(one: &Type, seen: &mut Vec<String>) {
        if seen.contains(&one.name) {
            return;
        }
        seen.push(one.name.clone());
        let mut numbers = Vec::new();
        for field in &one.fields {
            if field.number == 0 {
                assert!(["kind", "apiVersion"].contains(&field.name.as_str()), "{} {}", one.name, field.name);
                continue;
            }
            assert!(!numbers.contains(&(field.inside, field.number)), "{} {}", one.name, field.name);
            numbers.push((field.inside, field.number));
            let mut shape = &field.shape;
            while let Shape::List(inner) | Shape::Map(inner) = shape {
                shape = inner;
            }
            if let Shape::Object(id) = shape {
                check(Schema::get().get_type(*id), seen);
            }
        }
    }
    let mut seen = Vec::new();
    for kind in built_in().iter().filter(|kind| kind.group != "apiextensions.k8s.io") {
        check(Schema::get().get_type(Schema::get().of(kind).unwrap()), &mut seen);
        if kind.verbs == Verbs::All {
            assert!(message_type(&kind.api_version(), &kind.list_kind()).is_some(), "{}", kind.qualified());
        }
    }
    assert!(seen.len() > 300);
}

/// Values of a shape, in decoded form.
fn value_of(shape: &Shape, depth: u32) -> BoxedStrategy<Value> {
    match shape {
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Int32 => any::<i32>().prop_map(Value::from).boxed(),
        Shape::Int64 => any::<i64>().prop_map(Value::from).boxed(),
        Shape::Double => any::<i16>().prop_map(|number| Value::from(f64::from(number) / 4.0)).boxed(),
        Shape::String => ".{0,6}".prop_map(Value::from).boxed(),
        Shape::Bytes => prop::sample::select(vec!["", "aGk=", "AAEC"]).prop_map(Value::from).boxed(),
        Shape::Time => prop::sample::select(vec!["1969-12-31T23:59:59Z", "2020-02-29T12:00:00Z"])
            .prop_map(Value::from)
            .boxed(),
        Shape::MicroTime => {
            prop::sample::select(vec!["1969-12-31T23:59:59.250000Z", "2020-02-29T12:00:00.123456Z"])
                .prop_map(Value::from)
                .boxed()
        }
        Shape::Quantity => {
            prop::sample::select(vec!["0", "1", "100m", "1Gi", "-5", "1e3"]).prop_map(Value::from).boxed()
        }
        Shape::IntOrString => {
            prop_oneof![any::<i32>().prop_map(Value::from), "[a-z%]{0,3}".prop_map(Value::from)].boxed()
        }
        Shape::Any => prop::sample::select(vec![json!({"a": [1, null]}), json!("x"), json!({})]).boxed(),
        Shape::Object(id) => object_of(*id, depth),
        Shape::List(item) => prop::collection::vec(value_of(item, depth), 0..3).prop_map(Value::from).boxed(),
        Shape::Map(value) => prop::collection::btree_map("[a-z/]{0,3}", value_of(value, depth), 0..3)
            .prop_map(|entries| Value::Object(entries.into_iter().collect()))
            .boxed(),
    }
}

fn object_of(id: TypeId, depth: u32) -> BoxedStrategy<Value> {
    let one = Schema::get().get_type(id);
    let fields: Vec<_> = one.fields.iter().filter(|field| field.number > 0).collect();
    if depth == 0 || fields.is_empty() {
        return Just(json!({})).boxed();
    }
    let few = prop::sample::subsequence(fields.clone(), 0..=fields.len().min(5));
    few.prop_flat_map(move |fields| {
        let fields: Vec<_> = fields
            .into_iter()
            .map(|field| (Just(field.name.clone()), value_of(&field.shape, depth - 1)))
            .collect();
        fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
    })
    .boxed()
}

/// Go decodes our messages to the same JSON.
#[test]
fn go_decodes_any_object_of_any_kind() {
    let mut runner = TestRunner::deterministic();
    let generated = (0..400).map(|_| any_kind(object_of).new_tree(&mut runner).unwrap().current());
    let real = fixtures::all().into_iter().filter(|fixture| !fixture.is_event()).map(|fixture| fixture.json);
    let objects: Vec<Value> = generated.chain(real).map(normalised).collect();
    let lines: String =
        objects.iter().map(|object| STANDARD.encode(encode(object).unwrap()) + "\n").collect();
    let printed = supercargo_controlplane::run_tool_or_skip("./schema", &["decode"], lines.as_bytes());
    let Some(printed) = printed else { return };
    let shown: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown.len(), objects.len());
    for (ours, gos) in objects.iter().zip(&shown) {
        assert_eq!(ours, gos);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_object_of_any_kind_round_trips_through_protobuf(object in any_kind(object_of)) {
        let stored = normalised(object);
        let back = decode(&encode(&stored).unwrap()).unwrap();
        prop_assert_eq!(normalised(back), stored);
    }

    #[test]
    fn decoding_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..2000, byte: u8) {
        let _ = decode(&wrap("v1", "Pod", &bytes));
        let _ = decode(&bytes);
        let mut body = fixtures::all()[0].body();
        let at = at % body.len();
        body[at] = byte;
        let _ = decode(&body);
        body.truncate(at);
        let _ = decode(&body);
    }
}
