//! Macros: calls that stand for other expressions.

use crate::ast::{Call, Element, Expr, ExprKind, Fold, Id, Name, Select};
use crate::parser::Parser;
use crate::source::Offset;
use crate::value::Value;

/// The variable that a fold adds up in.
pub(crate) const ACCU: &str = "@result";
/// Copies of copies grow without bound upstream; this is the greatest number of nodes of a tree
/// here.
const MAX_NODES: usize = 100_000;
const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

/// An error at a node of an argument.
struct Misuse(Id, String);

type Expanded = Result<Expr, Misuse>;
/// The target and arguments of a call that is no macro.
type Plain = (Option<Expr>, Vec<Expr>);

/// Expands a call that is a macro.
pub(crate) fn expand(
    parser: &mut Parser<'_>,
    at: Offset,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, Plain> {
    let Some(kind) = find(function, target.as_ref(), args.len()) else { return Err((target, args)) };
    let mut maker = Maker { parser, at };
    let expanded = match target {
        None => has(&mut maker, args),
        Some(target) => member(&mut maker, kind, target, args),
    };
    Ok(expanded.unwrap_or_else(|Misuse(id, message)| {
        let start = parser.places.start(id).unwrap_or(at);
        parser.report(start, message)
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Macro {
    Has,
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
    Bind,
}

fn find(function: &str, target: Option<&Expr>, args: usize) -> Option<Macro> {
    let Some(target) = target else {
        return (function == "has" && args == 1).then_some(Macro::Has);
    };
    Some(match (function, args) {
        ("all", 2 | 3) => Macro::All,
        ("exists", 2 | 3) => Macro::Exists,
        ("exists_one", 2 | 3) | ("existsOne", 3) => Macro::ExistsOne,
        ("map", 2 | 3) => Macro::Map,
        ("filter", 2) => Macro::Filter,
        ("transformList", 3 | 4) => Macro::TransformList,
        ("transformMap", 3 | 4) => Macro::TransformMap,
        ("transformMapEntry", 3 | 4) => Macro::TransformMapEntry,
        ("optMap", 2) => Macro::OptMap,
        ("optFlatMap", 2) => Macro::OptFlatMap,
        ("sortBy", 2) => Macro::SortBy,
        ("bind", 3) if target.as_ident().is_some_and(|name| &**name == "cel") => Macro::Bind,
        _ => return None,
    })
}

/// Makes nodes at the place of the macro.
struct Maker<'a, 'b> {
    parser: &'a mut Parser<'b>,
    at: Offset,
}

impl Maker<'_, '_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        Expr { id: self.parser.places.add(self.at), kind }
    }

    fn literal(&mut self, value: Value) -> Expr {
        self.node(ExprKind::Literal(value))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.into()))
    }

    fn accu(&mut self) -> Expr {
        self.ident(ACCU)
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        let elements = elements.into_iter().map(|value| Element { value, optional: false }).collect();
        self.node(ExprKind::List(elements))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call(Box::new(Call { function: function.into(), target: None, args })))
    }

    fn member(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call(Box::new(Call { function: function.into(), target: Some(target), args })))
    }

    fn fold(&mut self, fold: Fold) -> Expr {
        self.node(ExprKind::Fold(Box::new(fold)))
    }

    /// A variable with a value: a fold over nothing whose result may name its accumulator.
    fn bind(&mut self, name: Name, init: Expr, result: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Value::Bool(false));
        let step = self.ident(&name);
        self.fold(Fold {
            range,
            var: "#unused".into(),
            var2: None,
            accu_var: name,
            accu_init: init,
            condition,
            step,
            result,
        })
    }

    fn copy(&mut self, expr: &Expr) -> Expanded {
        let start = self.parser.places.start(expr.id).unwrap_or(self.at);
        let mut copy = expr.clone();
        self.renumber(&mut copy, start);
        if self.parser.places.len() > MAX_NODES {
            return Err(Misuse(expr.id, format!("macros expand to more than {MAX_NODES} nodes")));
        }
        Ok(copy)
    }

    /// New identities for a copied tree.
    fn renumber(&mut self, expr: &mut Expr, start: Offset) {
        expr.id = self.parser.places.add(start);
        let mut each = |child: &mut Expr| {
            let start = self.parser.places.start(child.id).unwrap_or(start);
            self.renumber(child, start);
        };
        match &mut expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select(select) => each(&mut select.operand),
            ExprKind::Call(call) => call.target.iter_mut().chain(&mut call.args).for_each(each),
            ExprKind::List(elements) => elements.iter_mut().for_each(|element| each(&mut element.value)),
            ExprKind::Map(entries) => {
                for entry in entries {
                    each(&mut entry.key);
                    each(&mut entry.value);
                }
            }
            ExprKind::Struct(message) => message.fields.iter_mut().for_each(|field| each(&mut field.value)),
            ExprKind::Fold(fold) => {
                each(&mut fold.range);
                each(&mut fold.accu_init);
                each(&mut fold.condition);
                each(&mut fold.step);
                each(&mut fold.result);
            }
        }
    }
}

