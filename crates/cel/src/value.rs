//! Values at run time, and what all of them have in common.

use std::sync::{Arc, Mutex, PoisonError};

use crate::eval_failure::{EvalFailure, Steps};
use crate::gofmt;
use crate::map::Map;
use crate::named_format::NamedFormat;
use crate::net::{Cidr, Ip};
use crate::quantity::Quantity;
use crate::semver::Version;
use crate::time::Timestamp;
use crate::url::Url;

/// A value or why there is none.
pub(crate) type Outcome = Result<Value, EvalFailure>;

/// Values may not nest deeper, so that no walk over one overflows the stack.
pub(crate) const MAX_NESTING: u16 = 250;
/// A list may not grow longer; upstream's cost limit ends most uses of such a list.
const MAX_LIST: usize = 1 << 20;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(List),
    Map(Map),
    /// The name of a type.
    Type(Arc<str>),
    Timestamp(Timestamp),
    /// In nanoseconds.
    Duration(i64),
    Optional(Option<Arc<Self>>),
    /// `computed` ones are pointers upstream, which are equal to nothing on the right of `==`.
    Quantity {
        quantity: Arc<Quantity>,
        computed: bool,
    },
    Semver(Arc<Version>),
    Ip(Ip),
    Cidr(Cidr),
    Url(Arc<Url>),
    Format(&'static NamedFormat),
}

/// A list. One that a fold adds up in grows in place, as upstream's does.
#[derive(Clone, Debug)]
pub(crate) struct List(Arc<Items>);

#[derive(Debug)]
enum Items {
    Fixed(Vec<Value>, u16),
    Growing(Mutex<Vec<Value>>),
}

impl List {
    pub(crate) fn new(items: Vec<Value>) -> Self {
        let below = items.iter().map(Value::nesting).max().unwrap_or(0);
        Self(Arc::new(Items::Fixed(items, below.saturating_add(1))))
    }

    pub(crate) fn growing() -> Self {
        Self(Arc::new(Items::Growing(Mutex::default())))
    }

    fn nesting(&self) -> u16 {
        match &*self.0 {
            Items::Fixed(_, nesting) => *nesting,
            Items::Growing(_) => {
                self.with(|items| items.iter().map(Value::nesting).max()).unwrap_or(0).saturating_add(1)
            }
        }
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&[Value]) -> T) -> T {
        match &*self.0 {
            Items::Fixed(items, _) => read(items),
            Items::Growing(items) => read(&items.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.with(<[Value]>::len)
    }

    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        self.with(|items| items.get(index).cloned())
    }

    pub(crate) fn to_vec(&self) -> Vec<Value> {
        self.with(<[Value]>::to_vec)
    }

    /// What upstream makes of the list of a fold that ends.
    pub(crate) fn settled(&self) -> Self {
        match &*self.0 {
            Items::Fixed(..) => self.clone(),
            Items::Growing(_) => Self::new(self.to_vec()),
        }
    }

    /// This list with the items of another one.
    pub(crate) fn concat(&self, other: &Self, steps: &mut Steps) -> Outcome {
        if self.len() + other.len() > MAX_LIST {
            return Err(EvalFailure::halt("list too long"));
        }
        if let Items::Growing(items) = &*self.0 {
            let more = other.to_vec();
            steps.take(more.len() as u64)?;
            if more.iter().any(|item| item.contains(self.address(), steps)) {
                return Err(EvalFailure::halt("list that contains itself"));
            }
            items.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
            return Ok(Value::List(self.clone()));
        }
        if self.len() == 0 {
            return Ok(Value::List(other.clone()));
        }
        if other.len() == 0 {
            return Ok(Value::List(self.clone()));
        }
        steps.take((self.len() + other.len()) as u64)?;
        let mut items = self.to_vec();
        items.extend(other.to_vec());
        Ok(Value::List(Self::new(items)))
    }

    /// The place of the list, by which upstream's maps know a key.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>() as usize
    }
}

impl Value {
    /// How many lists, maps and optionals are in one another.
    pub(crate) fn nesting(&self) -> u16 {
        match self {
            Self::List(list) => list.nesting(),
            Self::Map(map) => map.nesting(),
            Self::Optional(Some(value)) => value.nesting().saturating_add(1),
            _ => 0,
        }
    }

    /// Whether the list at this address is in this value. Without enough steps, it may be.
    fn contains(&self, address: usize, steps: &mut Steps) -> bool {
        let is_list = matches!(self, Self::List(_) | Self::Map(_) | Self::Optional(Some(_)));
        if !is_list {
            return false;
        }
        if steps.take(1).is_err() {
            return true;
        }
        match self {
            Self::List(list) if list.address() == address => true,
            Self::List(list) => list.to_vec().iter().any(|item| item.contains(address, steps)),
            Self::Map(map) => map.entries().iter().any(|(_, value)| value.contains(address, steps)),
            Self::Optional(Some(value)) => value.contains(address, steps),
            _ => false,
        }
    }

    pub(crate) fn string(text: &str) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(List::new(items))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// The name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Optional(_) => "optional_type",
            Self::Quantity { .. } => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// Its type where upstream prints one, such as `map(dyn, dyn)`.
    pub(crate) fn verbose_type(&self) -> String {
        match self {
            Self::List(_) => "list(dyn)".into(),
            Self::Map(_) => "map(dyn, dyn)".into(),
            Self::Optional(_) => "optional_type(dyn)".into(),
            _ => self.type_name().into(),
        }
    }

