//! Expressions and devices from a seed: mostly well-typed, with a mistake here and there.

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
const TEXTS: &[&str] = &[
    "",
    "a",
    "fish",
    "bird",
    "A100",
    "1.2.3",
    "v1.2",
    "10",
    "-7",
    "1.5",
    "true",
    "1Gi",
    "500m",
    "héllo",
    "a,b,c",
    "x y",
    "2001-02-03T04:05:06Z",
    "1h30m",
    "10.0.0.1",
    "10.0.0.0/8",
    "fe80::1",
    "日本",
    "tab\\there",
    "quote\\\"d",
    "0x1F",
];
const PATTERNS: &[&str] = &[
    "^a",
    "fi.h",
    "[0-9]+",
    "(a|b)*c",
    "\\\\d{2,3}",
    "[^x-z]?",
    "x{2",
    "(?i)FISH",
    "[[:alpha:]]+$",
    "\\\\bw",
    "(",
    "a**",
    "[z-a]",
    "\\\\q",
    "a{3,1}",
    "(?P<n>a)",
    "*",
    "\\\\w+\\\\s*",
    "é",
    ".{0,5}",
    "^$",
    "(?:)",
    "a|",
    "[a",
    "x{1001}",
];
const QUANTITIES: &[&str] = &[
    "0",
    "1",
    "10",
    "1Ki",
    "1.5Gi",
    "100m",
    "0.1",
    "12e6",
    "3E",
    "-5",
    "-1Gi",
    "1n",
    "0.0000000001",
    "9223372036854775807",
    "9223372036854775808",
    "123456789012345678901",
    "1Ei",
    "8Ei",
    "1.25",
    "+7",
    "00012",
    "1e",
    "1kk",
    "",
    "abc",
    ".5",
    "5.",
];
const VERSIONS: &[&str] = &[
    "1.2.3",
    "0.0.1",
    "1.2.3-alpha",
    "1.2.3-alpha.1",
    "1.2.3-alpha.beta",
    "1.2.3+build",
    "2.0.0-rc.1+b5",
    "10.20.30",
    "v1.2.3",
    "1.2",
    "1",
    "01.2.3",
    "1.2.3-01",
    "1.2.x",
    "",
    "1.2.3-",
    "18446744073709551616.0.0",
    "1.2.3+a+b",
];
const ADDRESSES: &[&str] = &[
    "10.0.0.1",
    "127.0.0.1",
    "192.168.1.300",
    "::1",
    "fe80::1",
    "2001:db8::1",
    "::ffff:1.2.3.4",
    "fe80::1%eth0",
    "1.2.3",
    "x",
    "224.0.0.1",
    "ff02::1",
    "0.0.0.0",
    "::",
    "01.2.3.4",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:8:9",
    "255.255.255.255",
    "::1.2.3.4",
    "2001:DB8:0:0:1::1",
];
const NETWORKS: &[&str] = &[
    "10.0.0.0/8",
    "10.1.2.3/16",
    "::/0",
    "fe80::/10",
    "192.168.0.0/33",
    "1.2.3.4",
    "x/8",
    "2001:db8::/32",
    "1.2.3.4/08",
];
const DURATIONS: &[&str] =
    &["1s", "1h30m", "-5ms", "1.5h", "100ns", "0", "3us", "1d", "", "9999999h", "2562047h47m16.854775807s"];
const TIMES: &[&str] = &[
    "2001-02-03T04:05:06Z",
    "1970-01-01T00:00:00Z",
    "2024-02-29T23:59:59.123456789+02:00",
    "2023-02-29T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2020-06-15T12:00:00-08:00",
    "yesterday",
];

