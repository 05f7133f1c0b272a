//! Device selectors: the CEL (Common Expression Language) of DeviceClasses and ResourceClaims.
//!
//! Same as upstream's `k8s.io/dynamic-resource-allocation/cel` 0.37.2 in the environment of stored
//! expressions, which is the scheduler's: the same types, results, errors and costs. The
//! environment does not depend on feature gates.
//!
//! ```
//! use supercargo_cel::{Attribute, Device, Program};
//!
//! let program = Program::compile(r#"device.attributes["gpu.example.com"].cores > 4"#).unwrap();
//! let cores = Attribute::Int(8);
//! let device = Device::new("gpu.example.com", false, [("cores", &cores)], []).unwrap();
//! assert_eq!(program.matches(&device), Ok(true));
//! ```
//!
//! # Differences
//!
//! Upstream accepts these, and a program with them does not compile here, with an error that names
//! the reason:
//!
//! * an expression longer than 10,240 bytes, which no API object holds
//! * messages of protobuf, such as `google.protobuf.Duration{}`
//! * macros that expand to more than 100,000 nodes, and types with more than 2,000 parts
//! * constant regular expressions with a surrogate, of more than a megabyte when compiled, or that
//!   ignore case in ranges of more than 80 million characters
//! * an optional element without a known type, and keys of type `bytes` in a constant map: upstream
//!   panics
//!
//! These fail when they are evaluated:
//!
//! * the names of time zones other than `UTC`, and offsets of more than a century
//! * regular expressions as above that are not constant
//! * lists of more than 2^20 elements, texts of more than 64 MiB, values that nest deeper than 250,
//!   and evaluations with more than 20 million steps, comparisons and copies, most of which cost
//!   nothing upstream
//! * quantities beyond 128 bits
//! * `getHost`, `getHostname` and `getQuery` with text that is not UTF-8
//! * `sortBy` with equal keys of different elements in a list of more than 12, and sorting of NaN
//!
//! Of an expression that does not parse, only the first error is reported, and its text may be
//! another one. Where upstream walks over a map in random order, this walks in the order of keys.
//!
//! Some texts differ:
//!
//! * Characters that are newer than Unicode 15 count as assigned, in classes such as `\pL` and in
//!   quoted texts.
//! * The error of a URL with an address in brackets that is not UTF-8 has replacement characters.
//! * A named format within an error has its name only; upstream prints an address of memory, too.

mod ast;
mod checker;
mod cost;
mod declarations;
mod device;
mod eval;
mod eval_failure;
mod format_string;
mod functions;
mod go_float;
mod gofmt;
mod lexer;
mod literals;
mod macros;
mod map;
mod named_format;
mod net;
mod numbers;
mod parser;
mod plan;
mod quantity;
mod reads;
mod semver;
mod source;
mod time;
mod types;
mod unexpected;
mod url;
mod validate;
mod value;

use std::fmt;
use std::sync::Arc;

pub use device::{Attribute, Device};
pub use gofmt::quote;
pub use quantity::{Format, Quantity, QuantityError};
pub use reads::Reads;

use crate::ast::Id;
use crate::checker::{Checked, check};
use crate::eval_failure::{MAX_STEPS, Steps};
use crate::parser::parse;
use crate::plan::Node;
use crate::source::{Errors, Source};
use crate::types::Type;
use crate::value::{Outcome, Value};

/// The most that one evaluation may cost. Same as upstream's `CELSelectorExpressionMaxCost`.
pub const COST_LIMIT: u64 = 1_000_000;
/// The longest expression, in bytes. Same as upstream's `CELSelectorExpressionMaxLength`.
pub const MAX_LENGTH: usize = 10 * 1024;

/// The steps that an evaluation may take in any case: more than most with [`COST_LIMIT`].
const STEPS_OF_ONE: u64 = 2_500_000;

/// The size of a node with its share of lists, names and values.
const NODE_BYTES: usize = 160;

/// A compiled selector. It never changes, and threads may share it.
pub struct Program {
    node: Node,
    /// The last identity of a node.
    last: Id,
    reads: Reads,
    bytes: usize,
}

/// Why an expression is not a selector, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError(Arc<str>);

/// Why there is no answer for a device, in upstream's words as its allocators print them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(Arc<str>);

impl Program {
    /// Compiles a selector.
    pub fn compile(expression: &str) -> Result<Self, CompileError> {
        if expression.len() > MAX_LENGTH {
            return Err(CompileError::new(format!("expression longer than {MAX_LENGTH} bytes")));
        }
        let source = Source::new(expression);
        let mut errors = Errors::default();
        let Some((node, pattern_bytes, last, reads)) = compile(&source, &mut errors)? else {
            return Err(CompileError::new(format!("compilation failed: {}", errors.display(&source))));
        };
        let bytes = size_of::<Self>() + last as usize * NODE_BYTES + expression.len() + pattern_bytes;
        Ok(Self { node, last, reads, bytes })
    }

