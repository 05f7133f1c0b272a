//! Whatever a stranger writes: a program or an error, never a panic, and always an end.
#![allow(clippy::unwrap_used, clippy::format_push_string, clippy::format_collect, clippy::unnecessary_wraps)]

use proptest::prelude::*;
use supercargo_cel::{Attribute, Device, Program};

fn device() -> Device {
    let attributes = [
        ("cores", Attribute::Int(8)),
        ("model", Attribute::String("A100".into())),
        ("version", Attribute::Version("1.2.3".into())),
        ("tags", Attribute::Strings(vec!["a".into(), "b".into()])),
        ("fast", Attribute::Bool(true)),
    ];
    Device::new("d", true, attributes.iter().map(|(name, value)| (*name, value)), [("memory", "1Gi")])
        .unwrap()
}

/// Compiles and evaluates, with any result.
fn run(expression: &str) {
    if let Ok(program) = Program::compile(expression) {
        let _ = program.matches(&device());
    }
}

fn error(expression: &str) -> String {
    Program::compile(expression).unwrap().matches(&device()).unwrap_err().to_string()
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let repeat = |open: &str, middle: &str, close: &str, count: usize| {
        format!("{}{middle}{}", open.repeat(count), close.repeat(count))
    };
    for count in [10, 83, 120, 200, 249, 250, 251, 1_000, 3_000] {
        run(&repeat("(", "true", ")", count));
        run(&repeat("[", "1", "]", count));
        run(&repeat("{1:", "1", "}", count));
        run(&repeat("!", "true", "", count));
        run(&repeat("-", "1", "", count));
        run(&repeat("a[", "1", "]", count));
        run(&repeat("f(", "1", ")", count));
        run(&repeat("true ? ", "true", " : true", count));
        run(&repeat("true ? true : ", "true", "", count));
        run(&repeat("device", "", ".a", count));
        run(&repeat("1", "", "+1", count));
        run(&repeat("true", "", "&&true", count));
        run(&repeat("true", "", "==true", count));
        run(&repeat("[1].all(x, ", "true", ")", count));
        run(&repeat("cel.bind(x, [1], ", "x", ")", count));
        run(&repeat("cel.bind(x, [x], ", "x", ")", count));
        run(&repeat("optional.of(", "1", ")", count));
        run(&repeat("dyn([", "1", "])", count));
        run(&format!("'a'.matches('{}')", repeat("(", "a", ")", count)));
        run(&format!("'a'.matches('{}')", "a*".repeat(count)));
    }
}

#[test]
fn what_grows_without_bound_is_refused() {
    let chain = |start: &str, link: &str, count: usize| format!("{start}{}", link.repeat(count));
    for count in [5, 20, 100, 500] {
        run(&format!("{} == optional.none()", chain("optional.of(1)", ".optMap(x, x)", count)));
        let doubled = |init: &str, link: &str| {
            let binds: String = (0..count)
                .map(|i| format!("cel.bind(x{}, {}, ", i + 1, link.replace('x', &format!("x{i}"))))
                .collect();
            format!("cel.bind(x0, {init}, {binds}x{count} == x{count}{}", ")".repeat(count + 1))
        };
        run(&doubled("[1]", "x + x"));
        run(&doubled("'a'", "x + x"));
        run(&doubled("[dyn(1)]", "[dyn(x), dyn(x)]"));
        run(&doubled("'aa'", "x.replace('a', 'aa')"));
        run(&doubled("quantity('1')", "x.add(x)"));
    }
}

#[test]
fn a_list_never_contains_itself() {
    assert_eq!(error("cel.bind(a, [], a + [dyn(a)]) == []"), "list that contains itself");
}

#[test]
fn evaluations_end_at_the_cost_limit() {
    let all = "[1,2,3,4,5,6,7,8,9,10].all(x, ".repeat(7);
    let expression = format!("{all}int('1'.find('[0-9]*')) < 100{}", ")".repeat(7));
    assert_eq!(error(&expression), "operation cancelled: actual cost limit exceeded");
    let expression = "lists.range(900000).map(x, x).size() > 0";
    assert_eq!(error(expression), "operation cancelled: actual cost limit exceeded");
}

