//! Types of a parsed expression, and the errors of one that has none.

use std::collections::BTreeMap;

use crate::ast::{Call, Expr, ExprKind, Fold, Id, Name, Select, Struct};
use crate::declarations::{Function, Overload, function};
use crate::parser::Places;
use crate::source::{Errors, Source};
use crate::types::{MAX_SIZE, Substitution, Type, most_general};
use crate::value::Value;

/// The type of the variable `device`.
pub(crate) const DEVICE: &str = "kubernetes.DRADevice";

/// What the checker found out, by node.
#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) types: Vec<Option<Type>>,
    /// The overloads that may be called.
    pub(crate) overloads: BTreeMap<Id, Vec<&'static Overload>>,
    /// Identifiers, and dotted names, that are variables or types; by what name.
    pub(crate) names: BTreeMap<Id, Name>,
}

impl Checked {
    pub(crate) fn type_of(&self, id: Id) -> Type {
        self.types.get(id as usize).cloned().flatten().unwrap_or(Type::Error)
    }
}

/// Checks an expression. Errors are reported; then the result means nothing.
pub(crate) fn check(source: &Source, places: &Places, root: &mut Expr, errors: &mut Errors) -> Checked {
    let mut checker = Checker {
        source,
        places,
        errors,
        known: Substitution::default(),
        scopes: Vec::new(),
        checked: Checked { types: vec![None; places.len() + 1], ..Checked::default() },
    };
    checker.check(root);
    let Checker { known, mut checked, .. } = checker;
    for t in checked.types.iter_mut().flatten() {
        *t = known.finish(t);
    }
    checked
}

struct Checker<'a> {
    source: &'a Source,
    places: &'a Places,
    errors: &'a mut Errors,
    known: Substitution,
    /// Variables of folds, the innermost last.
    scopes: Vec<(Name, Type)>,
    checked: Checked,
}

