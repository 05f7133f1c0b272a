//! From tokens to a tree. Each function is a rule of cel-go's grammar.

use crate::ast::{Call, Element, Entry, Expr, ExprKind, Field, Id, Name, Select, Struct};
use crate::lexer::{Lexeme, Token, tokens};
use crate::literals::{double, integer, unescape, unsigned};
use crate::macros;
use crate::source::{Errors, Location, Offset, Source};
use crate::unexpected;
use crate::value::Value;

/// cel-go's limit of how deep rules may nest.
const MAX_DEPTH: u16 = 250;

const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// What an expression starts with.
const EXPRESSION: &[Token] = &[
    Token::LeftBracket,
    Token::LeftBrace,
    Token::LeftParen,
    Token::Dot,
    Token::Minus,
    Token::Exclamation,
    Token::True,
    Token::False,
    Token::Null,
    Token::Float,
    Token::Int,
    Token::Uint,
    Token::String,
    Token::Bytes,
    Token::Identifier,
];

/// The rules of the grammar, for the limit of depth.
#[derive(Clone, Copy)]
enum Rule {
    Expr,
    Relation,
    Calc,
    Member,
    Other,
}

/// Why parsing ends early.
enum Stop {
    Syntax,
    TooDeep,
    /// cel-go's visitor of the parsed tree has a limit, too.
    TooHigh,
}

type Parsed<T> = Result<T, Stop>;

/// A tree and how deep cel-go's visitor recurses in it.
struct Node {
    expr: Expr,
    depth: u16,
}

/// The places of nodes, by their identity.
#[derive(Default)]
pub(crate) struct Places {
    starts: Vec<Offset>,
}

impl Places {
    pub(crate) fn add(&mut self, start: Offset) -> Id {
        self.starts.push(start);
        self.starts.len() as Id
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn start(&self, id: Id) -> Option<Offset> {
        self.starts.get((id as usize).checked_sub(1)?).copied()
    }

    pub(crate) fn location(&self, source: &Source, id: Id) -> Location {
        self.start(id).map_or(Location::NONE, |start| source.location(start))
    }
}

/// A parsed expression with its macros expanded.
pub(crate) struct Ast {
    pub(crate) root: Expr,
    pub(crate) places: Places,
}

/// Parses, or reports every error.
pub(crate) fn parse(source: &Source, errors: &mut Errors) -> Option<Ast> {
    let tokens = tokens(source, errors);
    let mut parser = Parser {
        source,
        errors,
        tokens: &tokens,
        at: 0,
        places: Places::default(),
        depth: [0; 5],
        expected: &[],
    };
    match parser.start() {
        Ok(root) => Some(Ast { root, places: parser.places }),
        Err(Stop::TooDeep) => {
            parser.errors.report(Location::NONE, format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            None
        }
        Err(Stop::TooHigh) => {
            parser.errors.report(Location::NONE, "max recursion depth exceeded");
            None
        }
        Err(Stop::Syntax) => {
            let (at, expected) = (parser.at, parser.expected);
            unexpected::report(source, &tokens[at..], expected, errors);
            None
        }
    }
}

pub(crate) struct Parser<'a> {
    pub(crate) source: &'a Source,
    pub(crate) errors: &'a mut Errors,
    tokens: &'a [Lexeme],
    at: usize,
    pub(crate) places: Places,
    depth: [u16; 5],
    /// What the grammar wants where parsing ended.
    expected: &'static [Token],
}

impl Parser<'_> {
    fn token(&self) -> Token {
        self.ahead(0)
    }

    fn ahead(&self, distance: usize) -> Token {
        self.tokens.get(self.at + distance).map_or(Token::Eof, |lexeme| lexeme.token)
    }

    fn offset(&self) -> Offset {
        self.tokens[self.at].start
    }

    fn advance(&mut self) -> Lexeme {
        let lexeme = self.tokens[self.at];
        self.at += usize::from(lexeme.token != Token::Eof);
        lexeme
    }

    fn take(&mut self, token: Token) -> Option<Lexeme> {
        (self.token() == token).then(|| self.advance())
    }

    fn expect(&mut self, token: &'static [Token; 1]) -> Parsed<Lexeme> {
        self.take(token[0]).ok_or_else(|| self.fail(token))
    }

    fn fail(&mut self, expected: &'static [Token]) -> Stop {
        self.expected = expected;
        Stop::Syntax
    }

    fn text(&self, lexeme: Lexeme) -> String {
        self.source.text(lexeme.start, lexeme.end)
    }

    fn enter(&mut self, rule: Rule) -> Parsed<()> {
        self.depth[rule as usize] += 1;
        if self.depth[rule as usize] > MAX_DEPTH { Err(Stop::TooDeep) } else { Ok(()) }
    }

    fn leave(&mut self, rule: Rule) {
        self.depth[rule as usize] -= 1;
    }

