//! Evaluation of a planned expression on one device.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::ast::{Id, Name};
use crate::cost::{self, Costs, Seen};
use crate::eval_failure::{EvalFailure, Steps};
use crate::map::Map;
use crate::plan::{Attribute, CallNode, FoldNode, Key, Node, Qualifier, Root, is_key};
use crate::value::{List, MAX_NESTING, Outcome, Value};

/// Evaluates with these steps; also the cost so far, however it ends.
pub(crate) fn evaluate(
    node: &Node,
    last: Id,
    device: &Value,
    limit: u64,
    steps: Steps,
) -> (Outcome, u64, Steps) {
    let mut evaluation =
        Evaluation { device, costs: Costs::new(limit, last), steps, frames: Vec::new(), current: None };
    let outcome = evaluation.exec(node);
    (outcome, evaluation.costs.total, evaluation.steps)
}

struct Evaluation<'a> {
    device: &'a Value,
    costs: Costs,
    steps: Steps,
    /// Folds that run; each knows the one around it.
    frames: Vec<Frame<'a>>,
    current: Option<usize>,
}

/// The variables of a fold that runs.
struct Frame<'a> {
    fold: &'a FoldNode,
    parent: Option<usize>,
    /// Not known before it is read, or a step has one.
    accu: Option<Outcome>,
    vars: (Value, Value),
    /// The result does not see the variables.
    is_over: bool,
    grows: bool,
}

fn seen(outcome: &Outcome) -> Seen {
    outcome.as_ref().ok().cloned()
}

impl<'a> Evaluation<'a> {
    fn exec(&mut self, node: &'a Node) -> Outcome {
        // Constants and parts of lists cost nothing.
        self.steps.take(1)?;
        let outcome = self.exec_kind(node);
        if matches!(outcome, Err(EvalFailure::Halt(_))) {
            return outcome;
        }
        self.observe(node, &outcome)?;
        outcome
    }

    fn exec_kind(&mut self, node: &'a Node) -> Outcome {
        match node {
            Node::Constant { value, .. } => value.clone(),
            Node::Attribute(attribute) => {
                let outcome = self.resolve(&attribute.root);
                match outcome {
                    Ok(Value::Optional(value)) if attribute.test_only.is_some() => {
                        Ok(Value::Bool(value.is_some()))
                    }
                    outcome => outcome,
                }
            }
            Node::Logic { is_or, terms, .. } => self.exec_logic(*is_or, terms),
            Node::Equal { negated, args, .. } => self.exec_equal(*negated, args),
            Node::Call(call) => self.exec_call(call),
            Node::List { elements, .. } => self.exec_list(elements),
            Node::Map { entries, .. } => self.exec_map(entries),
            Node::Struct { fields, .. } => {
                for field in fields {
                    self.exec(field)?;
                }
                Err(EvalFailure::error("unknown type 'kubernetes.DRADevice'"))
            }
            Node::Fold(fold) => self.exec_fold(fold),
            Node::Or { unwraps, args, .. } => match self.exec(&args[0])? {
                Value::Optional(Some(value)) if *unwraps => Ok((*value).clone()),
                Value::Optional(None) => self.exec(&args[1]),
                value @ Value::Optional(_) => Ok(value),
                _ => Err(EvalFailure::no_such_overload()),
            },
            Node::InSet { arg, set, .. } => {
                let value = self.exec(arg)?;
                Ok(Value::Bool(set.has_exactly(&value)?))
            }
        }
    }

    /// What upstream's observer of costs does after a step.
    fn observe(&mut self, node: &'a Node, outcome: &Outcome) -> Result<(), EvalFailure> {
        match node {
            Node::Constant { .. } | Node::Or { .. } | Node::InSet { .. } => {}
            Node::Attribute(attribute) => self.observe_attribute(attribute),
            Node::Logic { terms, .. } => terms.iter().for_each(|term| self.costs.drop_value(term.id())),
            Node::Equal { negated, args, .. } => {
                let (function, overload) = if *negated { ("_!=_", "not_equals") } else { ("_==_", "equals") };
                self.observe_call(function, Some(overload), args, outcome)?;
            }
            Node::Call(call) => self.observe_call(&call.function, call.overload, &call.args, outcome)?,
            Node::List { elements, .. } => {
                self.costs.take(elements.iter().map(|(element, _)| element.id()));
                self.costs.add(10);
            }
            Node::Map { entries, .. } => {
                let ids: Vec<Id> =
                    entries.iter().flat_map(|(key, value, _)| [key.id(), value.id()]).collect();
                self.costs.take(ids.into_iter());
                self.costs.add(30);
            }
            Node::Struct { fields, .. } => {
                self.costs.take(fields.iter().map(Node::id));
                self.costs.add(40);
            }
            Node::Fold(fold) => self.costs.drop_value(fold.range.id()),
        }
        self.costs.push(seen(outcome), node.id())
    }