#[test]
fn searches_for_patterns_count_their_repetitions() {
    let within = |call: &str| {
        let expression = format!("'{}'.{call}", "a".repeat(4_000));
        let mut work = 1_000_000;
        Program::compile(&expression).unwrap().matches_within(&device(), &mut work)
    };
    for repeated in ["matches('(a?){1000}b')", "find('(a?){1000}b') == ''", "findAll('a|.*b').size() == 4000"]
    {
        assert_eq!(within(repeated), None, "{repeated}");
    }
    for plain in ["matches('^a+$')", "find('a{3}') == 'aaa'", "findAll('a+').size() == 1"] {
        assert_eq!(within(plain), Some(Ok(true)), "{plain}");
    }
}

#[test]
fn keys_of_go_maps_must_be_hashable() {
    assert_eq!(
        error("device.attributes['d'].version in ['a']"),
        "internal error: runtime error: hash of unhashable type cel.Semver"
    );
}

#[test]
fn an_attribute_without_a_value_fails_every_selector() {
    let error = Device::new("d", false, [("x", &Attribute::Unset)], []).unwrap_err();
    assert_eq!(error.to_string(), "attribute x: unsupported attribute value");
}

const PIECES: &[&str] = &[
    "device",
    ".",
    "attributes",
    "[",
    "]",
    "'d'",
    "cores",
    "(",
    ")",
    "{",
    "}",
    ":",
    ",",
    "?",
    "1",
    "2.5",
    "3u",
    "true",
    "null",
    "x",
    "y",
    "&&",
    "||",
    "!",
    "==",
    "!=",
    "<",
    "+",
    "-",
    "*",
    "/",
    "%",
    " in ",
    "all",
    "map",
    "filter",
    "exists",
    "has",
    "cel.bind(",
    "optional.of(",
    "size(",
    "quantity('1Gi')",
    "semver('1.2.3')",
    ".isGreaterThan(",
    "matches('a+')",
    "'a'",
    "b'a'",
    "[1, 2]",
    "{'a': 1}",
    ".orValue(",
    ".?",
    "duration('1s')",
    "timestamp('2001-02-03T04:05:06Z')",
    "ip('::1')",
    "sortBy(x, x)",
    "transformMap(",
    "\n",
    "`",
    "\\",
    "\"",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_compiles_or_does_not(text in "\\PC{0,60}") {
        run(&text);
    }

    #[test]
    fn any_pieces_compile_or_do_not(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..24)) {
        run(&pieces.concat());
    }

    #[test]
    fn any_text_is_an_argument(text in "\\PC{0,40}", function in prop::sample::select(&[
        "quantity", "semver", "ip", "cidr", "duration", "timestamp", "int", "uint", "double", "bool", "bytes", "strings.quote", "isQuantity",
    ][..])) {
        let quoted: String = text.chars().map(|c| format!("\\U{:08x}", c as u32)).collect();
        run(&format!("dyn({function}('{quoted}'))"));
        run(&format!("dyn({function}(device.driver + '{quoted}'))"));
    }

    #[test]
    fn any_text_is_a_pattern(pattern in "\\PC{0,20}|[\\[\\]()*+?{}0-9,a-c^$|\\\\.:P<>-]{0,20}", text in "\\PC{0,20}") {
        let quoted = |text: &str| -> String { text.chars().map(|c| format!("\\U{:08x}", c as u32)).collect() };
        run(&format!("'{}'.matches('{}')", quoted(&text), quoted(&pattern)));
        run(&format!("'{}'.findAll(device.driver.substring(1) + '{}') == []", quoted(&text), quoted(&pattern)));
    }

    #[test]
    fn any_attributes_make_a_device(name in "\\PC{0,20}", text in "\\PC{0,20}", quantity in "[0-9.eEkKMGi+-]{0,30}") {
        let attributes = [Attribute::String(text.as_str().into()), Attribute::Version(text.into())];
        for attribute in &attributes {
            let _ = Device::new(&name, true, [(name.as_str(), attribute)], [(name.as_str(), quantity.as_str())]);
        }
    }
}