/// Makes one question of its seed.
pub struct Generator {
    rng: Rng,
    /// Variables of macros in scope.
    scope: Vec<(String, Kind)>,
    /// One choice in so many is a mistake.
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
                let count = if self.rng.u32(0..40) == 0 { VERSIONS.len() } else { 8 };
                json!({ "version": VERSIONS[self.rng.usize(0..count)] })
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
            Kind::Bool => self.bool_expr(d),
            Kind::Int => self.int_expr(d),
            Kind::Uint => self.choose(
                d,
                &[
                    "uint(%i)",
                    "%u + %u",
                    "%u * 2u",
                    "%u / %u",
                    "%u % 3u",
                    "uint(%d)",
                    "uint(%t)",
                    "%u - %u",
                    "[%u, %u].max()",
                ],
            ),
            Kind::Double => self.choose(
                d,
                &[
                    "%d + %d",
                    "%d * 2.0",
                    "%d / %d",
                    "double(%i)",
                    "double(%t)",
                    "-%d",
                    "%q.asApproximateFloat()",
                    "%d - %d",
                    "double(%u)",
                    "[%d, 1.5].min()",
                ],
            ),
            Kind::Text => self.text_expr(d),
            Kind::Bytes => self.choose(d, &["bytes(%t)", "%b + %b"]),
            Kind::Ints => self.ints_expr(d),
            Kind::Texts => self.choose(
                d,
                &[
                    "%t.split(',')",
                    "%t.split(%t)",
                    "%t.split('', 2)",
                    "[%t, %t]",
                    "%T + %T",
                    "%t.findAll(%r)",
                    "%t.findAll('[a-z]', 2)",
                    "%T.filter(%vt, %Pb)",
                    "%L.map(%vl, 'x')",
                    "%T.map(%vt, %Pt)",
                    "%T.distinct()",
                    "%T.reverse()",
                    "%T.slice(0, 1)",
                    "%T.sort()",
                    "%T.sortBy(%vt, %Pi)",
                ],
            ),
            Kind::Lists => {
                self.choose(d, &["[%I, %I]", "[%I]", "%I.map(%vi, [%Pi])", "[[1], %I]", "%L + %L"])
            }
            Kind::Map => self.choose(
                d,
                &[
                    "{'a': %i}",
                    "{%t: %i, 'b': 2}",
                    "{'a': 1, ?'b': %1}",
                    "%T.transformMap(%vi, %vt, %Pi)",
                    "{'x': 1}.transformMapEntry(%vt, %vi, {%Pt: %Pi})",
                    "{}",
                    "{'k': %i}.transformMap(%vt, %vi, %Pb, %Pi)",
                ],
            ),
            Kind::Quantity => self.choose(
                d,
                &[
                    "quantity(%Q)",
                    "device.capacity[%D].memory",
                    "device.capacity[%D].slots",
                    "%q.add(%q)",
                    "%q.sub(%q)",
                    "%q.add(%i)",
                    "%q.sub(%i)",
                    "quantity(%t)",
                ],
            ),
            Kind::Semver => {
                self.choose(d, &["semver(%V)", "semver(%V, true)", "semver(%t)", "semver(%t, %x)"])
            }
            Kind::Ip => self.choose(d, &["ip(%A)", "%c.ip()", "ip(%t)"]),
            Kind::Cidr => self.choose(d, &["cidr(%N)", "%c.masked()", "cidr(%t)"]),
            Kind::Duration => self.choose(
                d,
                &["duration(%U)", "%e + %e", "%e - %e", "%s - %s", "-%e", "duration(%t)", "[%e, %e].max()"],
            ),
            Kind::Timestamp => {
                self.choose(d, &["timestamp(%S)", "%s + %e", "%s - %e", "timestamp(%i)", "%e + %s"])
            }
            Kind::Type => self.choose(
                d,
                &["type(%i)", "type(%t)", "type(%y)", "type(%q)", "type(%s)", "type(%T)", "type(device)"],
            ),
            Kind::Dyn => self.dyn_expr(d),
            Kind::OptionalInt => self.choose(
                d,
                &[
                    "optional.of(%i)",
                    "optional.none()",
                    "optional.ofNonZeroValue(%i)",
                    "%M.?a",
                    "%M[?%t]",
                    "%I[?%i]",
                    "%1.or(%1)",
                    "%I.first()",
                    "%I.last()",
                    "%1.optMap(%vi, %Pi)",
                    "%1.optFlatMap(%vi, optional.of(%Pi))",
                ],
            ),
            Kind::OptionalDyn => self.choose(
                d,
                &[
                    "device.?attributes[%D].cores",
                    "device.attributes[%D].?model",
                    "device.attributes[?%D].?tags",
                    "%2.or(%2)",
                    "optional.of(%y)",
                    "device.attributes[%D][?%t]",
                    "%2.?a",
                    "%2.optMap(%vy, %Py)",
                ],
            ),
            Kind::OptionalText => self.choose(
                d,
                &[
                    "optional.of(%t)",
                    "%T.first()",
                    "%T[?0]",
                    "%3.or(%3)",
                    "optional.ofNonZeroValue(%t)",
                    "%3.optMap(%vt, %Pt)",
                ],
            ),
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