    fn observe_attribute(&mut self, attribute: &Attribute) {
        match &attribute.root {
            Root::Conditional { condition, truthy, falsy, .. } => {
                self.costs.drop_value(falsy.id());
                self.costs.drop_value(truthy.id());
                self.costs.drop_value(condition.id());
                if attribute.test_only.is_some() {
                    self.costs.add(1_u64.wrapping_neg());
                }
            }
            root => {
                self.costs.drop_value(root.id());
                self.costs.add(u64::from(attribute.test_only.is_none()));
            }
        }
    }

    fn observe_call(
        &mut self,
        function: &str,
        overload: Option<&str>,
        args: &[Node],
        outcome: &Outcome,
    ) -> Result<(), EvalFailure> {
        if let Some(args) = self.costs.take(args.iter().map(Node::id)) {
            let cost = cost::call(function, overload, &args, outcome.as_ref().ok())?;
            self.costs.add(cost);
        }
        Ok(())
    }

    fn exec_logic(&mut self, is_or: bool, terms: &'a [Node]) -> Outcome {
        let mut fault = None;
        for term in terms {
            match self.exec(term) {
                Ok(Value::Bool(value)) if value == is_or => return Ok(Value::Bool(is_or)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => fault = fault.or_else(|| Some(EvalFailure::no_such_overload())),
                Err(halt @ EvalFailure::Halt(_)) => return Err(halt),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        fault.map_or(Ok(Value::Bool(!is_or)), Err)
    }

    /// Evaluates all, even after an error; then reports the first.
    fn exec_all(&mut self, nodes: &'a [Node]) -> Result<SmallVec<[Value; 3]>, EvalFailure> {
        let mut outcomes: SmallVec<[_; 3]> = SmallVec::new();
        for node in nodes {
            match self.exec(node) {
                Err(halt @ EvalFailure::Halt(_)) => return Err(halt),
                outcome => outcomes.push(outcome),
            }
        }
        outcomes.into_iter().collect()
    }

    fn exec_equal(&mut self, negated: bool, args: &'a [Node]) -> Outcome {
        let values = self.exec_all(args)?;
        match values[0].equal(&values[1], &mut self.steps) {
            Ok(equal) => Ok(Value::Bool(equal != negated)),
            // What cannot be compared is different.
            Err(EvalFailure::Error(_)) if negated => Ok(Value::Bool(true)),
            Err(fault) => Err(fault),
        }
    }

    fn exec_call(&mut self, call: &'a CallNode) -> Outcome {
        let Some(binding) = &call.binding else {
            return match self.exec(&call.args[0]) {
                Ok(value @ Value::Bool(_)) => Ok(value),
                Err(halt @ EvalFailure::Halt(_)) => Err(halt),
                _ => Ok(Value::Bool(true)),
            };
        };
        let args = if call.in_order {
            call.args.iter().map(|arg| self.exec(arg)).collect::<Result<_, _>>()?
        } else {
            self.exec_all(&call.args)?
        };
        binding.call(&call.function, &args, &mut self.steps)
    }

    fn exec_list(&mut self, elements: &'a [(Node, bool)]) -> Outcome {
        let mut items = Vec::with_capacity(elements.len());
        for (node, optional) in elements {
            let value = self.exec(node)?;
            match value {
                Value::Optional(value) if *optional => items.extend(value.map(Arc::unwrap_or_clone)),
                other if *optional => {
                    let text = "cannot initialize optional list element from non-optional value";
                    return Err(EvalFailure::error(format!("{text} {}", other.display())));
                }
                other => items.push(other),
            }
        }
        nested(Value::list(items))
    }

    fn exec_map(&mut self, entries: &'a [(Node, Node, bool)]) -> Outcome {
        let mut map: Vec<(Value, Value)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.exec(key)?;
            let value = self.exec(value)?;
            match value {
                Value::Optional(Some(value)) if *optional => map.push((key, Arc::unwrap_or_clone(value))),
                Value::Optional(None) if *optional => {
                    let last = Map::new(vec![(key, Value::Null)])?;
                    map.retain(|(key, _)| !last.has_exactly(key).unwrap_or(false));
                }
                other if *optional => {
                    let text = format!("cannot initialize optional entry '{}'", key.display());
                    return Err(EvalFailure::error(format!(
                        "{text} from non-optional value {}",
                        other.display()
                    )));
                }
                other => map.push((key, other)),
            }
        }
        nested(Value::Map(Map::new(map)?))
    }

    fn resolve(&mut self, root: &'a Root) -> Outcome {
        match root {
            Root::Variable { name, qualifiers, .. } => {
                let value = self.variable(name)?;
                self.select(value, qualifiers)
            }
            Root::Value { node, qualifiers, .. } => {
                let value = self.exec(node)?;
                self.select(value, qualifiers)
            }
            Root::Conditional { condition, truthy, falsy, .. } => match self.exec(condition)? {
                Value::Bool(true) => self.resolve(truthy),
                Value::Bool(false) => self.resolve(falsy),
                _ => Err(EvalFailure::no_such_overload()),
            },
        }
    }

    fn variable(&mut self, name: &Name) -> Outcome {
        let mut at = if name.starts_with('.') { None } else { self.current };
        while let Some(index) = at {
            let frame = &self.frames[index];
            if *name == frame.fold.accu_var {
                return self.accumulated(index);
            }
            if !frame.is_over {
                if *name == frame.fold.var {
                    return Ok(frame.vars.0.clone());
                }
                if Some(name) == frame.fold.var2.as_ref() {
                    return Ok(frame.vars.1.clone());
                }
            }
            at = frame.parent;
        }
        if name.trim_start_matches('.') == "device" {
            return Ok(self.device.clone());
        }
        Err(EvalFailure::error(format!("no such attribute(s): {name}")))
    }

    /// The accumulator of a fold, which gets its first value when it is first read.
    fn accumulated(&mut self, index: usize) -> Outcome {
        if let Some(accu) = &self.frames[index].accu {
            return accu.clone();
        }
        // While its first value is computed, it is what the fold around it has by this name.
        self.frames[index].accu = Some(Err(EvalFailure::error("accumulator without a value")));
        let inner = std::mem::replace(&mut self.current, self.frames[index].parent);
        let mut init = self.exec(&self.frames[index].fold.accu_init);
        self.current = inner;
        match &init {
            Err(EvalFailure::Halt(_)) => return init,
            Ok(Value::List(list)) if list.len() == 0 => {
                init = Ok(Value::List(List::growing()));
                self.frames[index].grows = true;
            }
            Ok(Value::Map(map)) if map.len() == 0 => {
                init = Ok(Value::Map(Map::growing()));
                self.frames[index].grows = true;
            }
            _ => {}
        }
        self.frames[index].accu = Some(init.clone());
        init
    }

    fn select(&mut self, value: Value, qualifiers: &'a [Arc<Qualifier>]) -> Outcome {
        let (mut value, mut is_optional) = match value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (Arc::unwrap_or_clone(inner), true),
            value => (value, false),
        };
        for qualifier in qualifiers {
            is_optional |= qualifier.optional;
            if !is_optional {
                value = self.qualify(qualifier, &value)?;
                continue;
            }
            match self.qualify_if_present(qualifier, &value)? {
                Some(found) => value = found,
                None => return Ok(Value::Optional(None)),
            }
        }
        if is_optional { crate::functions::some(&value) } else { Ok(value) }
    }

    fn qualify(&mut self, qualifier: &'a Qualifier, value: &Value) -> Outcome {
        let outcome = match &qualifier.key {
            Key::Constant { value: key, test_only: true } => {
                lookup(value, key, true).map(|found| Value::Bool(found.is_some()))
            }
            key => self.key(key).and_then(|key| required(lookup(value, &key, false)?)),
        };
        if matches!(outcome, Err(EvalFailure::Halt(_))) {
            return outcome;
        }
        self.observe_qualifier(qualifier, seen(&outcome))?;
        outcome
    }

    fn qualify_if_present(
        &mut self,
        qualifier: &'a Qualifier,
        value: &Value,
    ) -> Result<Option<Value>, EvalFailure> {
        let key = self.key(&qualifier.key)?;
        let found = lookup(value, &key, true)?;
        if found.is_some() {
            self.observe_qualifier(qualifier, found.clone())?;
        }
        Ok(found)
    }

    fn observe_qualifier(&mut self, qualifier: &Qualifier, value: Seen) -> Result<(), EvalFailure> {
        if matches!(qualifier.key, Key::Computed(_)) {
            self.costs.drop_value(qualifier.id);
        }
        self.costs.add(1);
        self.costs.push(value, qualifier.id)
    }

    fn key(&mut self, key: &'a Key) -> Outcome {
        let value = match key {
            Key::Constant { value, .. } => return Ok(value.clone()),
            Key::Attribute(attribute) => self.resolve(&attribute.root)?,
            Key::Computed(node) => self.exec(node)?,
        };
        if is_key(&value) {
            return Ok(value);
        }
        let found = if self.is_device(key) { "map[string]interface {}" } else { value.go_type() };
        Err(EvalFailure::error(format!("invalid qualifier type: {found}")))
    }

    /// Whether this is the variable `device`, which is another type of map upstream.
    fn is_device(&self, key: &Key) -> bool {
        let Key::Attribute(Attribute { root: Root::Variable { name, qualifiers, .. }, .. }) = key else {
            return false;
        };
        let is_local = |frame: &Frame<'_>| {
            let fold = frame.fold;
            [Some(&fold.var), fold.var2.as_ref(), Some(&fold.accu_var)].contains(&Some(name))
        };
        name.trim_start_matches('.') == "device" && qualifiers.is_empty() && !self.frames.iter().any(is_local)
    }

