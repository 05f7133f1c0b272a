//! Expressions and devices from a seed: mostly well-typed, with a mistake here and there.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fastrand::Rng;
use serde_json::{Value, json};

use super::question::{Described, Question};

/// The types of generated expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Ints,
    Texts,
    Lists,
    Map,
    Quantity,
    Semver,
    Ip,
    Cidr,
    Url,
    Format,
    Problems,
    Duration,
    Timestamp,
    Type,
    Dyn,
    OptionalInt,
    OptionalDyn,
    OptionalText,
}

const KINDS: &[Kind] = &[
    Kind::Bool,
    Kind::Int,
    Kind::Uint,
    Kind::Double,
    Kind::Text,
    Kind::Bytes,
    Kind::Ints,
    Kind::Texts,
    Kind::Lists,
    Kind::Map,
    Kind::Quantity,
    Kind::Semver,
    Kind::Ip,
    Kind::Cidr,
    Kind::Url,
    Kind::Format,
    Kind::Problems,
    Kind::Duration,
    Kind::Timestamp,
    Kind::Type,
    Kind::Dyn,
    Kind::OptionalInt,
    Kind::OptionalDyn,
    Kind::OptionalText,
];

const NAMES: &[&str] =
    &["model", "cores", "fast", "version", "tags", "sizes", "flags", "versions", "missing"];
const DOMAINS: &[&str] = &["gpu.example.com", "other.example.com", "none.example.com"];

/// The lines of a section of `templates.txt`.
pub fn templates(section: &str) -> &'static [&'static str] {
    static SECTIONS: LazyLock<BTreeMap<&str, Vec<&str>>> = LazyLock::new(|| {
        let sections = include_str!("templates.txt").split("\n== ").skip(1);
        let lines = |section: &'static str| {
            let (name, lines) = section.split_once('\n').unwrap();
            (name, lines.lines().map(|line| if line == "<empty>" { "" } else { line }).collect())
        };
        sections.map(lines).collect()
    });
    &SECTIONS[section]
}