    fn bool_expr(&mut self, depth: u32) -> String {
        if self.rng.u32(0..8) == 0 {
            let kind = self.any_kind();
            let (a, b) = (self.expr(kind, depth), self.expr(kind, depth));
            let op = self.pick(&["==", "!=", "==", "<", ">="]);
            return format!("{a} {op} {b}");
        }
        self.choose(
            depth,
            &[
                "%x && %x",
                "%x || %x",
                "!%x",
                "%x && %x && %x || %x",
                "%i == %i",
                "%i < %i",
                "%i >= %d",
                "%u > %i",
                "%t == %t",
                "%t != %t",
                "%t < %t",
                "%d <= %d",
                "%b == %b",
                "%I == %I",
                "%y == %i",
                "%y == %t",
                "%y > %i",
                "%y",
                "%y != %y",
                "%y && %x",
                "%y.isGreaterThan(semver(%V))",
                "%t.startsWith(%t)",
                "%t.endsWith(%t)",
                "%t.contains(%t)",
                "%t.matches(%r)",
                "matches(%t, %r)",
                "%y.matches(%r)",
                "%t.find(%r) == 'a'",
                "%i in %I",
                "%t in %T",
                "%i in [1, 2, 3]",
                "%t in ['fish', 'bird']",
                "%y in ['fish', 'A100']",
                "%y in [1, 2.0, 3u]",
                "%t in %M",
                "%y in %T",
                "%i in []",
                "%t in device.attributes",
                "%t in device.attributes[%D]",
                "has(device.attributes[%D].cores)",
                "has(%M.a)",
                "has(device.driver)",
                "has(%y.x)",
                "%I.all(%vi, %Pb)",
                "%I.exists(%vi, %Pb)",
                "%I.exists_one(%vi, %Pb)",
                "%T.all(%vt, %Pb)",
                "%T.exists(%vt, %Pb)",
                "%M.all(%vt, %Pb)",
                "%M.exists(%vt, %vi, %Pb)",
                "%T.all(%vi, %vt, %Pb)",
                "%I.existsOne(%vi, %vi2, %Pb)",
                "%y.exists(%vy, %Pb)",
                "%y.all(%vy, %Pb)",
                "%L.exists(%vl, %Pb)",
                "%I.exists(%vi, %Pi > 1)",
                "%q.isGreaterThan(%q)",
                "%q.isLessThan(%q)",
                "%q == %q",
                "%q.isInteger()",
                "isQuantity(%Q)",
                "isQuantity(%t)",
                "%q != %q",
                "%q.compareTo(%q) >= 0",
                "%w.isLessThan(%w)",
                "%w == %w",
                "isSemver(%V)",
                "isSemver(%V, %x)",
                "%w.compareTo(%w) == 0",
                "isIP(%A)",
                "isCIDR(%N)",
                "%a.isLoopback()",
                "%a.isGlobalUnicast()",
                "%a == %a",
                "%c.containsIP(%A)",
                "%c.containsIP(%a)",
                "%c.containsCIDR(%N)",
                "%c.containsCIDR(%c)",
                "ip.isCanonical(%A)",
                "%a.isUnspecified()",
                "%a.isLinkLocalUnicast()",
                "%a.isLinkLocalMulticast()",
                "%c == %c",
                "%e < %e",
                "%s > %s",
                "%s == %s",
                "%1.hasValue()",
                "%2.hasValue()",
                "%1 == %1",
                "%2.orValue(false)",
                "%3 == %3",
                "%2.orValue(%y) == %y",
                "sets.contains(%I, %I)",
                "sets.intersects(%T, %T)",
                "sets.equivalent(%I, %I)",
                "%I.isSorted()",
                "%T.isSorted()",
                "%y.includes(%t)",
                "%y.includes(%i)",
                "%T.includes(%t)",
                "%Y == %Y",
                "bool(%t)",
                "device.allowMultipleAllocations",
                "device.allowMultipleAllocations == %x",
                "device.driver == %t",
                "%M == %M",
                "%L == %L",
                "cel.bind(dra, device.attributes[%D], has(dra.cores) && dra.cores > %i)",
                "%y < %y",
                "[%x, %x].exists(%vx, %Pb)",
                "%x == %x",
                "string(%t) == %t",
                "%i in %y",
                "type(%y) == int",
                "type(%y) == string",
                "%q.sign() > 0 || sign(%q) < %i",
                "-%y == %i",
                "%y + %y == %i",
                "%y.check('x').allowed()",
                "dyn(%a) == %y",
                "%y - %i > 0",
            ],
        )
    }

