//! The named formats of Kubernetes, and what is wrong with a text that does not have one.

use crate::time::is_date;
use crate::url;

/// The most bytes of a label.
const MAX_LABEL: usize = 63;
/// The most bytes of a subdomain.
const MAX_SUBDOMAIN: usize = 253;
/// What upstream calls bytes in some messages.
const CHARACTERS: &str = "characters";

/// A format that a text may have.
#[derive(Debug)]
pub(crate) struct NamedFormat {
    /// The name by which expressions know it.
    pub(crate) key: &'static str,
    /// The name by which formats are compared.
    pub(crate) name: &'static str,
    /// The length of a regular expression, from which upstream derives costs.
    pub(crate) pattern_length: u64,
    /// What is wrong with a text.
    pub(crate) problems: fn(&str) -> Vec<String>,
}

static FORMATS: [NamedFormat; 13] = [
    new("dns1123Label", "DNS1123Label", 30, |text| label_problems(text.as_bytes())),
    new("dns1123Subdomain", "DNS1123Subdomain", 60, |text| subdomain_problems(text.as_bytes(), CHARACTERS)),
    new("dns1035Label", "DNS1035Label", 30, |text| dns1035_problems(text.as_bytes())),
    new("qualifiedName", "QualifiedName", 60, qualified_name_problems),
    new("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| label_problems(&without_dash(text))),
    new("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        subdomain_problems(&without_dash(text), CHARACTERS)
    }),
    new("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| dns1035_problems(&without_dash(text))),
    new("labelValue", "LabelValue", 40, label_value_problems),
    new("uri", "URI", 1103, |text| url::check(text).err().into_iter().collect()),
    new("uuid", "uuid", 70, |text| unless(is_uuid(text), "does not match the UUID format")),
    new("byte", "byte", 84, |text| unless(is_base64(text), "invalid base64")),
    new("date", "date", 71, |text| unless(is_date(text), "invalid date")),
    new("datetime", "datetime", 71, |text| unless(is_datetime(text), "invalid datetime")),
];

const fn new(
    key: &'static str,
    name: &'static str,
    pattern_length: u64,
    problems: fn(&str) -> Vec<String>,
) -> NamedFormat {
    NamedFormat { key, name, pattern_length, problems }
}

/// Finds a format.
pub(crate) fn find(key: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.key == key)
}

fn unless(is_valid: bool, problem: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![problem.into()] }
}

/// Adds the problem of a text that is too long.
fn limit(length: usize, most: usize, unit: &str, problems: &mut Vec<String>) {
    if length > most {
        problems.push(format!("must be no more than {most} {unit}"));
    }
}

/// A prefix may end with a dash. Upstream puts a letter in the place of the last two bytes.
fn without_dash(text: &str) -> Vec<u8> {
    match text.as_bytes() {
        [start @ .., _, b'-'] => [start, b"a"].concat(),
        bytes => bytes.to_vec(),
    }
}

fn is_label(bytes: &[u8]) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
    let is_part = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_part)
}

fn is_subdomain(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'.').all(is_label)
}

fn label_problems(bytes: &[u8]) -> Vec<String> {
    let mut problems = Vec::new();
    limit(bytes.len(), MAX_LABEL, CHARACTERS, &mut problems);
    if is_label(bytes) {
        return problems;
    }
    problems.push(if is_subdomain(bytes) {
        "must not contain dots".into()
    } else {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
         end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .into()
    });
    problems
}

fn subdomain_problems(bytes: &[u8], unit: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(bytes.len(), MAX_SUBDOMAIN, unit, &mut problems);
    if !is_subdomain(bytes) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .into(),
        );
    }
    problems
}

fn dns1035_problems(bytes: &[u8]) -> Vec<String> {
    let mut problems = Vec::new();
    limit(bytes.len(), MAX_LABEL, CHARACTERS, &mut problems);
    if !is_label(bytes) || bytes[0].is_ascii_digit() {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .into(),
        );
    }
    problems
}

fn is_label_key(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    is_end(bytes.first()) && is_end(bytes.last()) && text.bytes().all(is_part)
}

fn qualified_name_problems(text: &str) -> Vec<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let (prefix, name) = match text.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            let optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {RULE} {optional}")];
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            let of_prefix = subdomain_problems(prefix.as_bytes(), "bytes");
            problems.extend(of_prefix.into_iter().map(|problem| format!("prefix part {problem}")));
        }
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > MAX_LABEL {
        problems.push(format!("name part must be no more than {MAX_LABEL} bytes"));
    }
    if !is_label_key(name) {
        problems.push(format!("name part {RULE}"));
    }
    problems
}

fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(text.len(), MAX_LABEL, "bytes", &mut problems);
    if !text.is_empty() && !is_label_key(text) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .into(),
        );
    }
    problems
}

/// Groups of hexadecimal digits, with or without each of the dashes.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((digits, after)) = rest.split_at_checked(length) else { return false };
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

/// A date, `t` or `T`, and a time of day with its zone. What follows another `t` does not count.
fn is_datetime(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let is_zone =
        |zone: &str| zone.eq_ignore_ascii_case("z") || has_form(zone, "+00:00") || has_form(zone, "-00:00");
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    has_form(clock, "00:00:00")
        && &clock[..2] <= "23"
        && &clock[3..5] <= "59"
        && &clock[6..] <= "59"
        && (is_zone(rest) || after_fraction(rest).is_some_and(is_zone))
}

/// What follows a fraction, which any character begins.
fn after_fraction(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    let first = chars.next().filter(|c| *c != '\n')?;
    let digits = &text[first.len_utf8()..];
    let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    (after.len() < digits.len()).then_some(after)
}

/// Whether a text has digits where the form has them, and else is the same.
fn has_form(text: &str, form: &str) -> bool {
    let fits = |(byte, form): (u8, u8)| if form == b'0' { byte.is_ascii_digit() } else { byte == form };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}