fn has(maker: &mut Maker<'_, '_>, mut args: Vec<Expr>) -> Expanded {
    let arg = args.swap_remove(0);
    let ExprKind::Select(select) = arg.kind else {
        return Err(Misuse(arg.id, "invalid argument to has() macro".into()));
    };
    Ok(maker.node(ExprKind::Select(Box::new(Select { test_only: true, ..*select }))))
}

fn member(maker: &mut Maker<'_, '_>, kind: Macro, target: Expr, args: Vec<Expr>) -> Expanded {
    let takes_two = match kind {
        Macro::All | Macro::Exists | Macro::ExistsOne => args.len() == 3,
        Macro::TransformList | Macro::TransformMap | Macro::TransformMapEntry => true,
        _ => false,
    };
    match kind {
        Macro::OptMap | Macro::OptFlatMap => opt_map(maker, kind, target, args),
        Macro::SortBy => sort_by(maker, target, args),
        Macro::Bind => {
            let [var, init, result] = take(args);
            let name = simple(&var, "cel.bind() variable names must be simple identifiers")?;
            Ok(maker.bind(name, init, result))
        }
        Macro::Map | Macro::Filter => {
            let var = variable(&args[0], "argument is not an identifier")?;
            Ok(fold(maker, kind, target, (var, None), args, 1))
        }
        _ if takes_two => {
            let vars = two_variables(&args)?;
            Ok(fold(maker, kind, target, vars, args, 2))
        }
        _ => {
            let var = variable(&args[0], "argument must be a simple name")?;
            Ok(fold(maker, kind, target, (var, None), args, 1))
        }
    }
}

fn take<const N: usize>(args: Vec<Expr>) -> [Expr; N] {
    args.try_into().unwrap_or_else(|_| unreachable!("the macro was found by its number of arguments"))
}

fn simple(expr: &Expr, message: &str) -> Result<Name, Misuse> {
    expr.as_ident().cloned().ok_or_else(|| Misuse(expr.id, message.into()))
}

fn variable(expr: &Expr, message: &str) -> Result<Name, Misuse> {
    let name = simple(expr, message)?;
    if is_accu(&name) { Err(Misuse(expr.id, OVERWRITES.into())) } else { Ok(name) }
}

fn is_accu(name: &str) -> bool {
    name == ACCU || name == "__result__"
}

fn two_variables(args: &[Expr]) -> Result<(Name, Option<Name>), Misuse> {
    let first = simple(&args[0], "argument must be a simple name")?;
    let second = simple(&args[1], "argument must be a simple name")?;
    if first == second {
        return Err(Misuse(args[1].id, format!("duplicate variable name: {first}")));
    }
    for (name, arg) in [(&first, &args[0]), (&second, &args[1])] {
        if is_accu(name) {
            return Err(Misuse(arg.id, OVERWRITES.into()));
        }
    }
    Ok((first, Some(second)))
}

