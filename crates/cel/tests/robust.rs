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
        run(&doubled("'a'", "'%s%s'.format([x, x])"));
    }
}

#[test]
fn texts_of_values_that_share_parts_are_limited() {
    let binds: String = (0..60).map(|i| format!("cel.bind(x{}, [x{i}, x{i}], ", i + 1)).collect();
    for clause in ["'%s'.format([x60])", "'%s'.format([{'a': x60}])"] {
        let expression = format!("cel.bind(x0, dyn([1]), {binds}{clause} == ''{}", ")".repeat(61));
        let error = error(&expression);
        assert!(["text too long", "too many comparisons"].iter().any(|text| error.contains(text)), "{error}");
    }
}

#[test]
fn a_large_precision_makes_no_large_text() {
    for precision in ["255", "32767", "65535", "2147483648", "9223372036854775807"] {
        for clause in ["f", "e"] {
            let text = format!("'%.{precision}{clause}'.format([1.5]).size() < 70000");
            assert_eq!(Program::compile(&text).unwrap().matches(&device()), Ok(true), "{text}");
        }
    }
}

#[test]
fn many_classes_of_unicode_end() {
    for class in ["\\\\pL", "\\\\p{Han}", "[^\\\\pL]"] {
        let pattern = class.repeat(10_000 / class.len());
        run(&format!("'a'.matches('{pattern}')"));
        run(&format!("lists.range(100).exists(i, 'a'.matches('{pattern}' + device.driver))"));
        run(&format!("'a'.matches('({class}){{1000}}')"));
    }
}

#[test]
fn ranges_without_regard_to_case_are_limited() {
    let error_of = |text: &str| Program::compile(text).err().map(|error| error.to_string());
    for class in ["[b-\\\\x{10ffff}]", "[\\\\Wé]", "[\\\\P{Lu}é]", "[[:^alpha:]é]"] {
        let pattern = format!("(?i){}", class.repeat(200));
        let constant = error_of(&format!("'a'.matches('{pattern}')"));
        let expected = "program instantiation failed: regular expression too large";
        assert_eq!(constant.as_deref(), Some(expected), "{class}");
        let computed = format!("lists.range(1000).exists(i, 'a'.matches('{pattern}' + string(i)))");
        assert_eq!(error(&computed), "operation cancelled: too many comparisons and copies", "{class}");
    }
    run("'A'.matches('(?i)[b-\\\\x{10ffff}]|a')");
}

#[test]
fn many_parameters_of_a_query_are_none() {
    for (count, size) in [(10_000, 1), (10_001, 0)] {
        let query = format!("lists.range({count}).map(i, 'a=1').join('&')");
        let text = format!("url('/?' + {query}).getQuery().size() == {size}");
        assert_eq!(Program::compile(&text).unwrap().matches(&device()), Ok(true), "{text}");
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
        "url", "isURL", "format.named", "format.uri().validate", "format.datetime().validate",
        "format.dns1123SubdomainPrefix().validate", "format.qualifiedName().validate",
    ][..])) {
        let quoted: String = text.chars().map(|c| format!("\\U{:08x}", c as u32)).collect();
        run(&format!("dyn({function}('{quoted}'))"));
        run(&format!("dyn({function}(device.driver + '{quoted}'))"));
        let arguments = "1, -1, 2u, 1.5, 'a', b'a', true, [1], {'a': 1}";
        run(&format!("'{quoted}'.format([{arguments}]) == ''"));
        run(&format!("(device.driver.substring(1) + '{quoted}').format([{arguments}]) == ''"));
    }

    #[test]
    fn any_url_is_read(text in "(http|a)?:?//?[a-z0-9:%@\\[\\]/?#&=;\\PC]{0,30}") {
        let quoted: String = text.chars().map(|c| format!("\\U{:08x}", c as u32)).collect();
        run(&format!("cel.bind(u, url('{quoted}'), u.getHost() + u.getPort() + u.getHostname() == '' || u.getQuery() == {{}})"));
    }

    #[test]
    fn any_format_is_written(text in "([%.0-9sdfebxXo]|\\PC){0,12}") {
        let quoted: String = text.chars().map(|c| format!("\\U{:08x}", c as u32)).collect();
        for value in ["1.5", "-1", "'NaN'", "b'a'", "[dyn(1.5), dyn('a')]"] {
            run(&format!("'{quoted}'.format([{value}]) == ''"));
        }
    }

    #[test]
    fn any_text_is_a_pattern(pattern in "\\PC{0,20}|[\\[\\]()*+?{}0-9,a-cBpL^$|\\\\.:P<>-]{0,20}", text in "\\PC{0,20}") {
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