    /// Reports an error of the tree, which does not end parsing.
    pub(crate) fn report(&mut self, at: Offset, message: impl Into<String>) -> Expr {
        self.errors.report(self.source.location(at), message);
        Expr { id: self.places.add(at), kind: ExprKind::Unspecified }
    }

    fn node(&mut self, at: Offset, kind: ExprKind) -> Expr {
        Expr { id: self.places.add(at), kind }
    }

    fn leaf(&mut self, at: Offset, kind: ExprKind) -> Node {
        Node { expr: self.node(at, kind), depth: 0 }
    }

    fn start(&mut self) -> Parsed<Expr> {
        let node = self.expr()?;
        self.expect(&[Token::Eof])?;
        Ok(node.expr)
    }

    fn expr(&mut self) -> Parsed<Node> {
        self.enter(Rule::Expr)?;
        let mut node = self.logic(Token::LogicalOr)?;
        if let Some(op) = self.take(Token::Question) {
            let truthy = self.logic(Token::LogicalOr)?;
            self.expect(&[Token::Colon])?;
            let falsy = self.expr()?;
            let depth = node.depth.max(truthy.depth).max(falsy.depth);
            let expr = self.call(op.start, "_?_:_", None, vec![node.expr, truthy.expr, falsy.expr]);
            node = deeper(expr, depth)?;
        }
        self.leave(Rule::Expr);
        Ok(node)
    }

    /// Terms of `||`, or of `&&`, as a balanced tree.
    fn logic(&mut self, operator: Token) -> Parsed<Node> {
        let is_or = operator == Token::LogicalOr;
        let mut depth = 0;
        let mut terms = Vec::new();
        let mut ops = Vec::new();
        loop {
            let term = if is_or { self.logic(Token::LogicalAnd)? } else { self.relation()? };
            depth = depth.max(term.depth);
            terms.push(Some(term.expr));
            match self.take(operator) {
                Some(op) => ops.push(op.start),
                None => break,
            }
        }
        let function = if is_or { "_||_" } else { "_&&_" };
        let expr = self.balance(function, &mut terms, &ops);
        Ok(Node { expr, depth })
    }

    fn balance(&mut self, function: &str, terms: &mut [Option<Expr>], ops: &[Offset]) -> Expr {
        if ops.is_empty() {
            return terms[0].take().expect("each term is in the tree once");
        }
        let middle = ops.len() / 2;
        let left = self.balance(function, &mut terms[..=middle], &ops[..middle]);
        let right = self.balance(function, &mut terms[middle + 1..], &ops[middle + 1..]);
        let call = Call { function: function.into(), target: None, args: vec![left, right] };
        self.node(ops[middle], ExprKind::Call(Box::new(call)))
    }

    fn relation(&mut self) -> Parsed<Node> {
        self.enter(Rule::Relation)?;
        let mut left = self.calc(0)?;
        while let Some(function) = relation_function(self.token()) {
            let op = self.advance();
            // The operand on the right enters the rule, too, and has no operator of its own.
            self.enter(Rule::Relation)?;
            let right = self.calc(0)?;
            self.leave(Rule::Relation);
            left = self.binary(op, function, left, right)?;
        }
        self.leave(Rule::Relation);
        Ok(left)
    }

    fn calc(&mut self, precedence: u8) -> Parsed<Node> {
        self.enter(Rule::Calc)?;
        let mut left = self.unary()?;
        while let Some((function, binds)) = calc_function(self.token())
            && binds > precedence
        {
            let op = self.advance();
            let right = self.calc(binds)?;
            left = self.binary(op, function, left, right)?;
        }
        self.leave(Rule::Calc);
        Ok(left)
    }

    fn binary(&mut self, op: Lexeme, function: &str, left: Node, right: Node) -> Parsed<Node> {
        let depth = left.depth.max(right.depth);
        let expr = self.call(op.start, function, None, vec![left.expr, right.expr]);
        deeper(expr, depth)
    }