    fn int_expr(&mut self, depth: u32) -> String {
        self.choose(
            depth,
            &[
                "%i + %i",
                "%i - %i",
                "%i * %i",
                "%i / %i",
                "%i % %i",
                "-%i",
                "size(%t)",
                "%t.size()",
                "size(%I)",
                "%T.size()",
                "%M.size()",
                "size(%b)",
                "int(%t)",
                "int(%d)",
                "int(%u)",
                "int(%s)",
                "int(%e)",
                "%I[%i]",
                "%M.a",
                "%M[%t]",
                "%I.sum()",
                "%I.max()",
                "%I.min()",
                "%t.indexOf(%t)",
                "%t.lastIndexOf(%t)",
                "%t.indexOf(%t, %i)",
                "%t.lastIndexOf(%t, %i)",
                "%I.indexOf(%i)",
                "%T.lastIndexOf(%t)",
                "%q.asInteger()",
                "sign(%q)",
                "%q.compareTo(%q)",
                "%w.major()",
                "%w.minor()",
                "%w.patch()",
                "%w.compareTo(%w)",
                "%a.family()",
                "%c.prefixLength()",
                "%s.getFullYear()",
                "%s.getHours('+02:30')",
                "%s.getMonth()",
                "%s.getDayOfWeek()",
                "%s.getDayOfYear()",
                "%s.getDate()",
                "%s.getDayOfMonth('-08:00')",
                "%s.getMilliseconds()",
                "%e.getHours()",
                "%e.getMinutes()",
                "%e.getSeconds()",
                "%e.getMilliseconds()",
                "%s.getMinutes('UTC')",
                "%1.orValue(%i)",
                "%1.value()",
                "int(%y)",
                "%I.map(%vi, %Pi)[0]",
                "%1.orValue(0) + 1",
                "size(%y)",
                "%s.getSeconds('12:x')",
            ],
        )
    }

