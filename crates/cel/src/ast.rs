//! The syntax tree of an expression after macro expansion.

use std::sync::Arc;

use crate::value::Value;

/// The identity of a node. Costs and places are kept by it.
pub(crate) type Id = u32;
/// The name of a variable, field or function.
pub(crate) type Name = Arc<str>;

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// Stands where an error was reported.
    Unspecified,
    Literal(Value),
    Ident(Name),
    Select(Box<Select>),
    Call(Box<Call>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    Struct(Box<Struct>),
    Fold(Box<Fold>),
}

/// A field of a value, or with `test_only` whether it has that field.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) operand: Expr,
    pub(crate) field: Name,
    pub(crate) test_only: bool,
}

/// A call, of a member if there is a target.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: Name,
    pub(crate) target: Option<Expr>,
    pub(crate) args: Vec<Expr>,
}

/// An element of a list literal; an optional one may be absent.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// An entry of a map literal; an optional one may be absent.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A message literal.
#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) name: Name,
    pub(crate) fields: Vec<Field>,
}

/// A field of a message literal.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) id: Id,
    pub(crate) name: Name,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// What the macros over lists and maps expand to (cel-go's comprehension).
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    pub(crate) var: Name,
    /// With a second variable, the first is the index or key and this is the value.
    pub(crate) var2: Option<Name>,
    pub(crate) accu_var: Name,
    pub(crate) accu_init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Expr {
    /// The name, if this is an identifier.
    pub(crate) fn as_ident(&self) -> Option<&Name> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    /// The dotted name that this may be, such as `a.b.c`.
    pub(crate) fn as_qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select(select) if !select.test_only => {
                Some(format!("{}.{}", select.operand.as_qualified_name()?, select.field))
            }
            _ => None,
        }
    }

    /// The direct children, in the order in which cel-go visits them.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => Vec::new(),
            ExprKind::Select(select) => vec![&select.operand],
            ExprKind::Call(call) => call.target.iter().chain(&call.args).collect(),
            ExprKind::List(elements) => elements.iter().map(|element| &element.value).collect(),
            ExprKind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
            ExprKind::Struct(message) => message.fields.iter().map(|field| &field.value).collect(),
            ExprKind::Fold(fold) => {
                vec![&fold.range, &fold.accu_init, &fold.condition, &fold.step, &fold.result]
            }
        }
    }
}
