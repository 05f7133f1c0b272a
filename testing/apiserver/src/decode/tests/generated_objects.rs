//! Generated objects, compared with the results of Go's decoder.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use supercargo_controlplane::run_tool_or_skip;

use super::super::decode;
use super::id;
use crate::quantity;
use crate::schema::{Schema, Shape, TypeId};
use crate::tests::any_kind;

const QUANTITY: &str =
    "[+-]?0{0,3}[0-9]{0,20}[.]?[0-9]{0,20}(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2}|[a-z]|\\PC)";

/// A value that rarely fits.
fn stray() -> BoxedStrategy<Value> {
    prop_oneof![
        4 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => (-1000i32..1000).prop_map(|number| Value::from(f64::from(number) / 8.0)),
        1 => "[a-z0-9:.-]{0,4}".prop_map(Value::from),
        1 => Just(json!([])),
        1 => Just(json!({})),
        1 => Just(json!([null, 1])),
        1 => Just(json!({"x": null})),
    ]
    .boxed()
}

/// Values of a shape, in any accepted notation, with a few wrong ones.
fn value_of(shape: &Shape, depth: u32) -> BoxedStrategy<Value> {
    let fits = match shape {
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Int32 => (-2i32..3).prop_map(Value::from).boxed(),
        Shape::Int64 => (-2i64..3).prop_map(Value::from).boxed(),
        Shape::Double => (-8i16..8).prop_map(|number| Value::from(f64::from(number) / 4.0)).boxed(),
        Shape::String => "[a-z]{0,2}".prop_map(Value::from).boxed(),
        Shape::Bytes => select(&["", "aGk=", "AAEC"]),
        Shape::Time => select(&["2020-02-29T12:00:00Z", "2020-02-29T23:59:59.999-12:30"]),
        Shape::MicroTime => select(&["2020-02-29T12:00:00.000000Z", "2020-02-29T23:59:59.999999-12:30"]),
        // Resource amounts are rounded to thousandths, which in Go is a default, not part of
        // decoding.
        Shape::Quantity => select(&["0", "1", "1000m", "1.5Gi", " 1024Ki ", "0.5", "1e3", "-1.25", "5000"]),
        Shape::IntOrString => {
            prop_oneof![(-2i32..3).prop_map(Value::from), "[a-z%]{0,2}".prop_map(Value::from)].boxed()
        }
        Shape::Any => prop::sample::select(vec![json!({"a": [1, null]}), json!("x"), json!({})]).boxed(),
        Shape::Object(id) => object_of(*id, depth),
        Shape::List(item) => prop::collection::vec(value_of(item, depth), 0..3).prop_map(Value::from).boxed(),
        Shape::Map(value) => prop::collection::btree_map("[a-z/]{0,3}", value_of(value, depth), 0..3)
            .prop_map(|entries| Value::Object(entries.into_iter().collect()))
            .boxed(),
    };
    prop_oneof![30 => fits, 1 => stray(), 1 => Just(Value::Null)].boxed()
}

fn select(texts: &[&str]) -> BoxedStrategy<Value> {
    let texts: Vec<Value> = texts.iter().map(|text| Value::from(*text)).collect();
    prop::sample::select(texts).boxed()
}

fn object_of(id: TypeId, depth: u32) -> BoxedStrategy<Value> {
    let one = Schema::get().get_type(id);
    if depth == 0 || one.fields.is_empty() {
        return Just(json!({})).boxed();
    }
    let few =
        prop::sample::subsequence((0..one.fields.len()).collect::<Vec<_>>(), 0..=one.fields.len().min(5));
    let known = few.prop_flat_map(move |fields| {
        let one = Schema::get().get_type(id);
        let fields = fields.into_iter().map(|index| &one.fields[index]);
        let fields = fields.filter(|field| field.name != "kind" && field.name != "apiVersion");
        let fields: Vec<_> =
            fields.map(|field| (Just(field.name.clone()), value_of(&field.shape, depth - 1))).collect();
        fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
    });
    let unknown = prop::option::weighted(0.05, prop::sample::select(vec!["x", "Metadata", "foo bar"]));
    (known, unknown)
        .prop_map(|(mut object, unknown)| {
            if let Some(name) = unknown {
                object[name] = json!({"a": 1});
            }
            object
        })
        .boxed()
}

fn some<T: std::fmt::Debug>(count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| value.to_string() + "\n").collect()
}

/// Go's answer to each line.
fn asked(question: &str, lines: &str) -> Option<Vec<Value>> {
    let answers = run_tool_or_skip("./schema", &[question], lines.as_bytes())?;
    Some(answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn ours(object: &Value) -> Value {
    let text = |name: &str| object[name].as_str().unwrap();
    let id = id(text("apiVersion"), text("kind"));
    let mut object = object.clone();
    match decode(id, &mut object) {
        Ok(unknown) => {
            let unknown: Vec<_> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
            json!({"unknown": unknown, "object": object})
        }
        Err(error) => json!({"error": error.to_string()}),
    }
}

#[test]
fn generated_objects_decode_as_in_go() {
    let sent = some(2000, any_kind(object_of));
    let Some(answers) = asked("read", &lines(&sent)) else { return };
    assert_eq!(answers.len(), sent.len());
    let refused = answers.iter().filter(|answer| answer["error"].is_string()).count();
    assert!((100..1900).contains(&refused), "{refused} refused");
    let differ = sent.iter().zip(&answers).map(|(sent, gos)| (sent, ours(sent), gos));
    let differ: Vec<_> = differ.filter(|(_, ours, gos)| ours != *gos).take(5).collect();
    let shown: Vec<_> = differ.iter().map(|(sent, ours, gos)| format!("{sent}\n{ours}\n{gos}")).collect();
    assert!(shown.is_empty(), "sent, ours, Go's:\n{}", shown.join("\n\n"));
}

#[test]
fn generated_quantities_match_go() {
    let texts: Vec<Value> = some(3000, QUANTITY).into_iter().map(Value::from).collect();
    let Some(answers) = asked("quantity", &lines(&texts)) else { return };
    assert_eq!(answers.len(), texts.len());
    let ours = |text: &Value| {
        let ours = quantity::canonical(text.as_str().unwrap());
        Value::from(ours.map_or_else(|error| error.to_string(), std::borrow::Cow::into_owned))
    };
    let differ = texts.iter().zip(&answers).map(|(text, gos)| (text, ours(text), gos));
    let differ: Vec<_> = differ.filter(|(_, ours, gos)| ours != *gos).take(20).collect();
    assert!(differ.is_empty(), "text, ours, Go's: {differ:#?}");
}

proptest! {
    #[test]
    fn decoding_is_idempotent_and_accepts_any_json(mut object in any_kind(object_of), bad in stray()) {
        let id = id(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        if decode(id, &mut object).is_ok() {
            let once = object.clone();
            prop_assert_eq!(decode(id, &mut object), Ok(Vec::new()));
            prop_assert_eq!(&object, &once);
        }
        let mut bad = bad;
        let _ = decode(id, &mut bad);
    }

    #[test]
    fn quantities_and_times_accept_any_text_without_panic(text in "\\PC{0,40}|[0-9T:.Z+-]{0,40}") {
        let _ = quantity::canonical_milli(&text);
        let _ = super::super::time::normalise(&text, super::super::time::Precision::Seconds);
        let _ = super::super::time::normalise(&text, super::super::time::Precision::Micros);
    }
}
