//! The functions of the environment, read from `declarations.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::types::Type;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) is_member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// The parameters that the signature names.
    pub(crate) params: Vec<char>,
}

/// A function with its overloads in upstream's order.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

static FUNCTIONS: LazyLock<BTreeMap<&'static str, Function>> =
    LazyLock::new(|| read(include_str!("declarations.txt")));

/// Finds a function by its name, which may start with a dot.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name.strip_prefix('.').unwrap_or(name))
}

fn read(text: &'static str) -> BTreeMap<&'static str, Function> {
    let mut functions = BTreeMap::new();
    let mut current = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(overload) = line.strip_prefix(' ') {
            let function: &mut Function =
                functions.entry(current).or_insert(Function { name: current, overloads: Vec::new() });
            function.overloads.push(read_overload(overload));
        } else {
            current = line;
        }
    }
    functions
}

fn read_overload(line: &'static str) -> Overload {
    let (signature, result) = line.split_once("= ").expect("an overload has a result");
    let mut words = signature.split_whitespace();
    let id = words.next().expect("an overload has a name");
    let args: Vec<Type> = words.map(read_type).collect();
    let result = read_type(result);
    let mut params = Vec::new();
    args.iter().chain([&result]).for_each(|t| t.params(&mut params));
    let is_member = id.starts_with('.');
    Overload { id: id.trim_start_matches('.'), is_member, args, result, params }
}

fn read_type(text: &str) -> Type {
    let inner = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(element) = inner("list") {
        return Type::list(read_type(element));
    }
    if let Some(entry) = inner("map") {
        let (key, value) = entry.split_once(',').expect("a map has two parameters");
        return Type::map(read_type(key), read_type(value));
    }
    if let Some(value) = inner("optional") {
        return Type::optional(read_type(value));
    }
    if let Some(value) = inner("type") {
        return Type::of(read_type(value));
    }
    match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "string" => Type::String,
        "uint" => Type::Uint,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "Quantity" => Type::Struct("kubernetes.Quantity"),
        "Semver" => Type::Struct("kubernetes.Semver"),
        "URL" => Type::Struct("kubernetes.URL"),
        "NamedFormat" => Type::Struct("kubernetes.NamedFormat"),
        "IP" => Type::Opaque("net.IP", None),
        "CIDR" => Type::Opaque("net.CIDR", None),
        "Authorizer" => Type::Struct("kubernetes.authorization.Authorizer"),
        "PathCheck" => Type::Struct("kubernetes.authorization.PathCheck"),
        "GroupCheck" => Type::Struct("kubernetes.authorization.GroupCheck"),
        "ResourceCheck" => Type::Struct("kubernetes.authorization.ResourceCheck"),
        "Decision" => Type::Struct("kubernetes.authorization.Decision"),
        _ => Type::Param(text.chars().next().expect("a type has a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_is_read() {
        let overloads: usize = FUNCTIONS.values().map(|function| function.overloads.len()).sum();
        assert_eq!(
            overloads,
            include_str!("declarations.txt").lines().filter(|line| line.starts_with(' ')).count()
        );
        let add = function("_+_").unwrap();
        assert_eq!(add.overloads[6].args[0].to_string(), "list(A)");
    }
}
