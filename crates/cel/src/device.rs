//! What a selector sees of a device.

use std::sync::{Arc, LazyLock};

use crate::EvalError;
use crate::map::Map;
use crate::quantity::{Quantity, QuantityError};
use crate::reads::Reads;
use crate::semver::Version;
use crate::value::Value;

/// The value of an attribute, as in the API. Lists are those of the gate DRAListTypeAttributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `int`.
    Int(i64),
    /// `bool`.
    Bool(bool),
    /// `string`.
    String(Arc<str>),
    /// `version`: a semantic version.
    Version(Arc<str>),
    /// `ints`.
    Ints(Vec<i64>),
    /// `bools`.
    Bools(Vec<bool>),
    /// `strings`.
    Strings(Vec<String>),
    /// `versions`.
    Versions(Vec<String>),
    /// None of the fields that this program knows.
    Unset,
}

/// The fields of a device, sorted.
static FIELDS: LazyLock<[Arc<str>; 4]> =
    LazyLock::new(|| ["allowMultipleAllocations", "attributes", "capacity", "driver"].map(Into::into));

/// A device as the variable `device`. Made once, it serves any number of programs.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Value);

impl Device {
    /// Makes a device of its fields. A name without a domain has the driver's; of two names that
    /// are the same so, the later one counts.
    ///
    /// The error is the one that upstream has for every selector on this device: `attribute N: ...`
    /// for an attribute without a value, or with a version that is none.
    pub fn new<'a>(
        driver: &str,
        allow_multiple_allocations: bool,
        attributes: impl IntoIterator<Item = (&'a str, &'a Attribute)>,
        capacity: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, EvalError> {
        Self::reading(&Reads::everything(), driver, allow_multiple_allocations, attributes, capacity)
    }

    /// As [`new`](Self::new), for programs that read no more than this. The error is the same, also
    /// for what they do not read.
    pub fn reading<'a>(
        reads: &Reads,
        driver: &str,
        allow_multiple_allocations: bool,
        attributes: impl IntoIterator<Item = (&'a str, &'a Attribute)>,
        capacity: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, EvalError> {
        let attributes = attributes.into_iter();
        let mut by_domain = ByDomain::new(reads, driver);
        by_domain.values.reserve(attributes.size_hint().0);
        for (name, attribute) in attributes {
            let value =
                attribute.value().map_err(|error| EvalError::new(format!("attribute {name}: {error}")))?;
            by_domain.insert(name, value);
        }
        let attributes = by_domain.into_value();
        let mut by_domain = ByDomain::new(reads, driver);
        for (name, quantity) in capacity {
            let quantity = Quantity::parse(quantity.trim()).map_err(|error| match error {
                QuantityError::Invalid(message) => EvalError::new(format!("capacity {name}: {message}")),
                QuantityError::TooLarge => EvalError::new(format!("capacity {name}: quantity too large")),
            })?;
            by_domain.insert(name, Value::Quantity { quantity: Arc::new(quantity), computed: false });
        }
        // In the order of FIELDS.
        let values = [
            Value::Bool(allow_multiple_allocations),
            attributes,
            by_domain.into_value(),
            Value::string(driver),
        ];
        Ok(Self(Value::Map(Map::of_strings(FIELDS.iter().cloned().zip(values)))))
    }
}

impl Attribute {
    fn value(&self) -> Result<Value, String> {
        let version = |text: &str| {
            let version = Version::parse(text).map_err(|error| format!("parse semantic version: {error}"))?;
            Ok::<_, String>(Value::Semver(Arc::new(version)))
        };
        Ok(match self {
            Self::Int(value) => Value::Int(*value),
            Self::Bool(value) => Value::Bool(*value),
            Self::String(text) => Value::String(Arc::clone(text)),
            Self::Version(text) => version(text)?,
            Self::Ints(values) => Value::list(values.iter().copied().map(Value::Int).collect()),
            Self::Bools(values) => Value::list(values.iter().copied().map(Value::Bool).collect()),
            Self::Strings(texts) => Value::list(texts.iter().map(|text| Value::string(text)).collect()),
            Self::Versions(texts) => {
                Value::list(texts.iter().map(|text| version(text)).collect::<Result<_, _>>()?)
            }
            Self::Unset => return Err("unsupported attribute value".into()),
        })
    }
}

/// Values by domain and identifier.
struct ByDomain<'a> {
    reads: &'a Reads,
    driver: &'a str,
    values: Vec<(Arc<str>, Arc<str>, Value)>,
}

impl<'a> ByDomain<'a> {
    const fn new(reads: &'a Reads, driver: &'a str) -> Self {
        Self { reads, driver, values: Vec::new() }
    }

    fn insert(&mut self, name: &str, value: Value) {
        let names = self.reads.names_of(name, self.driver);
        self.values.extend(names.map(|(domain, id)| (domain, id, value)));
    }

    fn into_value(mut self) -> Value {
        // Of two with one name, the later one.
        self.values.reverse();
        self.values.sort_by(|(domain, id, _), (other, another, _)| (domain, id).cmp(&(other, another)));
        self.values.dedup_by(|(domain, id, _), (other, another, _)| domain == other && id == another);
        let domains = self.values.chunk_by(|(domain, ..), (other, ..)| domain == other).map(|values| {
            let of_domain = values.iter().map(|(_, id, value)| (Arc::clone(id), value.clone()));
            (Arc::clone(&values[0].0), Value::Map(Map::of_strings(of_domain)))
        });
        // No more than needed in nearly all cases: a device has few domains.
        let mut all = Vec::with_capacity(self.values.len().min(2));
        all.extend(domains);
        Value::Map(Map::of_strings(all).with_default())
    }
}
