//! Expressions with every text of a section of `templates.txt` as an argument of each function that
//! reads it. Most fail, so that the error shows the value.

use super::generate::templates;

/// Values for clauses of `format`.
const VALUES: &[&str] = &[
    "1",
    "-5",
    "-9223372036854775808",
    "0u",
    "18446744073709551615u",
    "1.5",
    "-0.0",
    "0.1",
    "-0.00000001",
    "1234567.891",
    "-999.9999999",
    "1e300",
    "5e-324",
    "1e21",
    "double('NaN')",
    "double('Infinity')",
    "-double('Infinity')",
    "'NaN'",
    "'Infinity'",
    "'-Infinity'",
    "'a\"b\\n\u{301}\u{200b}é'",
    "b'\\xff\\000'",
    "b'\\303\\251'",
    "true",
    "null",
    "[]",
    "{}",
    "[1, 'a', 2.5, b'x', null, true, int, duration('1.5s'), timestamp('2001-02-03T04:05:06+01:00')]",
    "[b'\\xff']",
    "[double('NaN'), -double('Infinity'), -0.0, 1u, [1], {'a': 1}]",
    "{'b': 1, 'a': [1.0], '\"': 'x'}",
    "{1: 2u, 10: b'x', 2: {true: null}}",
    "{1.5: 1}",
    "[optional.of(1)]",
    "[[quantity('1')]]",
    "{'a': device}",
    "optional.of(1)",
    "optional.none()",
    "quantity('1')",
    "url('/x')",
    "ip('::1')",
    "device",
    "device.driver",
    "device.attributes",
    "device.attributes['dra.example.com'].name",
    "type(1)",
    "type([1])",
    "duration('1h1ms')",
    "timestamp('2001-02-03T04:05:06.789Z')",
];

/// Fails with the text in the error.
fn shown(text: &str) -> String {
    format!("{{'': true}}[{text}]")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "\\'"))
}

pub fn expressions() -> impl Iterator<Item = String> {
    urls().chain(formats()).chain(clauses()).chain(patterns()).chain(numbers())
}

fn urls() -> impl Iterator<Item = String> {
    templates("urls").iter().flat_map(|text| {
        let url = format!("url({})", quoted(text));
        [
            format!("isURL({})", quoted(text)),
            format!("[dyn({url})].join() == ''"),
            shown(&format!("'%s'.format([[{url}.getScheme(), {url}.getPort(), {url}.getEscapedPath()]])")),
            shown(&format!("'%s'.format([[{url}.getHost(), {url}.getHostname()]])")),
            shown(&format!("'%s'.format([{url}.getQuery()])")),
        ]
    })
}

fn formats() -> impl Iterator<Item = String> {
    let texts = || templates("names").iter().chain(templates("urls"));
    templates("formats").iter().flat_map(move |format| {
        texts().map(move |text| {
            let problems = format!("format.{format}().validate({}).orValue([])", quoted(text));
            shown(&format!("'%s'.format([{problems}])"))
        })
    })
}

fn clauses() -> impl Iterator<Item = String> {
    templates("clauses").iter().flat_map(|clause| {
        // The checker lets any value of an unknown type pass.
        VALUES.iter().flat_map(move |value| {
            [value.to_string(), format!("dyn({value})")]
                .map(|value| shown(&format!("'{clause}'.format([{value}])")))
        })
    })
}

fn patterns() -> impl Iterator<Item = String> {
    const TEXTS: &[&str] = &["aéb Ab1_", "", "日本 Ωω", "ab", "é", "fi.h"];
    templates("patterns").iter().flat_map(|pattern| {
        TEXTS.iter().map(move |text| shown(&format!("'%s'.format([{text:?}.findAll('{pattern}')])")))
    })
}

fn numbers() -> impl Iterator<Item = String> {
    templates("numbers").iter().map(|text| shown(&format!("string(double('{text}'))")))
}
