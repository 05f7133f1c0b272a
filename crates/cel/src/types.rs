//! Types of expressions, and when a value of one may stand for another.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A type with more parts than this is not handled; expressions can double types.
pub(crate) const MAX_SIZE: u32 = 2_000;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Dyn,
    Error,
    Bool,
    Bytes,
    Double,
    Int,
    String,
    Uint,
    Null,
    Duration,
    Timestamp,
    List(Arc<Self>),
    Map(Arc<(Self, Self)>),
    /// The type of a type; `type` itself has no parameter.
    #[allow(clippy::enum_variant_names)]
    Type(Option<Arc<Self>>),
    /// A message type by its name.
    Struct(&'static str),
    /// A type of a library: its name and at most one parameter.
    Opaque(&'static str, Option<Arc<Self>>),
    /// A parameter of a declaration.
    Param(char),
    /// A type to be inferred.
    Var(u32),
}

pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL, Some(Arc::new(value)))
    }

    pub(crate) fn of(value: Self) -> Self {
        Self::Type(Some(Arc::new(value)))
    }

    /// The type inside an optional.
    pub(crate) fn unwrap_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(OPTIONAL, Some(inner)) => Some(inner),
            _ => None,
        }
    }

    fn parts(&self) -> Vec<&Self> {
        match self {
            Self::List(element) => vec![element],
            Self::Map(entry) => vec![&entry.0, &entry.1],
            Self::Type(Some(inner)) | Self::Opaque(_, Some(inner)) => vec![inner],
            _ => Vec::new(),
        }
    }

    /// The number of its parts, counted up to a limit.
    pub(crate) fn size(&self, limit: u32) -> u32 {
        let mut size = 1;
        for part in self.parts() {
            if size > limit {
                break;
            }
            size += part.size(limit - size.min(limit));
        }
        size
    }

    fn rebuild(&self, mut each: impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(element) => Self::list(each(element)),
            Self::Map(entry) => Self::map(each(&entry.0), each(&entry.1)),
            Self::Type(Some(inner)) => Self::of(each(inner)),
            Self::Opaque(name, Some(inner)) => Self::Opaque(name, Some(Arc::new(each(inner)))),
            _ => self.clone(),
        }
    }

    /// The name of its values' type at run time.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Dyn => "dyn".into(),
            Self::Error => "error".into(),
            Self::Bool => "bool".into(),
            Self::Bytes => "bytes".into(),
            Self::Double => "double".into(),
            Self::Int => "int".into(),
            Self::String => "string".into(),
            Self::Uint => "uint".into(),
            Self::Null => "null_type".into(),
            Self::Duration => "google.protobuf.Duration".into(),
            Self::Timestamp => "google.protobuf.Timestamp".into(),
            Self::List(_) => "list".into(),
            Self::Map(_) => "map".into(),
            Self::Type(_) => "type".into(),
            Self::Struct(name) | Self::Opaque(name, _) => (*name).into(),
            Self::Param(name) => name.to_string().into(),
            Self::Var(id) => format!("_var{id}").into(),
        }
    }

    /// Its name where cel-go prints a type with `%v`.
    pub(crate) fn verbose(&self) -> String {
        let parts: Vec<String> = self.parts().into_iter().map(Self::verbose).collect();
        match self {
            Self::Param(_) | Self::Var(_) => format!("<{}>", self.name()),
            _ if parts.is_empty() => self.name().into_owned(),
            _ => format!("{}({})", self.name(), parts.join(", ")),
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Parameters of declarations that this names.
    pub(crate) fn params(&self, found: &mut Vec<char>) {
        if let Self::Param(name) = self
            && !found.contains(name)
        {
            found.push(*name);
        }
        self.parts().into_iter().for_each(|part| part.params(found));
    }

    /// This type with parameters replaced.
    pub(crate) fn instantiate(&self, params: &[char], first: u32) -> Self {
        match self {
            Self::Param(name) => match params.iter().position(|param| param == name) {
                Some(index) => Self::Var(first + index as u32),
                None => self.clone(),
            },
            _ => self.rebuild(|part| part.instantiate(params, first)),
        }
    }

    /// As equal, where names of parameters do not count.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let (parts, others) = (self.parts(), other.parts());
        let same_kind = match (self, other) {
            (Self::Param(_) | Self::Var(_), Self::Param(_) | Self::Var(_)) => true,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self.name() == other.name(),
        };
        same_kind
            && parts.len() == others.len()
            && parts.iter().zip(others).all(|(part, other)| part.is_equivalent(other))
    }
}

/// The form in messages of the checker.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration => f.write_str("duration"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            _ => {
                let parts: Vec<String> = self.parts().into_iter().map(ToString::to_string).collect();
                f.write_str(&self.name())?;
                if parts.is_empty() { Ok(()) } else { write!(f, "({})", parts.join(", ")) }
            }
        }
    }
}

/// What is known of the types to be inferred.
#[derive(Default)]
pub(crate) struct Substitution {
    bound: Vec<Option<Type>>,
    /// Changes since the start of an attempt, so that a failed one leaves nothing.
    trail: Vec<(u32, Option<Type>)>,
}