    fn text_expr(&mut self, depth: u32) -> String {
        self.choose(
            depth,
            &[
                "%t + %t",
                "string(%i)",
                "string(%d)",
                "string(%x)",
                "string(%u)",
                "string(%e)",
                "string(%s)",
                "string(%b)",
                "string(%a)",
                "string(%c)",
                "%t.lowerAscii()",
                "%t.upperAscii()",
                "%t.trim()",
                "%t.substring(%i)",
                "%t.substring(%i, %i)",
                "%t.charAt(%i)",
                "%t.replace(%t, %t)",
                "%t.replace('', '-', 2)",
                "%T.join()",
                "%T.join(%t)",
                "%T[0]",
                "%T.max()",
                "%T.min()",
                "%t.find(%r)",
                "strings.quote(%t)",
                "device.driver",
                "%3.orValue(%t)",
                "%3.value()",
                "string(%y)",
                "%y.lowerAscii()",
                "%t.replace(%t, %t, %i)",
                "%y.trim()",
                "%y.join()",
            ],
        )
    }

    fn ints_expr(&mut self, depth: u32) -> String {
        self.choose(
            depth,
            &[
                "[%i, %i]",
                "[%i]",
                "%I + %I",
                "%I.map(%vi, %Pi)",
                "%I.filter(%vi, %Pb)",
                "%I.map(%vi, %Pb, %Pi)",
                "lists.range(3)",
                "lists.range(%i)",
                "%I.sort()",
                "%I.reverse()",
                "%I.distinct()",
                "%I.slice(0, 1)",
                "%I.slice(%i, %i)",
                "%L.flatten()",
                "%L[0]",
                "%T.map(%vt, size(%Pt))",
                "%I.sortBy(%vi, -%Pi)",
                "[%i, ?%1]",
                "%I.transformList(%vi, %vi2, %Pi)",
                "[]",
                "optional.unwrap([%1, %1])",
                "[%1].unwrapOpt()",
                "%M.map(%vt, size(%Pt))",
                "%T.transformList(%vi, %vt, %Pb, %Pi)",
            ],
        )
    }

    fn dyn_expr(&mut self, depth: u32) -> String {
        if self.rng.u32(0..3) > 0 {
            return self.attribute_expr(depth);
        }
        if self.rng.u32(0..3) == 0 {
            let kind = self.any_kind();
            let value = self.expr(kind, depth);
            return format!("dyn({value})");
        }
        self.choose(
            depth,
            &[
                "%2.orValue(%y)",
                "%2.value()",
                "%y.x",
                "%y[0]",
                "%y[%t]",
                "%y[%i]",
                "(%x ? %y : %y).a",
                "%y[%y]",
                "[%y, %y][0]",
                "%y[?0].orValue(%y)",
            ],
        )
    }

    /// Fills one of the templates.
    fn choose(&mut self, depth: u32, templates: &[&str]) -> String {
        let template = self.pick(templates);
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
                'r' => out += &format!("'{}'", self.pick(PATTERNS)),
                'Q' => out += &format!("'{}'", self.pick(QUANTITIES)),
                'V' => out += &format!("'{}'", self.pick(VERSIONS)),
                'A' => out += &format!("'{}'", self.pick(ADDRESSES)),
                'N' => out += &format!("'{}'", self.pick(NETWORKS)),
                'U' => out += &format!("'{}'", self.pick(DURATIONS)),
                'S' => out += &format!("'{}'", self.pick(TIMES)),
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
                let text = self.pick(TEXTS);
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
            Kind::Quantity => format!("quantity('{}')", self.pick(QUANTITIES)),
            Kind::Semver => format!("semver('{}')", self.pick(VERSIONS)),
            Kind::Ip => format!("ip('{}')", self.pick(ADDRESSES)),
            Kind::Cidr => format!("cidr('{}')", self.pick(NETWORKS)),
            Kind::Duration => format!("duration('{}')", self.pick(DURATIONS)),
            Kind::Timestamp => format!("timestamp('{}')", self.pick(TIMES)),
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
