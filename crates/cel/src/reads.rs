//! What an expression reads of a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ast::{Expr, ExprKind};
use crate::value::Value;

/// The attributes and capacities that programs can read. A device that is made for them has no
/// others, which would take most of the time of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads(Option<Names>);

/// Identifiers by domain.
type Names = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

impl Reads {
    /// Nothing but the driver, and whether the device can be shared.
    pub const fn nothing() -> Self {
        Self(Some(Names::new()))
    }

    /// Everything: the device, or a map of it, is used as a whole.
    pub const fn everything() -> Self {
        Self(None)
    }

    /// Adds what another program reads.
    pub fn add(&mut self, other: &Self) {
        self.0 = self.0.take().zip(other.0.as_ref()).map(|(mut names, others)| {
            for (domain, ids) in others {
                names.entry(Arc::clone(domain)).or_default().extend(ids.iter().cloned());
            }
            names
        });
    }

    /// What an expression reads.
    pub(crate) fn of(root: &Expr) -> Self {
        let mut names = Names::new();
        Self(visit(root, &mut names).map(|()| names))
    }

    /// Whether an attribute or capacity of this name is read. A name without a domain has the
    /// driver's.
    pub fn has_name(&self, name: &str, driver: &str) -> bool {
        let (domain, id) = qualified(name, driver);
        self.has(domain, id)
    }

    /// The domain and the name to read an attribute or capacity by, if it is read.
    pub(crate) fn names_of(&self, name: &str, driver: &str) -> Option<(Arc<str>, Arc<str>)> {
        let (domain, id) = qualified(name, driver);
        let Some(names) = &self.0 else { return Some((domain.into(), id.into())) };
        let (domain, ids) = names.get_key_value(domain)?;
        Some((Arc::clone(domain), Arc::clone(ids.get(id)?)))
    }

    pub(crate) fn has(&self, domain: &str, id: &str) -> bool {
        let Some(names) = &self.0 else { return true };
        names.get(domain).is_some_and(|ids| ids.contains(id))
    }
}

/// Notes the names below an expression; `None` if it uses the device in another way.
fn visit(expr: &Expr, names: &mut Names) -> Option<()> {
    if let Some((domain, id)) = entry(expr) {
        names.entry(domain.into()).or_default().insert(id.into());
        return Some(());
    }
    if let Some((device, "driver" | "allowMultipleAllocations")) = member(expr)
        && is_device(device)
    {
        return Some(());
    }
    let is_of_device = |name: &str| name.trim_start_matches('.').split('.').next() == Some("device");
    if expr.as_ident().is_some_and(|name| is_of_device(name)) {
        return None;
    }
    expr.children().into_iter().try_for_each(|child| visit(child, names))
}

/// The domain and the identifier in `device.attributes["domain"].id`, however it is written.
fn entry(expr: &Expr) -> Option<(&str, &str)> {
    let (values, id) = member(expr)?;
    let (values, domain) = member(values)?;
    let (device, field) = member(values)?;
    (is_device(device) && matches!(field, "attributes" | "capacity")).then_some((domain, id))
}

fn is_device(expr: &Expr) -> bool {
    expr.as_ident().is_some_and(|name| &**name == "device")
}

/// A value and the constant name of its field or entry, which may be optional.
fn member(expr: &Expr) -> Option<(&Expr, &str)> {
    match &expr.kind {
        ExprKind::Select(select) => Some((&select.operand, &select.field)),
        ExprKind::Call(call) if matches!(&*call.function, "_[_]" | "_[?_]" | "_?._") => {
            match (&call.target, &call.args[..]) {
                (None, [value, Expr { kind: ExprKind::Literal(Value::String(name)), .. }]) => {
                    Some((value, name))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The domain and the name of an attribute or capacity.
fn qualified<'a>(name: &'a str, driver: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    fn reads(expression: &str) -> Option<Vec<String>> {
        let names = Program::compile(expression).unwrap().reads().0.clone()?;
        let name = |domain: &Arc<str>, id: &Arc<str>| format!("{domain}/{id}");
        Some(names.iter().flat_map(|(domain, ids)| ids.iter().map(|id| name(domain, id))).collect())
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        let cases = [
            ("true", vec![]),
            (r#"device.driver == "a" || device.allowMultipleAllocations"#, vec![]),
            (r#"device.attributes["a"].x == 1"#, vec!["a/x"]),
            (r#"device.attributes.a.x == device.attributes["a"]["y"]"#, vec!["a/x", "a/y"]),
            (
                r#"has(device.attributes["a"].x) && device.capacity["b"].m.isGreaterThan(quantity("1"))"#,
                vec!["a/x", "b/m"],
            ),
            (r#"device.attributes[?"a"].?x.orValue(1) == 1"#, vec!["a/x"]),
            (r#"["x"].exists(it, it == device.attributes["a"].y)"#, vec!["a/y"]),
        ];
        for (expression, expected) in cases {
            assert_eq!(reads(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn other_uses_of_a_device_read_everything() {
        let cases = [
            r"device == device",
            r#""a" in device.attributes"#,
            r#"device.attributes["a"].exists(id, id == "x")"#,
            r#"cel.bind(a, device.attributes["a"], a.x == 1)"#,
            r"device.attributes[device.driver].x == 1",
            r"size(device.capacity) == 1",
            r#".device.attributes["a"].x == 1"#,
        ];
        for expression in cases {
            assert_eq!(reads(expression), None, "{expression}");
        }
    }

    #[test]
    fn reads_add_up() {
        let mut all = Reads::nothing();
        for (expression, expected) in
            [(r#"device.attributes["a"].x == 1"#, "a/x"), (r#"device.attributes["a"].y == 1"#, "a/y")]
        {
            all.add(Program::compile(expression).unwrap().reads());
            assert!(all.has("a", &expected[2..]));
        }
        assert!(!all.has("b", "x"));
        all.add(&Reads::everything());
        assert_eq!(all, Reads::everything());
    }
}