/// A fold over the target; `vars` of the arguments are its variables.
fn fold(
    maker: &mut Maker<'_, '_>,
    kind: Macro,
    range: Expr,
    (var, var2): (Name, Option<Name>),
    mut args: Vec<Expr>,
    vars: usize,
) -> Expr {
    let mut rest = args.split_off(vars);
    let body = rest.pop().expect("a macro has arguments after its variables");
    let filter = rest.pop();
    let (accu_init, condition, step) = match kind {
        Macro::All => {
            let accu = maker.accu();
            let condition = maker.call("@not_strictly_false", vec![accu]);
            let accu = maker.accu();
            (maker.literal(Value::Bool(true)), condition, maker.call("_&&_", vec![accu, body]))
        }
        Macro::Exists => {
            let accu = maker.accu();
            let negated = maker.call("!_", vec![accu]);
            let condition = maker.call("@not_strictly_false", vec![negated]);
            let accu = maker.accu();
            (maker.literal(Value::Bool(false)), condition, maker.call("_||_", vec![accu, body]))
        }
        Macro::ExistsOne => {
            let (accu, one) = (maker.accu(), maker.literal(Value::Int(1)));
            let more = maker.call("_+_", vec![accu, one]);
            let same = maker.accu();
            let step = maker.call("_?_:_", vec![body, more, same]);
            (maker.literal(Value::Int(0)), maker.literal(Value::Bool(true)), step)
        }
        Macro::Filter => {
            let element = args.pop().expect("a filter has a variable");
            let (accu, list) = (maker.accu(), maker.list(vec![element]));
            let more = maker.call("_+_", vec![accu, list]);
            let same = maker.accu();
            let step = maker.call("_?_:_", vec![body, more, same]);
            (maker.list(Vec::new()), maker.literal(Value::Bool(true)), step)
        }
        Macro::Map | Macro::TransformList => {
            let (accu, list) = (maker.accu(), maker.list(vec![body]));
            let more = maker.call("_+_", vec![accu, list]);
            (maker.list(Vec::new()), maker.literal(Value::Bool(true)), filtered(maker, filter, more))
        }
        _ => {
            let mut insert = vec![maker.accu()];
            if kind == Macro::TransformMap {
                insert.push(maker.ident(&var));
            }
            insert.push(body);
            let more = maker.call("cel.@mapInsert", insert);
            let step = filtered(maker, filter, more);
            (maker.node(ExprKind::Map(Vec::new())), maker.literal(Value::Bool(true)), step)
        }
    };
    let mut result = maker.accu();
    if kind == Macro::ExistsOne {
        let one = maker.literal(Value::Int(1));
        result = maker.call("_==_", vec![result, one]);
    }
    maker.fold(Fold { range, var, var2, accu_var: ACCU.into(), accu_init, condition, step, result })
}

fn filtered(maker: &mut Maker<'_, '_>, filter: Option<Expr>, step: Expr) -> Expr {
    match filter {
        Some(filter) => {
            let accu = maker.accu();
            maker.call("_?_:_", vec![filter, step, accu])
        }
        None => step,
    }
}

fn opt_map(maker: &mut Maker<'_, '_>, kind: Macro, target: Expr, args: Vec<Expr>) -> Expanded {
    let [var, body] = take(args);
    let macro_name = if kind == Macro::OptMap { "optMap" } else { "optFlatMap" };
    let name = simple(&var, &format!("{macro_name}() variable name must be a simple identifier"))?;
    let copy = maker.copy(&target)?;
    let has_value = maker.member("hasValue", target, Vec::new());
    let value = maker.member("value", copy, Vec::new());
    let mut present = maker.bind(name, value, body);
    if kind == Macro::OptMap {
        present = maker.call("optional.of", vec![present]);
    }
    let none = maker.call("optional.none", Vec::new());
    Ok(maker.call("_?_:_", vec![has_value, present, none]))
}

fn sort_by(maker: &mut Maker<'_, '_>, target: Expr, args: Vec<Expr>) -> Expanded {
    const INPUT: &str = "@__sortBy_input__";
    if matches!(
        target.kind,
        ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct(_) | ExprKind::Unspecified
    ) {
        let message =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(Misuse(target.id, message.into()));
    }
    let range = maker.ident(INPUT);
    let keys = member(maker, Macro::Map, range, args)?;
    let input = maker.ident(INPUT);
    let sorted = maker.member("@sortByAssociatedKeys", input, vec![keys]);
    Ok(maker.bind(INPUT.into(), target, sorted))
}