impl Checker<'_> {
    fn report(&mut self, id: Id, message: String) {
        self.errors.report(self.places.location(self.source, id), message);
    }

    fn mismatch(&mut self, id: Id, expected: &Type, actual: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{actual}'"));
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.checked.type_of(expr.id)
    }

    fn check(&mut self, expr: &mut Expr) {
        let mut found = self.check_kind(expr);
        if found.size(MAX_SIZE) > MAX_SIZE {
            self.report(expr.id, "the type has too many parts".into());
            found = Type::Error;
        }
        self.checked.types[expr.id as usize] = Some(found);
    }

    fn check_kind(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        match &mut expr.kind {
            ExprKind::Unspecified => Type::Error,
            ExprKind::Literal(value) => literal_type(value),
            ExprKind::Ident(name) => {
                let name = name.clone();
                self.check_ident(id, &name)
            }
            ExprKind::Select(_) => self.check_select(expr),
            ExprKind::Call(_) => self.check_call(expr),
            ExprKind::List(elements) => {
                let mut joined = None;
                for element in elements {
                    let t = self.check_item(&mut element.value, element.optional);
                    joined = Some(self.join(joined, t));
                }
                Type::list(joined.unwrap_or_else(|| self.new_var()))
            }
            ExprKind::Map(entries) => {
                let mut joined: Option<(Type, Type)> = None;
                for entry in entries {
                    let (key, value) = joined.unzip();
                    let t = self.check_item(&mut entry.key, false);
                    let key = self.join(key, t);
                    let t = self.check_item(&mut entry.value, entry.optional);
                    joined = Some((key, self.join(value, t)));
                }
                let (key, value) = joined.unwrap_or_else(|| (self.new_var(), self.new_var()));
                Type::map(key, value)
            }
            ExprKind::Struct(message) => self.check_struct(id, message),
            ExprKind::Fold(fold) => self.check_fold(fold),
        }
    }

    fn new_var(&mut self) -> Type {
        Type::Var(self.known.fresh(1))
    }

    /// The type of an element, without its optional if it is one.
    fn check_item(&mut self, value: &mut Expr, optional: bool) -> Type {
        self.check(value);
        let t = self.type_of(value);
        if !optional {
            return t;
        }
        if let Some(inner) = t.unwrap_optional() {
            return inner.clone();
        }
        if !t.is_dyn() {
            self.mismatch(value.id, &Type::optional(t.clone()), &t);
        }
        t
    }

    /// The type of elements of two types. That it is not one type is an error of validation.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.known.is_assignable(&previous, &current) {
            return most_general(&previous, &current).clone();
        }
        Type::Dyn
    }

    fn local(&self, name: &str) -> Option<&Type> {
        self.scopes.iter().rev().find(|(known, _)| **known == *name).map(|(_, t)| t)
    }

    fn check_ident(&mut self, id: Id, name: &str) -> Type {
        match self.resolve(name, name) {
            Some((resolved, t)) => {
                self.checked.names.insert(id, resolved);
                t
            }
            None => self.undeclared(id, name),
        }
    }

    /// Finds a variable. `first` is the part before any dot, which a variable of a fold may hide.
    fn resolve(&self, name: &str, first: &str) -> Option<(Name, Type)> {
        let local = self.local(first.trim_start_matches('.'));
        if let Some(t) = local
            && !first.starts_with('.')
        {
            return (name == first).then(|| (name.into(), t.clone()));
        }
        let global = name.trim_start_matches('.');
        let t = global_type(global)?;
        Some((if local.is_some() { format!(".{global}").into() } else { global.into() }, t))
    }

    fn check_select(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let qualified = expr.as_qualified_name();
        let ExprKind::Select(select) = &mut expr.kind else { return Type::Error };
        if let Some(name) = qualified {
            let first = name.find('.').filter(|dot| *dot > 0).map_or(&*name, |dot| &name[..dot]);
            let first = if name.starts_with('.') { leading_part(&name) } else { first };
            if let Some((resolved, t)) = self.resolve(&name, first) {
                self.checked.names.insert(id, resolved.clone());
                expr.kind = ExprKind::Ident(resolved);
                return t;
            }
        }
        let Select { operand, field, test_only } = &mut **select;
        let t = self.check_field(id, operand, field, false);
        if *test_only { Type::Bool } else { self.known.apply(&t) }
    }

    fn check_field(&mut self, id: Id, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.known.apply(&self.type_of(operand));
        let (target, is_optional) = match operand_type.unwrap_optional() {
            Some(inner) => (inner.clone(), true),
            None => (operand_type, false),
        };
        let result = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Struct(name) => self.field_type(id, name, field).unwrap_or(Type::Error),
            Type::Var(_) | Type::Param(_) => {
                self.known.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            _ => {
                if !target.is_dyn_or_error() {
                    self.report(id, format!("type '{target}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(result) } else { result }
    }

    fn field_type(&mut self, id: Id, message: &str, field: &str) -> Option<Type> {
        if message != DEVICE {
            self.report(id, format!("unexpected failed resolution of '{message}'"));
            return None;
        }
        let found = device_field(field);
        if found.is_none() {
            self.report(id, format!("undefined field '{field}'"));
        }
        found
    }

    fn check_call(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let ExprKind::Call(call) = &mut expr.kind else { return Type::Error };
        let Call { function: name, target, args } = &mut **call;
        if &**name == "_?._" {
            return self.check_opt_select(id, args);
        }
        for arg in args.iter_mut() {
            self.check(arg);
        }
        let Some(receiver) = target else {
            let Some(found) = function(name) else { return self.undeclared(id, name) };
            *name = found.name.into();
            return self.resolve_overload(id, found, None, args);
        };
        if let Some(prefix) = receiver.as_qualified_name()
            && let Some(found) = function(&format!("{prefix}.{name}"))
        {
            *name = found.name.into();
            *target = None;
            return self.resolve_overload(id, found, None, args);
        }
        self.check(receiver);
        match function(name) {
            Some(found) => self.resolve_overload(id, found, Some(receiver), args),
            None => self.undeclared(id, name),
        }
    }

    fn check_opt_select(&mut self, id: Id, args: &mut [Expr]) -> Type {
        let [operand, field] = args else { return Type::Error };
        let ExprKind::Literal(Value::String(name)) = &field.kind else { return Type::Error };
        let name = name.clone();
        self.checked.types[field.id as usize] = Some(Type::String);
        let t = self.check_field(id, operand, &name, true);
        if let Some(found) = function("_?._") {
            self.checked.overloads.insert(id, found.overloads.iter().collect());
        }
        self.known.apply(&t)
    }

    fn resolve_overload(
        &mut self,
        id: Id,
        found: &'static Function,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Type {
        let is_member = target.is_some();
        let types: Vec<Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        if matches!(found.name, "_&&_" | "_||_") {
            return self.check_logic(id, found, args, &types);
        }
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in found.overloads.iter().filter(|overload| overload.is_member == is_member) {
            let first = self.known.fresh(overload.params.len());
            let fresh = |t: &Type| t.instantiate(&overload.params, first);
            let candidates: Vec<Type> = overload.args.iter().map(fresh).collect();
            if !self.known.is_assignable_list(&types, &candidates) {
                continue;
            }
            matching.push(overload);
            let t = self.known.apply(&fresh(&overload.result));
            result = Some(match result {
                None => t,
                Some(known) if known.is_dyn() || known == t => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let types: Vec<Type> = types.iter().map(|t| self.known.finish(t)).collect();
            self.no_overload(id, found.name, &types, is_member);
            return Type::Error;
        };
        self.checked.overloads.insert(id, matching);
        result
    }

    fn check_logic(&mut self, id: Id, found: &'static Function, args: &[Expr], types: &[Type]) -> Type {
        let mut is_bool = true;
        for (arg, t) in args.iter().zip(types) {
            if !self.known.is_assignable(t, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, t);
                is_bool = false;
            }
        }
        self.checked.overloads.insert(id, found.overloads.iter().collect());
        if is_bool { Type::Bool } else { Type::Error }
    }

    fn no_overload(&mut self, id: Id, name: &str, types: &[Type], is_member: bool) {
        let (target, args) = types.split_at(usize::from(is_member));
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let target = target.first().map_or_else(String::new, |t| format!("{t}."));
        let signature = format!("{target}({})", args.join(", "));
        self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
    }

    fn check_struct(&mut self, id: Id, message: &mut Struct) -> Type {
        let name = message.name.trim_start_matches('.').to_string();
        let found = if name.starts_with("google.protobuf.") {
            self.report(id, format!("messages of type '{name}' are not supported"));
            Type::Error
        } else {
            match global_type(&name).filter(|_| name != "device") {
                None => return self.undeclared(id, &message.name),
                Some(Type::Type(Some(inner))) if matches!(*inner, Type::Struct(_)) => (*inner).clone(),
                Some(Type::Type(Some(inner))) if *inner == Type::Null => {
                    self.report(id, "messages of type 'null_type' are not supported".into());
                    Type::Error
                }
                Some(_) => {
                    self.report(id, format!("'{name}' is not a message type"));
                    Type::Error
                }
            }
        };
        message.name = name.clone().into();
        for field in &mut message.fields {
            let value = self.check_item(&mut field.value, field.optional);
            let Type::Struct(message) = &found else { continue };
            let expected = self.field_type(field.id, message, &field.name).unwrap_or(Type::Error);
            if !self.known.is_assignable(&expected, &value) {
                let text = format!(
                    "expected type of field '{}' is '{expected}' but provided type is '{value}'",
                    field.name
                );
                self.report(field.id, text);
            }
        }
        found
    }

    fn check_fold(&mut self, fold: &mut Fold) -> Type {
        self.check(&mut fold.range);
        self.check(&mut fold.accu_init);
        let range = self.known.apply(&self.type_of(&fold.range));
        let accu = self.type_of(&fold.accu_init);
        let depth = self.scopes.len();
        self.scopes.push((fold.accu_var.clone(), accu.clone()));
        let takes_two = fold.var2.is_some();
        let (var, var2) = match &range {
            Type::List(element) if takes_two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Var(_) | Type::Param(_) => {
                self.known.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let text = format!(
                    "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, text);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((fold.var.clone(), var));
        if let Some(name) = &fold.var2 {
            self.scopes.push((name.clone(), var2));
        }
        self.check(&mut fold.condition);
        self.assert_type(&fold.condition, &Type::Bool);
        self.check(&mut fold.step);
        self.assert_type(&fold.step, &accu);
        self.scopes.truncate(depth + 1);
        self.check(&mut fold.result);
        self.scopes.truncate(depth);
        self.known.apply(&self.type_of(&fold.result))
    }

    fn assert_type(&mut self, expr: &Expr, expected: &Type) {
        let actual = self.type_of(expr);
        if !self.known.is_assignable(expected, &actual) {
            self.mismatch(expr.id, expected, &actual);
        }
    }
}

fn leading_part(name: &str) -> &str {
    name[1..].find('.').map_or(name, |dot| &name[..=dot])
}

fn literal_type(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::Bytes(_) => Type::Bytes,
        _ => Type::String,
    }
}

/// The fields of a device.
fn device_field(name: &str) -> Option<Type> {
    let by_domain = |value| Type::map(Type::String, Type::map(Type::String, value));
    Some(match name {
        "driver" => Type::String,
        "allowMultipleAllocations" => Type::Bool,
        "attributes" => by_domain(Type::Dyn),
        "capacity" => by_domain(Type::Struct("kubernetes.Quantity")),
        _ => return None,
    })
}

/// The type of a variable or of the name of a type, outside folds.
pub(crate) fn global_type(name: &str) -> Option<Type> {
    if name == "device" {
        return Some(Type::Struct(DEVICE));
    }
    Some(Type::of(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        // A type has this name; a value of it cannot be made, which is an error of planning.
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::Opaque("net.IP", None),
        "net.CIDR" => Type::Opaque("net.CIDR", None),
        DEVICE => Type::Struct(DEVICE),
        _ => return None,
    }))
}