impl Substitution {
    pub(crate) fn fresh(&mut self, count: usize) -> u32 {
        let first = self.bound.len() as u32;
        self.bound.resize(self.bound.len() + count, None);
        first
    }

    fn find(&self, t: &Type) -> Option<&Type> {
        match t {
            Type::Var(id) => self.bound.get(*id as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, t: &Type, to: Type) {
        if let Type::Var(id) = t {
            let old = self.bound[*id as usize].replace(to);
            self.trail.push((*id, old));
        }
    }

    /// Whether each type of `to` may be assigned the one of `from`; only then is something learned.
    pub(crate) fn is_assignable_list(&mut self, to: &[Type], from: &[Type]) -> bool {
        self.trail.clear();
        let is_assignable = self.assign_all(&to.iter().collect::<Vec<_>>(), &from.iter().collect::<Vec<_>>());
        if !is_assignable {
            while let Some((id, old)) = self.trail.pop() {
                self.bound[id as usize] = old;
            }
        }
        is_assignable
    }

    pub(crate) fn is_assignable(&mut self, to: &Type, from: &Type) -> bool {
        self.is_assignable_list(std::slice::from_ref(to), std::slice::from_ref(from))
    }

    fn assign_all(&mut self, to: &[&Type], from: &[&Type]) -> bool {
        to.len() == from.len() && to.iter().zip(from).all(|(to, from)| self.assign(to, from))
    }

    fn assign(&mut self, t1: &Type, t2: &Type) -> bool {
        if is_param(t2) {
            let (valid, bound) = self.substitutes(t1, t2);
            if valid || bound {
                return valid;
            }
        }
        if is_param(t1) {
            return self.substitutes(t2, t1).0;
        }
        if t1.is_dyn_or_error() || t2.is_dyn_or_error() {
            return true;
        }
        match (t1, t2) {
            (Type::Null, _) => is_nullable(t2),
            (_, Type::Null) => is_nullable(t1),
            (Type::Type(_), _) => matches!(t2, Type::Type(_)),
            (Type::List(_) | Type::Map(_), _) | (Type::Opaque(..), Type::Opaque(..)) => {
                let same = std::mem::discriminant(t1) == std::mem::discriminant(t2) && t1.name() == t2.name();
                same && self.assign_all(&t1.parts(), &t2.parts())
            }
            _ => t1 == t2,
        }
    }

    /// Whether `t1` may be what `t2`, a parameter, stands for; and whether that was known already.
    fn substitutes(&mut self, t1: &Type, t2: &Type) -> (bool, bool) {
        if t1 == t2 {
            return (true, true);
        }
        if let Some(known) = self.find(t2).cloned() {
            if *t1 == known {
                return (true, true);
            }
            if self.assign(t1, &known) {
                let general = most_general(t1, &known).clone();
                if self.is_free_of(t2, &general) {
                    self.bind(t2, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_free_of(t2, t1) {
            self.bind(t2, t1.clone());
            return (true, false);
        }
        (false, false)
    }

    fn is_free_of(&self, t: &Type, within: &Type) -> bool {
        if t == within {
            return false;
        }
        match within {
            Type::Param(_) | Type::Var(_) => self.find(within).is_none_or(|known| self.is_free_of(t, known)),
            _ => within.parts().into_iter().all(|part| self.is_free_of(t, part)),
        }
    }

    /// The type as far as it is known.
    pub(crate) fn apply(&self, t: &Type) -> Type {
        match self.find(t) {
            Some(known) => self.apply(&known.clone()),
            None => t.rebuild(|part| self.apply(part)),
        }
    }

    /// The type, where what is not known is `dyn`.
    pub(crate) fn finish(&self, t: &Type) -> Type {
        match self.find(t) {
            Some(known) => self.finish(&known.clone()),
            None if is_param(t) => Type::Dyn,
            None => t.rebuild(|part| self.finish(part)),
        }
    }
}

fn is_param(t: &Type) -> bool {
    matches!(t, Type::Param(_) | Type::Var(_))
}

fn is_nullable(t: &Type) -> bool {
    matches!(t, Type::Null | Type::Opaque(..) | Type::Struct(_) | Type::Duration | Type::Timestamp)
}

pub(crate) fn most_general<'a>(t1: &'a Type, t2: &'a Type) -> &'a Type {
    if is_less_specific(t1, t2) { t1 } else { t2 }
}

fn is_less_specific(t1: &Type, t2: &Type) -> bool {
    if t1.is_dyn() || is_param(t1) {
        return true;
    }
    if t2.is_dyn() || is_param(t2) {
        return false;
    }
    match (t1, t2) {
        (Type::Type(_), Type::Type(_)) => true,
        (Type::Opaque(..) | Type::List(_) | Type::Map(_), _) => {
            let (parts, others) = (t1.parts(), t2.parts());
            std::mem::discriminant(t1) == std::mem::discriminant(t2)
                && t1.name() == t2.name()
                && parts.len() == others.len()
                && parts.iter().zip(others).all(|(part, other)| is_less_specific(part, other))
        }
        _ => t1 == t2,
    }
}
