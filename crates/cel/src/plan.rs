//! From a checked tree to the steps of an evaluation, as upstream plans them.
//!
//! Upstream folds constants, looks up members of constant lists in a set, and compiles constant
//! regular expressions. All three change costs, so they are done here in the same places.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::ast::{Call, Expr, ExprKind, Fold, Id, Name};
use crate::checker::{Checked, DEVICE, global_type};
use crate::eval_failure::{EvalFailure, Steps};
use crate::functions::{Binding, bind, optimized, pattern_bytes};
use crate::map::Map;
use crate::types::Type;
use crate::value::{Outcome, Value};

/// A step with a value.
pub(crate) enum Node {
    Constant {
        id: Id,
        value: Outcome,
    },
    Attribute(Box<Attribute>),
    Logic {
        id: Id,
        is_or: bool,
        terms: Vec<Node>,
    },
    Equal {
        id: Id,
        negated: bool,
        args: Vec<Node>,
    },
    Call(Box<CallNode>),
    List {
        id: Id,
        elements: Vec<(Node, bool)>,
    },
    Map {
        id: Id,
        entries: Vec<(Node, Node, bool)>,
    },
    Struct {
        id: Id,
        fields: Vec<Node>,
    },
    Fold(Box<FoldNode>),
    /// `or`, and with `unwraps` `orValue`.
    Or {
        id: Id,
        unwraps: bool,
        args: Vec<Node>,
    },
    InSet {
        id: Id,
        arg: Box<Node>,
        set: Map,
    },
}

/// A variable or value, and what is selected from it. With `test_only`, whether it is there.
pub(crate) struct Attribute {
    pub(crate) root: Root,
    pub(crate) test_only: Option<Id>,
}

pub(crate) enum Root {
    Variable { id: Id, name: Name, qualifiers: Vec<Arc<Qualifier>> },
    Value { id: Id, node: Node, qualifiers: Vec<Arc<Qualifier>> },
    Conditional { id: Id, condition: Node, truthy: Box<Root>, falsy: Box<Root> },
}

/// A field, key or index.
pub(crate) struct Qualifier {
    pub(crate) id: Id,
    pub(crate) key: Key,
    pub(crate) optional: bool,
}

pub(crate) enum Key {
    Constant { value: Value, test_only: bool },
    Attribute(Attribute),
    Computed(Node),
}

pub(crate) struct CallNode {
    pub(crate) id: Id,
    pub(crate) function: Name,
    pub(crate) overload: Option<&'static str>,
    pub(crate) args: Vec<Node>,
    /// Evaluation of arguments ends at the first error.
    pub(crate) in_order: bool,
    /// Nothing for `@not_strictly_false`, which takes errors.
    pub(crate) binding: Option<Binding>,
}

pub(crate) struct FoldNode {
    pub(crate) id: Id,
    pub(crate) range: Node,
    pub(crate) var: Name,
    pub(crate) var2: Option<Name>,
    pub(crate) accu_var: Name,
    pub(crate) accu_init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

impl Root {
    pub(crate) fn id(&self) -> Id {
        match self {
            Self::Variable { id, qualifiers, .. } | Self::Value { id, qualifiers, .. } => {
                qualifiers.last().map_or(*id, |last| last.id)
            }
            Self::Conditional { id, truthy, falsy, .. } => {
                let truthy = truthy.id();
                if truthy == falsy.id() { truthy } else { *id }
            }
        }
    }

    fn qualify(&mut self, qualifier: Arc<Qualifier>) {
        match self {
            Self::Variable { qualifiers, .. } | Self::Value { qualifiers, .. } => qualifiers.push(qualifier),
            Self::Conditional { truthy, falsy, .. } => {
                truthy.qualify(qualifier.clone());
                falsy.qualify(qualifier);
            }
        }
    }
}

impl Node {
    pub(crate) fn id(&self) -> Id {
        match self {
            Self::Constant { id, .. }
            | Self::Logic { id, .. }
            | Self::Equal { id, .. }
            | Self::List { id, .. }
            | Self::Map { id, .. }
            | Self::Struct { id, .. }
            | Self::Or { id, .. }
            | Self::InSet { id, .. } => *id,
            Self::Attribute(attribute) => attribute.test_only.unwrap_or_else(|| attribute.root.id()),
            Self::Call(call) => call.id,
            Self::Fold(fold) => fold.id,
        }
    }

    fn constant(&self) -> Option<&Value> {
        match self {
            Self::Constant { value: Ok(value), .. } => Some(value),
            _ => None,
        }
    }
}

/// Plans an expression; also the size of its regular expressions in bytes. The error is upstream's.
pub(crate) fn plan(root: &Expr, checked: &Checked) -> Result<(Node, usize), EvalFailure> {
    let planner = Planner { checked, pattern_bytes: Cell::new(0), steps: RefCell::default() };
    let node = planner.plan(root)?;
    Ok((node, planner.pattern_bytes.get()))
}

struct Planner<'a> {
    checked: &'a Checked,
    pattern_bytes: Cell<usize>,
    /// What it may take to compile patterns.
    steps: RefCell<Steps>,
}