/// Makes one question of its seed.
pub struct Generator {
    rng: Rng,
    /// Variables of macros in scope.
    scope: Vec<(String, Kind)>,
    /// One in this number of choices is a mistake.
    mistakes: u32,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mistakes = *[0, 0, 0, 40, 40, 15].get(rng.usize(0..6)).unwrap();
        Self { rng, scope: Vec::new(), mistakes }
    }

    pub fn question(mut self) -> Question {
        let depth = self.rng.u32(1..6);
        let kind = if self.rng.u32(0..20) == 0 { self.any_kind() } else { Kind::Bool };
        let mut expression = self.expr(kind, depth);
        if self.mistakes > 0 && self.rng.u32(0..10) == 0 {
            expression = self.damage(&expression);
        }
        let devices = (0..self.rng.usize(1..4)).map(|_| self.device()).collect();
        Question { expression, devices }
    }

    fn any_kind(&mut self) -> Kind {
        KINDS[self.rng.usize(0..KINDS.len())]
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.usize(0..from.len())]
    }

    fn is_mistake(&mut self) -> bool {
        self.mistakes > 0 && self.rng.u32(0..self.mistakes) == 0
    }

    /// Removes, doubles or swaps a piece of the text.
    fn damage(&mut self, text: &str) -> String {
        let chars: Vec<char> = text.chars().collect();
        let start = self.rng.usize(0..chars.len());
        let end = (start + self.rng.usize(1..4)).min(chars.len());
        let (head, piece, tail) = (&chars[..start], &chars[start..end], &chars[end..]);
        let extra: Vec<char> = self
            .pick(&[")", "(", "]", ",", ".", " in ", "?", "&&", "'", "@", "`", "1", " x ", "!", "{"])
            .chars()
            .collect();
        match self.rng.u32(0..3) {
            0 => [head, tail].concat(),
            1 => [head, piece, piece, tail].concat(),
            _ => [head, &extra, tail].concat(),
        }
        .into_iter()
        .collect()
    }

    pub fn device(&mut self) -> Described {
        let mut device = Described {
            driver: self.pick(&["gpu.example.com", "", "other.example.com"]).into(),
            ..Described::default()
        };
        device.allow_multiple_allocations = [None, Some(true), Some(false)][self.rng.usize(0..3)];
        for name in NAMES.iter().take(NAMES.len() - 1) {
            if self.rng.u32(0..4) == 0 {
                continue;
            }
            let domain = self.pick(&["", "", "gpu.example.com/", "other.example.com/"]);
            let value = self.attribute(name);
            // Of two names that are the same with the driver's domain, upstream takes either.
            let qualified = format!("{domain}{name}");
            if device.driver.is_empty() || !domain.starts_with(&device.driver) {
                device.attributes.insert(qualified, value);
            }
        }
        for name in ["memory", "slots"] {
            if self.rng.u32(0..4) > 0 {
                let domain = self.pick(&["", "other.example.com/"]);
                let quantity =
                    self.pick(&["1Gi", "10", "100m", "1.5Gi", "0", "123456789012345678901", "1Ei"]);
                if device.driver != "other.example.com" || domain.is_empty() {
                    device.capacity.insert(format!("{domain}{name}"), json!({ "value": quantity }));
                }
            }
        }
        device
    }

    fn attribute(&mut self, name: &str) -> Value {
        let kind = if self.rng.u32(0..8) == 0 { self.pick(NAMES) } else { name };
        match kind {
            "cores" => json!({ "int": self.rng.i64(-3..20) }),
            "fast" => json!({ "bool": self.rng.bool() }),
            "version" => {
                let versions = templates("versions");
                let count = if self.rng.u32(0..40) == 0 { versions.len() } else { 8 };
                json!({ "version": versions[self.rng.usize(0..count)] })
            }
            "tags" => json!({ "strings": ["fish", "bird", self.pick(&["a", "A100"])] }),
            "sizes" => json!({ "ints": [1, 2, self.rng.i64(0..9)] }),
            "flags" => json!({ "bools": [true, self.rng.bool()] }),
            "versions" => json!({ "versions": ["1.2.3", "2.0.0"] }),
            _ => json!({ "string": self.pick(&["A100", "fish", "10", "1Gi", "1.2.3", ""]) }),
        }
    }

    fn attribute_expr(&mut self, depth: u32) -> String {
        let domain = self.pick(&[DOMAINS[0], DOMAINS[0], DOMAINS[1], DOMAINS[2]]);
        let name = self.pick(NAMES);
        if depth > 0 && self.rng.u32(0..8) == 0 {
            let key = self.expr(Kind::Text, depth - 1);
            return format!("device.attributes[\"{domain}\"][{key}]");
        }
        match self.rng.u32(0..3) {
            0 => format!("device.attributes[\"{domain}\"][\"{name}\"]"),
            _ => format!("device.attributes[\"{domain}\"].{name}"),
        }
    }

    fn expr(&mut self, wanted: Kind, depth: u32) -> String {
        let kind = if self.is_mistake() { self.any_kind() } else { wanted };
        let in_scope: Vec<String> =
            self.scope.iter().filter(|(_, known)| *known == kind).map(|(name, _)| name.clone()).collect();
        if !in_scope.is_empty() && self.rng.u32(0..3) > 0 {
            return in_scope[self.rng.usize(0..in_scope.len())].clone();
        }
        if depth == 0 {
            return self.leaf(kind);
        }
        let d = depth - 1;
        if self.rng.u32(0..14) == 0 {
            return self.wrapped(kind, d);
        }
        match kind {
            Kind::Bool if self.rng.u32(0..8) == 0 => {
                let kind = self.any_kind();
                let (a, b) = (self.expr(kind, d), self.expr(kind, d));
                let op = self.pick(&["==", "!=", "==", "<", ">="]);
                format!("{a} {op} {b}")
            }
            Kind::Dyn if self.rng.u32(0..3) > 0 => self.attribute_expr(d),
            Kind::Dyn if self.rng.u32(0..3) == 0 => {
                let kind = self.any_kind();
                let value = self.expr(kind, d);
                format!("dyn({value})")
            }
            kind => self.choose(d, &format!("{kind:?}")),
        }
    }

    fn wrapped(&mut self, kind: Kind, depth: u32) -> String {
        match self.rng.u32(0..6) {
            0 => {
                let (condition, yes, no) =
                    (self.expr(Kind::Bool, depth), self.expr(kind, depth), self.expr(kind, depth));
                format!("({condition} ? {yes} : {no})")
            }
            1 => {
                let other = self.any_kind();
                let init = self.expr(other, depth);
                let body = self.bound("bound", other, kind, depth);
                format!("cel.bind(bound, {init}, {body})")
            }
            2 => {
                let item = self.expr(kind, depth);
                let index = self.expr(Kind::Int, depth);
                format!("[{item}][{index}]")
            }
            3 => {
                let value = self.expr(kind, depth);
                format!("optional.of({value}).value()")
            }
            4 => {
                let value = self.expr(kind, depth);
                let key = self.pick(&["'k'", "1", "true", "2u", "'z'"]);
                format!("{{'k': {value}}}[{key}]")
            }
            _ => {
                let value = self.expr(kind, depth);
                format!("({value})")
            }
        }
    }

    fn bound(&mut self, name: &str, known: Kind, kind: Kind, depth: u32) -> String {
        self.scope.push((name.into(), known));
        let body = self.expr(kind, depth);
        self.scope.pop();
        body
    }

    /// Fills one of the templates.
    fn choose(&mut self, depth: u32, section: &str) -> String {
        let template = self.pick(templates(section));
        let mut out = String::new();
        let mut bound: Vec<(String, Kind)> = Vec::new();
        let mut chars = template.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '%' || chars.peek() == Some(&' ') {
                out.push(c);
                continue;
            }
            match chars.next().unwrap() {
                'v' => {
                    let kind = hole(chars.next().unwrap());
                    if chars.peek() == Some(&'2') {
                        chars.next();
                    }
                    let name =
                        format!("{}{}", self.pick(&["x", "y", "item"]), self.scope.len() + bound.len());
                    out += &name;
                    bound.push((name, kind));
                }
                'P' => {
                    let kind = match chars.next().unwrap() {
                        'b' => Kind::Bool,
                        other => hole(other),
                    };
                    let before = self.scope.len();
                    self.scope.extend(bound.clone());
                    out += &self.expr(kind, depth);
                    self.scope.truncate(before);
                }
                'D' => out += &format!("\"{}\"", self.pick(DOMAINS)),
                'r' => out += &format!("'{}'", self.pick(templates("patterns"))),
                'R' => out += &format!("'{}'", self.pick(templates("classes"))),
                'n' => out += &format!("'{}'", self.pick(templates("numbers"))),
                'Q' => out += &format!("'{}'", self.pick(templates("quantities"))),
                'V' => out += &format!("'{}'", self.pick(templates("versions"))),
                'A' => out += &format!("'{}'", self.pick(templates("addresses"))),
                'K' => out.push('%'),
                'm' => {
                    let kind = self.any_kind();
                    out += &self.expr(kind, depth);
                }
                'C' => {
                    let count = self.rng.usize(0..4);
                    let clauses: Vec<_> = (0..count).map(|_| self.pick(templates("clauses"))).collect();
                    out += &format!("'{}'", clauses.join(self.pick(&["", " "])));
                }
                'O' => out += &format!("'{}'", self.pick(templates("urls")).replace('\'', "\\'")),
                'F' => out += &format!("'{}'", self.pick(templates("names"))),
                'G' => out += self.pick(templates("formats")),
                'Z' => out += &format!("'{}'", self.pick(templates("formats"))),
                'N' => out += &format!("'{}'", self.pick(templates("networks"))),
                'U' => out += &format!("'{}'", self.pick(templates("durations"))),
                'S' => out += &format!("'{}'", self.pick(templates("times"))),
                other => {
                    let operand = self.expr(hole(other), depth);
                    let is_simple = operand.chars().all(|c| c.is_alphanumeric() || "._[]'\"()".contains(c));
                    out += &if is_simple { operand } else { format!("({operand})") };
                }
            }
        }
        out
    }

    fn leaf(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Bool => self.pick(&["true", "false", "device.allowMultipleAllocations"]).into(),
            Kind::Int => {
                let edge = self.pick(&[
                    "0",
                    "1",
                    "2",
                    "-1",
                    "9223372036854775807",
                    "-9223372036854775808",
                    "0x1f",
                    "3",
                    "5",
                    "10",
                ]);
                if self.rng.u32(0..4) == 0 { edge.into() } else { self.rng.i64(0..6).to_string() }
            }
            Kind::Uint => self.pick(&["0u", "1u", "7u", "18446744073709551615u", "0xFFu"]).into(),
            Kind::Double => self
                .pick(&["0.0", "1.5", "-2.25", "1e3", "1e300", ".5", "3.0", "1e-7", "123456789.125", "1e21"])
                .into(),
            Kind::Text => {
                let text = self.pick(templates("texts"));
                match self.rng.u32(0..6) {
                    0 => "device.driver".into(),
                    1 => format!("\"{text}\""),
                    2 if !text.contains('\\') => format!("r'{text}'"),
                    3 if !text.contains('\\') => format!("'''{text}'''"),
                    _ => format!("'{text}'"),
                }
            }
            Kind::Bytes => self.pick(&["b''", "b'abc'", "b'\\xff'", "b\"\\303\\277\"", "b'é'"]).into(),
            Kind::Ints => {
                self.pick(&["[]", "[1, 2, 3]", "[3, 1, 2]", "[0]", "lists.range(4)", "[5, 5, 5]"]).into()
            }
            Kind::Texts => self.pick(&["['a', 'b']", "['fish', 'bird', 'fish']", "[]", "['']"]).into(),
            Kind::Lists => self.pick(&["[[1], [2, 3]]", "[[]]", "[]"]).into(),
            Kind::Map => self.pick(&["{'a': 1}", "{'a': 1, 'b': 2}", "{}"]).into(),
            Kind::Quantity => format!("quantity('{}')", self.pick(templates("quantities"))),
            Kind::Semver => format!("semver('{}')", self.pick(templates("versions"))),
            Kind::Ip => format!("ip('{}')", self.pick(templates("addresses"))),
            Kind::Cidr => format!("cidr('{}')", self.pick(templates("networks"))),
            Kind::Url => format!("url('{}')", self.pick(templates("urls")).replace('\'', "\\'")),
            Kind::Format => format!("format.{}()", self.pick(templates("formats"))),
            Kind::Problems => {
                let (format, name) = (self.pick(templates("formats")), self.pick(templates("names")));
                format!("format.{format}().validate('{name}')")
            }
            Kind::Duration => format!("duration('{}')", self.pick(templates("durations"))),
            Kind::Timestamp => format!("timestamp('{}')", self.pick(templates("times"))),
            Kind::Type => self
                .pick(&[
                    "int",
                    "string",
                    "bool",
                    "list",
                    "map",
                    "type",
                    "null_type",
                    "net.IP",
                    "optional_type",
                    "duration",
                    "google.protobuf.Duration",
                ])
                .into(),
            Kind::Dyn => match self.rng.u32(0..12) {
                0 => "null".into(),
                1 => "dyn(1)".into(),
                2 => "device".into(),
                _ => self.attribute_expr(0),
            },
            Kind::OptionalInt => {
                self.pick(&["optional.of(1)", "optional.none()", "{'a': 1}.?a", "[1][?3]"]).into()
            }
            Kind::OptionalDyn => {
                format!("device.attributes[\"{}\"].?{}", self.pick(DOMAINS), self.pick(NAMES))
            }
            Kind::OptionalText => self.pick(&["optional.of('a')", "optional.none()"]).into(),
        }
    }
}

/// The kind that a letter of a template stands for.
fn hole(letter: char) -> Kind {
    match letter {
        'x' => Kind::Bool,
        'i' => Kind::Int,
        'u' => Kind::Uint,
        'd' => Kind::Double,
        't' => Kind::Text,
        'b' => Kind::Bytes,
        'I' | 'l' => Kind::Ints,
        'T' => Kind::Texts,
        'L' => Kind::Lists,
        'M' => Kind::Map,
        'q' => Kind::Quantity,
        'w' => Kind::Semver,
        'a' => Kind::Ip,
        'c' => Kind::Cidr,
        'o' => Kind::Url,
        'f' => Kind::Format,
        'p' => Kind::Problems,
        'e' => Kind::Duration,
        's' => Kind::Timestamp,
        'Y' => Kind::Type,
        'y' => Kind::Dyn,
        '1' => Kind::OptionalInt,
        '2' => Kind::OptionalDyn,
        '3' => Kind::OptionalText,
        other => panic!("no kind {other}"),
    }
}