    /// The Go type that holds it upstream, which some messages show.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::List(_) => "*types.baseList",
            Self::Map(map) if map.has_default() => "cel.mapper",
            Self::Map(_) => "*types.baseMap",
            Self::Type(_) => "*types.Type",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Duration(_) => "types.Duration",
            Self::Optional(_) => "*types.Optional",
            Self::Quantity { computed: true, .. } => "*cel.Quantity",
            Self::Quantity { .. } => "cel.Quantity",
            Self::Semver(_) => "cel.Semver",
            Self::Ip(_) => "cel.IP",
            Self::Cidr(_) => "cel.CIDR",
            Self::Url(_) => "cel.URL",
            Self::Format(_) => "cel.Format",
        }
    }

    /// The number of its parts, if it has parts.
    pub(crate) fn size(&self) -> Option<u64> {
        Some(match self {
            Self::String(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Ip(ip) => ip.size(),
            Self::Cidr(cidr) => cidr.size(),
            _ => return None,
        })
    }

    /// Whether it is empty or zero, as `optional.ofNonZeroValue` sees it.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) | Self::Duration(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(_) | Self::Bytes(_) | Self::List(_) | Self::Map(_) => self.size() == Some(0),
            Self::Timestamp(at) => at.is_zero(),
            _ => false,
        }
    }

    /// Upstream's `%v`.
    pub(crate) fn display(&self) -> String {
        match self {
            Self::Null => "0".into(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Uint(value) => value.to_string(),
            Self::Double(value) => gofmt::double(*value),
            Self::String(text) => text.to_string(),
            Self::Bytes(bytes) => {
                let items: Vec<String> = bytes.iter().map(ToString::to_string).collect();
                format!("[{}]", items.join(" "))
            }
            Self::List(list) => {
                let items: Vec<String> = list.to_vec().iter().map(Self::display).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Map(map) => {
                let items: Vec<String> = map
                    .entries()
                    .iter()
                    .map(|(key, value)| format!("{}: {}", key.display(), value.display()))
                    .collect();
                format!("{{{}}}", items.join(", "))
            }
            Self::Type(name) => name.to_string(),
            Self::Timestamp(at) => at.go_string(),
            Self::Duration(nanos) => gofmt::duration(*nanos),
            Self::Optional(None) => "optional.none()".into(),
            Self::Optional(Some(value)) => format!("optional({})", value.display()),
            Self::Quantity { quantity, .. } => quantity.to_string(),
            Self::Semver(version) => version.to_string(),
            Self::Ip(ip) => ip.to_string(),
            Self::Cidr(cidr) => cidr.to_string(),
            Self::Url(url) => url.text.clone(),
            // Upstream prints the address of a function, too.
            Self::Format(format) => format.name.into(),
        }
    }

    /// `self == other` in upstream's order of operands. Values of some types refuse other types.
    pub(crate) fn equal(&self, other: &Self, steps: &mut Steps) -> Result<bool, EvalFailure> {
        if matches!(self, Self::Null) || matches!(other, Self::Null) {
            return Ok(matches!(self, Self::Null) && matches!(other, Self::Null));
        }
        self.equal_method(other, steps)
    }

    /// Upstream's method `Equal`, which does not know null.
    pub(crate) fn equal_method(&self, other: &Self, steps: &mut Steps) -> Result<bool, EvalFailure> {
        steps.take(1)?;
        Ok(match (self, other) {
            (Self::Null, _) => matches!(other, Self::Null),
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (
                Self::Int(_) | Self::Uint(_) | Self::Double(_),
                Self::Int(_) | Self::Uint(_) | Self::Double(_),
            ) => crate::numbers::equal(self, other),
            (Self::String(a), Self::String(b)) | (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => return lists_equal(a, b, steps),
            (Self::Map(a), Self::Map(b)) => return a.equal(b, steps),
            (Self::Timestamp(a), Self::Timestamp(b)) => a.same_instant(b),
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => return a.equal_method(b, steps),
                (a, b) => a.is_none() && b.is_none(),
            },
            (Self::Quantity { quantity: a, .. }, Self::Quantity { quantity: b, computed: false }) => {
                a.compare(b).is_eq()
            }
            (Self::Semver(a), Self::Semver(b)) => a.compare(b).is_eq(),
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a.text == b.text,
            (Self::Format(a), Self::Format(b)) => a.name == b.name,
            (
                Self::Quantity { .. }
                | Self::Semver(_)
                | Self::Ip(_)
                | Self::Cidr(_)
                | Self::Url(_)
                | Self::Format(_),
                _,
            ) => {
                return Err(EvalFailure::no_such_overload());
            }
            _ => false,
        })
    }

    /// Whether upstream finds it equal; an error is no.
    pub(crate) fn is(&self, other: &Self, steps: &mut Steps) -> Result<bool, EvalFailure> {
        quiet(self.equal_method(other, steps))
    }
}

/// An error of a comparison counts as different; a halt remains one.
fn quiet(result: Result<bool, EvalFailure>) -> Result<bool, EvalFailure> {
    match result {
        Err(EvalFailure::Error(_)) => Ok(false),
        other => other,
    }
}

/// Elements whose comparison fails count as equal, as upstream has it.
fn lists_equal(a: &List, b: &List, steps: &mut Steps) -> Result<bool, EvalFailure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let other = b.to_vec();
    steps.take(other.len() as u64)?;
    let items = a.to_vec();
    all_equal(&items, &other, steps)
}

fn all_equal(a: &[Value], b: &[Value], steps: &mut Steps) -> Result<bool, EvalFailure> {
    for (a, b) in a.iter().zip(b) {
        match a.equal(b, steps) {
            Ok(false) => return Ok(false),
            Err(halt @ EvalFailure::Halt(_)) => return Err(halt),
            Ok(true) | Err(EvalFailure::Error(_)) => {}
        }
    }
    Ok(true)
}