    /// The approximate size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it reads of a device.
    pub const fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Whether the device is selected.
    pub fn matches(&self, device: &Device) -> Result<bool, EvalError> {
        self.matches_with_cost(device).0
    }

    /// As [`matches`](Self::matches), and the cost of the evaluation, in upstream's units.
    pub fn matches_with_cost(&self, device: &Device) -> (Result<bool, EvalError>, u64) {
        let steps = Steps::default();
        let (outcome, cost, _) = eval::evaluate(&self.node, self.last, &device.0, COST_LIMIT, steps);
        (to_bool(outcome), cost)
    }

    /// As [`matches`](Self::matches), with a limit of the work for several evaluations; `None` if
    /// it ends this one. Work takes time, and costs are a part of it. An evaluation that begins may
    /// exceed the limit a little, so that one at upstream's cost limit fails as there.
    pub fn matches_within(&self, device: &Device, work: &mut u64) -> Option<Result<bool, EvalError>> {
        if *work == 0 {
            return None;
        }
        let most = MAX_STEPS.min((*work).max(STEPS_OF_ONE));
        let (outcome, cost, steps) =
            eval::evaluate(&self.node, self.last, &device.0, COST_LIMIT, Steps::new(most));
        *work = work.saturating_sub(cost).saturating_sub(most - steps.left());
        if steps.ran_out && most < MAX_STEPS {
            return None;
        }
        Some(to_bool(outcome))
    }
}

/// Compiles; nothing if there are errors.
fn compile(source: &Source, errors: &mut Errors) -> Result<Option<(Node, usize, Id, Reads)>, CompileError> {
    let Some(mut ast) = parse(source, errors) else { return Ok(None) };
    if !errors.is_empty() {
        return Ok(None);
    }
    let checked = check(source, &ast.places, &mut ast.root, errors);
    if !errors.is_empty() {
        return Ok(None);
    }
    validate::validate(source, &ast.places, &ast.root, &checked, errors);
    if !errors.is_empty() {
        return Ok(None);
    }
    check_result(&checked, ast.root.id)?;
    let (node, pattern_bytes) = plan::plan(&ast.root, &checked)
        .map_err(|fault| CompileError::new(format!("program instantiation failed: {}", fault.text())))?;
    Ok(Some((node, pattern_bytes, ast.places.len() as Id, Reads::of(&ast.root))))
}

fn check_result(checked: &Checked, root: Id) -> Result<(), CompileError> {
    match checked.type_of(root) {
        Type::Bool | Type::Dyn => Ok(()),
        other => {
            let found = other.verbose();
            Err(CompileError::new(format!("must evaluate to bool or the unknown type, not {found}")))
        }
    }
}

fn to_bool(outcome: Outcome) -> Result<bool, EvalError> {
    let value = match outcome {
        Ok(Value::Bool(value)) => return Ok(value),
        Ok(value) => value,
        Err(fault) => return Err(EvalError::new(fault.text().to_string())),
    };
    let t = value.type_name();
    Err(EvalError::new(match bool_error(&value) {
        Ok(value) => return Ok(value),
        Err(reason) => format!("CEL result of type {t} could not be converted to bool: {reason}"),
    }))
}

/// Why a value is not a boolean in Go, in the words of each type.
fn bool_error(value: &Value) -> Result<bool, String> {
    Err(match value {
        Value::Bool(value) => return Ok(*value),
        Value::Int(_) => "unsupported type conversion from 'int' to bool".into(),
        Value::Uint(_) => "unsupported type conversion from 'uint' to bool".into(),
        Value::String(_) => "unsupported native conversion from string to 'bool'".into(),
        Value::Type(_) => "type conversion not supported for 'type'".into(),
        Value::Optional(None) => "optional.none() dereference".into(),
        Value::Optional(Some(inner)) => return bool_error(inner),
        other => {
            let name = match other {
                Value::Null => "'null_type'",
                Value::Double(_) => "Double",
                Value::Bytes(_) => "Bytes",
                Value::List(_) => "list",
                Value::Map(_) => "map",
                Value::Timestamp(_) => "'Timestamp'",
                Value::Duration(_) => "'Duration'",
                Value::Quantity { .. } => "'Quantity'",
                Value::Semver(_) => "'Semver'",
                Value::Ip(_) => "'IP'",
                Value::Url(_) => "'URL'",
                Value::Format(_) => "'Format'",
                _ => "'CIDR'",
            };
            format!("type conversion error from {name} to 'bool'")
        }
    })
}

impl CompileError {
    fn new(message: String) -> Self {
        Self(message.into())
    }
}

impl EvalError {
    fn new(message: String) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)?;
        if self.0.contains("no such key:") {
            f.write_str(
                ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for \
                 optional fields",
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

impl std::error::Error for CompileError {}
impl std::error::Error for EvalError {}

const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Program>();
    is_shared::<Device>();
};