type Planned = Result<Node, EvalFailure>;

impl Planner<'_> {
    fn plan(&self, expr: &Expr) -> Planned {
        let id = expr.id;
        match &expr.kind {
            ExprKind::Unspecified => Err(EvalFailure::error("unsupported expr")),
            ExprKind::Literal(value) => Ok(Node::Constant { id, value: Ok(value.clone()) }),
            ExprKind::Ident(name) => self.plan_ident(id, name),
            ExprKind::Select(select) => {
                let operand = self.plan(&select.operand)?;
                let value = Value::string(&select.field);
                let key = Key::Constant { value, test_only: select.test_only };
                let test_only = select.test_only.then_some(id);
                Ok(qualified(operand, Qualifier { id, key, optional: false }, test_only))
            }
            ExprKind::Call(call) => self.plan_call(id, call),
            ExprKind::List(list) => {
                let plan = |element: &crate::ast::Element| Ok((self.plan(&element.value)?, element.optional));
                let elements = list.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
                Ok(fold_list(id, elements))
            }
            ExprKind::Map(map) => {
                let plan = |entry: &crate::ast::Entry| {
                    Ok((self.plan(&entry.key)?, self.plan(&entry.value)?, entry.optional))
                };
                let entries = map.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
                fold_map(id, entries)
            }
            ExprKind::Struct(message) => {
                let fields =
                    message.fields.iter().map(|field| self.plan(&field.value)).collect::<Result<_, _>>()?;
                Ok(Node::Struct { id, fields })
            }
            ExprKind::Fold(fold) => self.plan_fold(id, fold),
        }
    }

    fn plan_ident(&self, id: Id, name: &Name) -> Planned {
        let resolved = self.checked.names.get(&id).unwrap_or(name);
        if !matches!(self.checked.type_of(id), Type::Type(_)) {
            let root = Root::Variable { id, name: resolved.clone(), qualifiers: Vec::new() };
            return Ok(Node::Attribute(Box::new(Attribute { root, test_only: None })));
        }
        let name = resolved.trim_start_matches('.');
        match global_type(name) {
            Some(Type::Type(Some(t))) if !matches!(name, "duration" | "timestamp" | DEVICE) => {
                Ok(Node::Constant { id, value: Ok(Value::Type((&*t.name()).into())) })
            }
            // Also a variable of a fold that holds a type, which upstream looks up as a type.
            _ => Err(EvalFailure::error(format!("reference to undefined type: {name}"))),
        }
    }

    fn plan_call(&self, id: Id, call: &Call) -> Planned {
        let mut args =
            call.target.iter().chain(&call.args).map(|arg| self.plan(arg)).collect::<Result<Vec<_>, _>>()?;
        match &*call.function {
            "_&&_" => return Ok(Node::Logic { id, is_or: false, terms: args }),
            "_||_" => return Ok(Node::Logic { id, is_or: true, terms: args }),
            "_==_" => return Ok(Node::Equal { id, negated: false, args }),
            "_!=_" => return Ok(Node::Equal { id, negated: true, args }),
            "_?_:_" => return conditional(id, args),
            "_[_]" => return index(id, args, false),
            "_[?_]" | "_?._" => return index(id, args, true),
            "or" | "orValue" if args.len() == 2 => {
                return Ok(Node::Or { id, unwraps: &*call.function == "orValue", args });
            }
            _ => {}
        }
        let overloads = self.checked.overloads.get(&id).map_or(&[][..], Vec::as_slice);
        let only = (overloads.len() == 1).then(|| overloads[0]);
        if only.is_some_and(|overload| overload.id == "in_list")
            && let Some(Value::List(list)) = args[1].constant()
            && let Some(set) = membership(list)?
        {
            let arg = Box::new(args.swap_remove(0));
            return Ok(match set {
                Some(set) => Node::InSet { id, arg, set },
                None => Node::Constant { id, value: Ok(Value::Bool(false)) },
            });
        }
        self.plan_function(id, &call.function, only, args)
    }

    #[allow(clippy::unused_self)]
    fn plan_function(
        &self,
        id: Id,
        function: &Name,
        only: Option<&'static crate::declarations::Overload>,
        args: Vec<Node>,
    ) -> Planned {
        let overload = only.map(|overload| overload.id);
        let mut in_order = args.len() > 2 || &**function == "format";
        let binding = if &**function == "@not_strictly_false" {
            None
        } else {
            let binding = bind(function, only)
                .ok_or_else(|| EvalFailure::error(format!("function '{function}' is not supported")))?;
            in_order |= matches!(&binding, Binding::Overloads(candidates) if candidates.len() > 1);
            Some(binding)
        };
        let mut call = CallNode { id, function: function.clone(), overload, args, in_order, binding };
        if is_conversion(function)
            && let [arg] = &call.args[..]
            && let Some(value) = arg.constant()
            && let Some(binding) = &call.binding
        {
            let value = binding.call(function, std::slice::from_ref(value), &mut Steps::default())?;
            return Ok(Node::Constant { id, value: Ok(value) });
        }
        if let Some(Value::String(pattern)) = call.args.get(1).and_then(Node::constant)
            && let Some(binding) = optimized(function, pattern, &mut self.steps.borrow_mut())
        {
            call.binding = Some(binding?);
            call.in_order = true;
            self.pattern_bytes.set(self.pattern_bytes.get() + pattern_bytes(pattern));
        }
        Ok(Node::Call(Box::new(call)))
    }

    fn plan_fold(&self, id: Id, fold: &Fold) -> Planned {
        Ok(Node::Fold(Box::new(FoldNode {
            id,
            accu_init: self.plan(&fold.accu_init)?,
            range: self.plan(&fold.range)?,
            condition: self.plan(&fold.condition)?,
            step: self.plan(&fold.step)?,
            result: self.plan(&fold.result)?,
            var: fold.var.clone(),
            var2: fold.var2.clone(),
            accu_var: fold.accu_var.clone(),
        })))
    }
}

fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

/// The attribute that a node is, or one of its value.
fn into_root(node: Node) -> Root {
    match node {
        Node::Attribute(attribute) => attribute.root,
        node => Root::Value { id: node.id(), node, qualifiers: Vec::new() },
    }
}

fn qualified(operand: Node, qualifier: Qualifier, test_only: Option<Id>) -> Node {
    let mut root = into_root(operand);
    root.qualify(Arc::new(qualifier));
    Node::Attribute(Box::new(Attribute { root, test_only }))
}

fn conditional(id: Id, args: Vec<Node>) -> Planned {
    let [condition, truthy, falsy]: [Node; 3] =
        args.try_into().map_err(|_| EvalFailure::error("unsupported expr"))?;
    let (truthy, falsy) = (Box::new(into_root(truthy)), Box::new(into_root(falsy)));
    let root = Root::Conditional { id, condition, truthy, falsy };
    Ok(Node::Attribute(Box::new(Attribute { root, test_only: None })))
}

fn index(id: Id, args: Vec<Node>, optional: bool) -> Planned {
    let [operand, index]: [Node; 2] = args.try_into().map_err(|_| EvalFailure::error("unsupported expr"))?;
    let key = match index {
        Node::Constant { value, .. } => {
            let value = value?;
            if !is_key(&value) {
                return Err(EvalFailure::error(format!("invalid qualifier type: {}", value.go_type())));
            }
            Key::Constant { value, test_only: false }
        }
        Node::Attribute(attribute) => Key::Attribute(*attribute),
        node => Key::Computed(node),
    };
    Ok(qualified(operand, Qualifier { id, key, optional }, None))
}

/// Whether a value may select from another one.
pub(crate) fn is_key(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_))
}

fn fold_list(id: Id, elements: Vec<(Node, bool)>) -> Node {
    let is_constant = elements.iter().all(|(node, optional)| node.constant().is_some() && !optional);
    if !is_constant {
        return Node::List { id, elements };
    }
    let items = elements.iter().filter_map(|(node, _)| node.constant().cloned()).collect();
    Node::Constant { id, value: Ok(Value::list(items)) }
}

fn fold_map(id: Id, entries: Vec<(Node, Node, bool)>) -> Planned {
    let constant = |(key, value, optional): &(Node, Node, bool)| {
        let entry = (key.constant()?.clone(), value.constant()?.clone());
        (!optional).then_some(entry)
    };
    match entries.iter().map(constant).collect::<Option<Vec<_>>>() {
        Some(constants) => Ok(Node::Constant { id, value: Ok(Value::Map(Map::new(constants)?)) }),
        None => Ok(Node::Map { id, entries }),
    }
}

/// The set of a constant list's elements. Numbers are in it as each type that has them.
/// Nothing if the list has other elements; and no set if it is empty.
#[allow(clippy::float_cmp, clippy::option_option)]
fn membership(list: &crate::value::List) -> Result<Option<Option<Map>>, EvalFailure> {
    let items = list.to_vec();
    if items.is_empty() {
        return Ok(Some(None));
    }
    let mut keys = Vec::new();
    for item in items {
        match &item {
            Value::Int(value) => {
                keys.push(Value::Double(*value as f64));
                keys.extend(u64::try_from(*value).ok().map(Value::Uint));
            }
            Value::Uint(value) => {
                keys.push(Value::Double(*value as f64));
                keys.extend(i64::try_from(*value).ok().map(Value::Int));
            }
            Value::Double(value) => {
                keys.extend(crate::numbers::as_int(&item).map(Value::Int));
                let uint = crate::numbers::double_to_uint(*value).ok();
                keys.extend(uint.filter(|uint| *uint as f64 == *value).map(Value::Uint));
            }
            Value::Bool(_) | Value::String(_) => {}
            _ => return Ok(None),
        }
        keys.push(item);
    }
    Ok(Some(Some(Map::new(keys.into_iter().map(|key| (key, Value::Bool(true))).collect())?)))
}
