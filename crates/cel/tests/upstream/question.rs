//! What both sides are asked, and what upstream answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use supercargo_cel::{Attribute, Device, Reads};

/// An expression and devices, in the API's form.
#[derive(Clone, Debug, Serialize)]
pub struct Question {
    pub expression: String,
    pub devices: Vec<Described>,
}

/// A device.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    pub driver: String,
    pub allow_multiple_allocations: Option<bool>,
    pub attributes: BTreeMap<String, Value>,
    pub capacity: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    pub compile_error: String,
    pub compile_panic: String,
    pub evaluations: Vec<Evaluation>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Evaluation {
    #[serde(rename = "match")]
    pub is_match: bool,
    pub error: String,
    pub cost: Option<u64>,
}

fn attribute(value: &Value) -> Attribute {
    let texts = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    let Some((kind, value)) = value.as_object().and_then(|fields| fields.iter().next()) else {
        return Attribute::Unset;
    };
    match kind.as_str() {
        "int" => Attribute::Int(value.as_i64().unwrap_or_default()),
        "bool" => Attribute::Bool(value.as_bool().unwrap_or_default()),
        "string" => Attribute::String(value.as_str().unwrap_or_default().into()),
        "version" => Attribute::Version(value.as_str().unwrap_or_default().into()),
        "ints" => Attribute::Ints(serde_json::from_value(value.clone()).unwrap_or_default()),
        "bools" => Attribute::Bools(serde_json::from_value(value.clone()).unwrap_or_default()),
        "strings" => Attribute::Strings(texts(value)),
        _ => Attribute::Versions(texts(value)),
    }
}

impl Described {
    /// The device for programs that read this, or the error that it has.
    pub fn device(&self, reads: &Reads) -> Result<Device, String> {
        let attributes: Vec<_> =
            self.attributes.iter().map(|(name, value)| (name, attribute(value))).collect();
        let attributes = attributes.iter().map(|(name, attribute)| (name.as_str(), attribute));
        let capacity =
            self.capacity.iter().map(|(name, value)| (name.as_str(), value["value"].as_str().unwrap_or("0")));
        let allows = self.allow_multiple_allocations.unwrap_or(false);
        Device::reading(reads, &self.driver, allows, attributes, capacity).map_err(|error| error.to_string())
    }
}

impl Question {
    /// Smaller questions, the smallest first.
    pub fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        if self.devices.len() > 1 {
            found.extend(
                self.devices.iter().map(|device| Self { devices: vec![device.clone()], ..self.clone() }),
            );
        }
        let text: Vec<char> = self.expression.chars().collect();
        let mut length = text.len() / 2;
        while length > 0 {
            for start in 0..=text.len() - length {
                let rest = text[..start].iter().chain(&text[start + length..]).collect();
                found.push(Self { expression: rest, ..self.clone() });
            }
            length = if length > 24 { length / 2 } else { length - 1 };
        }
        for (index, device) in self.devices.iter().enumerate() {
            for name in device.attributes.keys() {
                let mut smaller = self.clone();
                smaller.devices[index].attributes.remove(name);
                found.push(smaller);
            }
            for name in device.capacity.keys() {
                let mut smaller = self.clone();
                smaller.devices[index].capacity.remove(name);
                found.push(smaller);
            }
        }
        found
    }
}

/// The expressions of upstream's tests, one a line; `\n` stands for the end of a line.
pub fn listed() -> impl Iterator<Item = String> {
    include_str!("expressions.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.replace("\\n", "\n"))
}

/// Devices that these expressions are about: each attribute with values of every type.
pub fn listed_devices() -> Vec<Described> {
    let many: Vec<String> = (0..48).map(|index| format!("value-{index}")).collect();
    let values = [
        json!({ "bool": true }),
        json!({ "int": 1 }),
        json!({ "string": "fish" }),
        json!({ "version": "1.0.0" }),
        json!({ "bools": [true, false] }),
        json!({ "ints": [1, 2, 3] }),
        json!({ "strings": ["fish", "bird"] }),
        json!({ "versions": ["1.0.0", "2.0.0"] }),
        json!({ "strings": many }),
    ];
    let names = ["name", "names", "ids", "attr", "a", "b", "c", "services", "dra.example.com/something"];
    let of_one_type = values.iter().map(|value| Described {
        driver: "dra.example.com".into(),
        allow_multiple_allocations: Some(true),
        attributes: names.iter().map(|name| ((*name).to_string(), value.clone())).collect(),
        capacity: [("name", "1Mi"), ("quantity", "1Mi"), ("memory", "1Mi")]
            .map(|(name, value)| (name.to_string(), json!({ "value": value })))
            .into(),
    });
    let mixed = [
        ("bool", json!({ "bool": true })),
        ("int", json!({ "int": 1 })),
        ("string", json!({ "string": "fish" })),
        ("version", json!({ "version": "1.0.0" })),
        ("services", json!({ "string": "some_example_value" })),
        ("other.example.com/name", json!({ "bool": true })),
        ("driver-a/exists", json!({ "bool": true })),
        ("example.com/test_attr", json!({ "string": "test-value" })),
    ];
    let mixed = Described {
        driver: "dra.example.com".into(),
        attributes: mixed.map(|(name, value)| (name.to_string(), value)).into(),
        capacity: [("quantity".to_string(), json!({ "value": "1Mi" }))].into(),
        ..Described::default()
    };
    let of_test_driver = |memory: &str, model: &str| Described {
        driver: "test-driver".into(),
        attributes: [("model".to_string(), json!({ "string": model }))].into(),
        capacity: [("memory".to_string(), json!({ "value": memory }))].into(),
        ..Described::default()
    };
    let of_test_driver =
        [("16Gi", "SOME-MODEL"), ("8Gi", "OTHER"), ("4Gi", "SOME-MODEL")].map(|(m, n)| of_test_driver(m, n));
    of_one_type.chain([mixed, Described::default()]).chain(of_test_driver).collect()
}