    fn exec_fold(&mut self, fold: &'a FoldNode) -> Outcome {
        let range = self.exec(&fold.range)?;
        let items = items(&range, fold.var2.is_some())?;
        self.steps.take(items.len() as u64)?;
        let index = self.frames.len();
        self.frames.push(Frame {
            fold,
            parent: self.current,
            accu: None,
            vars: (Value::Null, Value::Null),
            is_over: false,
            grows: false,
        });
        self.current = Some(index);
        let outcome = self.run_fold(index, items);
        self.current = self.frames[index].parent;
        self.frames.truncate(index);
        outcome
    }

    fn run_fold(&mut self, index: usize, items: Vec<(Value, Value)>) -> Outcome {
        let fold = self.frames[index].fold;
        for vars in items {
            self.frames[index].vars = vars;
            match self.exec(&fold.condition) {
                Ok(Value::Bool(false)) => break,
                Err(halt @ EvalFailure::Halt(_)) => return Err(halt),
                _ => {}
            }
            let step = self.exec(&fold.step);
            if matches!(step, Err(EvalFailure::Halt(_))) {
                return step;
            }
            self.frames[index].accu = Some(step);
        }
        self.frames[index].is_over = true;
        let result = self.exec(&fold.result);
        match result {
            Ok(Value::List(list)) if self.frames[index].grows => Ok(Value::List(list.settled())),
            Ok(Value::Map(map)) if self.frames[index].grows => Ok(Value::Map(map.settled())),
            result => result,
        }
    }
}