    fn unary(&mut self) -> Parsed<Node> {
        let (operator, function) = match self.token() {
            Token::Exclamation => (Token::Exclamation, "!_"),
            // A single minus before a number belongs to the number.
            Token::Minus if !matches!(self.ahead(1), Token::Int | Token::Float) => (Token::Minus, "-_"),
            _ => return self.member(),
        };
        let first = self.offset();
        let mut count = 0;
        while self.take(operator).is_some() {
            count += 1;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        Ok(Node { expr: self.call(first, function, None, vec![operand.expr]), depth: operand.depth })
    }

    fn member(&mut self) -> Parsed<Node> {
        self.enter(Rule::Member)?;
        let mut node = self.primary()?;
        loop {
            match self.token() {
                Token::Dot => node = self.select(node)?,
                Token::LeftBracket => node = self.index(node)?,
                _ => break,
            }
        }
        self.leave(Rule::Member);
        Ok(node)
    }

    fn select(&mut self, operand: Node) -> Parsed<Node> {
        let op = self.advance();
        let optional = self.take(Token::Question).is_some();
        let is_call = !optional && self.ahead(1) == Token::LeftParen;
        let id = self.offset();
        let field = self.escape_ident()?;
        let (depth, operand) = (operand.depth, operand.expr);
        if is_call && self.token() == Token::LeftParen && self.tokens[self.at - 1].token == Token::Identifier
        {
            let open = self.advance();
            let (args, args_depth) = self.arguments()?;
            let expr = self.call(open.start, &field, Some(operand), args);
            return deeper(expr, depth.max(args_depth));
        }
        let expr = if optional {
            let name = self.node(id, ExprKind::Literal(Value::string(&field)));
            let call = Call { function: "_?._".into(), target: None, args: vec![operand, name] };
            self.node(op.start, ExprKind::Call(Box::new(call)))
        } else {
            let select = Select { operand, field, test_only: false };
            self.node(op.start, ExprKind::Select(Box::new(select)))
        };
        deeper(expr, depth)
    }

    fn index(&mut self, target: Node) -> Parsed<Node> {
        let op = self.advance();
        let function = if self.take(Token::Question).is_some() { "_[?_]" } else { "_[_]" };
        let index = self.expr()?;
        self.expect(&[Token::RightBracket])?;
        self.binary(op, function, target, index)
    }

    fn escape_ident(&mut self) -> Parsed<Name> {
        if let Some(id) = self.take(Token::Identifier) {
            return Ok(self.text(id).into());
        }
        let id = self.expect(&[Token::EscapedIdentifier])?;
        Ok(self.source.text(id.start + 1, id.end - 1).into())
    }

    /// Arguments after an open parenthesis, and the parenthesis that closes them.
    fn arguments(&mut self) -> Parsed<(Vec<Expr>, u16)> {
        let mut args = Vec::new();
        let mut depth = 0;
        if self.take(Token::RightParen).is_some() {
            return Ok((args, depth));
        }
        loop {
            let node = self.expr()?;
            depth = depth.max(node.depth);
            args.push(node.expr);
            if self.take(Token::Comma).is_none() {
                break;
            }
        }
        self.expect(&[Token::RightParen])?;
        Ok((args, depth))
    }

    fn primary(&mut self) -> Parsed<Node> {
        self.enter(Rule::Other)?;
        let node = match self.token() {
            Token::LeftParen => {
                self.advance();
                let node = self.expr()?;
                self.expect(&[Token::RightParen])?;
                Ok(node)
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => self.map(),
            Token::Dot | Token::Identifier => self.named(),
            _ => self.literal(),
        };
        self.leave(Rule::Other);
        node
    }

    /// An identifier, the call of a function, or a message.
    fn named(&mut self) -> Parsed<Node> {
        if self.is_message() {
            return self.message();
        }
        let start = self.offset();
        let dot = if self.take(Token::Dot).is_some() { "." } else { "" };
        let id = self.expect(&[Token::Identifier])?;
        let name = self.text(id);
        let is_reserved = RESERVED.contains(&name.as_str());
        let qualified = format!("{dot}{name}");
        if self.token() != Token::LeftParen {
            if is_reserved {
                let expr = self.report(start, format!("reserved identifier: {name}"));
                return Ok(Node { expr, depth: 0 });
            }
            return Ok(self.leaf(id.start, ExprKind::Ident(qualified.into())));
        }
        let open = self.advance();
        let (args, depth) = self.arguments()?;
        let expr = if is_reserved {
            self.report(start, format!("reserved identifier: {name}"))
        } else {
            self.call(open.start, &qualified, None, args)
        };
        Ok(Node { expr, depth })
    }

    fn is_message(&self) -> bool {
        let mut at = usize::from(self.token() == Token::Dot);
        while self.ahead(at) == Token::Identifier {
            match self.ahead(at + 1) {
                Token::LeftBrace => return true,
                Token::Dot => at += 2,
                _ => return false,
            }
        }
        false
    }

    fn message(&mut self) -> Parsed<Node> {
        let mut name = String::new();
        let open = loop {
            let lexeme = self.advance();
            if lexeme.token == Token::LeftBrace {
                break lexeme;
            }
            name.push_str(&self.text(lexeme));
        };
        let mut fields = Vec::new();
        let mut depth = 0;
        while !fields.is_empty() || !matches!(self.token(), Token::RightBrace | Token::Comma) {
            let optional = self.take(Token::Question).is_some();
            let name = self.escape_ident()?;
            let colon = self.expect(&[Token::Colon])?;
            let value = self.expr()?;
            depth = depth.max(value.depth);
            let id = self.places.add(colon.start);
            fields.push(Field { id, name, value: value.expr, optional });
            if !self.goes_on(Token::RightBrace) {
                break;
            }
        }
        self.close(&[Token::RightBrace])?;
        let message = Struct { name: name.into(), fields };
        Ok(Node { expr: self.node(open.start, ExprKind::Struct(Box::new(message))), depth })
    }

    /// Consumes the comma before another item.
    fn goes_on(&mut self, close: Token) -> bool {
        self.token() == Token::Comma && self.ahead(1) != close && self.take(Token::Comma).is_some()
    }

    /// Consumes the end of a list, and a comma before it.
    fn close(&mut self, close: &'static [Token; 1]) -> Parsed<()> {
        self.take(Token::Comma);
        self.expect(close).map(|_| ())
    }

    fn list(&mut self) -> Parsed<Node> {
        let open = self.advance();
        let mut elements = Vec::new();
        let mut depth = 0;
        while !elements.is_empty() || !matches!(self.token(), Token::RightBracket | Token::Comma) {
            let optional = self.take(Token::Question).is_some();
            let node = self.expr()?;
            depth = depth.max(node.depth);
            elements.push(Element { value: node.expr, optional });
            if !self.goes_on(Token::RightBracket) {
                break;
            }
        }
        self.close(&[Token::RightBracket])?;
        Ok(Node { expr: self.node(open.start, ExprKind::List(elements)), depth })
    }

    fn map(&mut self) -> Parsed<Node> {
        let open = self.advance();
        let mut entries = Vec::new();
        let mut depth = 0;
        while !entries.is_empty() || !matches!(self.token(), Token::RightBrace | Token::Comma) {
            let optional = self.take(Token::Question).is_some();
            let key = self.expr()?;
            self.expect(&[Token::Colon])?;
            let value = self.expr()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push(Entry { key: key.expr, value: value.expr, optional });
            if !self.goes_on(Token::RightBrace) {
                break;
            }
        }
        self.close(&[Token::RightBrace])?;
        Ok(Node { expr: self.node(open.start, ExprKind::Map(entries)), depth })
    }

    fn literal(&mut self) -> Parsed<Node> {
        let start = self.offset();
        if !EXPRESSION.contains(&self.token()) {
            return Err(self.fail(EXPRESSION));
        }
        let sign = if self.take(Token::Minus).is_some() { "-" } else { "" };
        let lexeme = self.advance();
        let text = self.text(lexeme);
        let value = match lexeme.token {
            Token::Int => integer(sign, &text).map(Value::Int).ok_or("invalid int literal"),
            Token::Float => double(sign, &text).map(Value::Double).ok_or("invalid double literal"),
            _ if !sign.is_empty() => return Err(Stop::Syntax),
            Token::Uint => unsigned(&text).map(Value::Uint).ok_or("invalid uint literal"),
            Token::String => {
                unescape(&text, false).map(|bytes| Value::string(&String::from_utf8_lossy(&bytes)))
            }
            Token::Bytes => unescape(&text[1..], true).map(|bytes| Value::Bytes(bytes.into())),
            Token::True => Ok(Value::Bool(true)),
            Token::False => Ok(Value::Bool(false)),
            Token::Null => Ok(Value::Null),
            _ => return Err(Stop::Syntax),
        };
        match value {
            Ok(value) => Ok(self.leaf(start, ExprKind::Literal(value))),
            Err(message) => Ok(Node { expr: self.report(start, message), depth: 0 }),
        }
    }

    fn call(&mut self, at: Offset, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        match macros::expand(self, at, function, target, args) {
            Ok(expanded) => expanded,
            Err((target, args)) => {
                let call = Call { function: function.into(), target, args };
                self.node(at, ExprKind::Call(Box::new(call)))
            }
        }
    }
}

/// A node one level above the deepest of its operands.
fn deeper(expr: Expr, below: u16) -> Parsed<Node> {
    if below >= MAX_DEPTH { Err(Stop::TooHigh) } else { Ok(Node { expr, depth: below + 1 }) }
}

fn relation_function(token: Token) -> Option<&'static str> {
    Some(match token {
        Token::Less => "_<_",
        Token::LessEquals => "_<=_",
        Token::GreaterEquals => "_>=_",
        Token::Greater => "_>_",
        Token::Equals => "_==_",
        Token::NotEquals => "_!=_",
        Token::In => "@in",
        _ => return None,
    })
}

/// The function and how tightly it binds.
fn calc_function(token: Token) -> Option<(&'static str, u8)> {
    Some(match token {
        Token::Star => ("_*_", 2),
        Token::Slash => ("_/_", 2),
        Token::Percent => ("_%_", 2),
        Token::Plus => ("_+_", 1),
        Token::Minus => ("_-_", 1),
        _ => return None,
    })
}