/// A list or map that was just made, unless it nests too deeply.
fn nested(value: Value) -> Outcome {
    if value.nesting() > MAX_NESTING { Err(EvalFailure::halt("value nested too deeply")) } else { Ok(value) }
}

/// What a fold walks over: elements or keys; with two variables, indices or keys and their values.
fn items(range: &Value, takes_two: bool) -> Result<Vec<(Value, Value)>, EvalFailure> {
    match range {
        Value::List(list) if takes_two => Ok(list
            .to_vec()
            .into_iter()
            .enumerate()
            .map(|(i, value)| (Value::Int(i as i64), value))
            .collect()),
        Value::List(list) => Ok(list.to_vec().into_iter().map(|value| (value, Value::Null)).collect()),
        Value::Map(map) => Ok(map.entries()),
        other if takes_two => {
            Err(EvalFailure::error(format!("unsupported comprehension range type: {}", other.go_type())))
        }
        other => Err(EvalFailure::error(format!("got '{}', expected iterable type", other.go_type()))),
    }
}

/// What a lookup found that does not return without a value.
fn required(found: Option<Value>) -> Outcome {
    found.ok_or_else(|| EvalFailure::error("no such key"))
}

/// Selects from a value.
fn lookup(value: &Value, key: &Value, if_present: bool) -> Result<Option<Value>, EvalFailure> {
    let missing = |what: &str| {
        if if_present { Ok(None) } else { Err(EvalFailure::error(format!("{what}: {}", key.display()))) }
    };
    match value {
        Value::Map(map) => match map.find(key)? {
            Some(found) => Ok(Some(found)),
            None => missing("no such key"),
        },
        Value::List(list) => {
            let index = list_index(key)?;
            match usize::try_from(index).ok().and_then(|index| list.get(index)) {
                Some(found) => Ok(Some(found)),
                None => missing("index out of bounds"),
            }
        }
        _ => missing("no such key"),
    }
}

fn list_index(key: &Value) -> Result<i64, EvalFailure> {
    if let Some(index) = crate::numbers::as_int(key) {
        return Ok(index);
    }
    Err(EvalFailure::error(match key {
        Value::Double(_) | Value::Uint(_) => format!("unsupported index value {} in list", key.display()),
        _ => format!("unsupported index type '{}' in list", key.verbose_type()),
    }))
}
