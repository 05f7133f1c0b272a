//! The syntax of names. Each check returns upstream's errors; a valid value has none.

use std::borrow::Cow;

/// The errors of a value.
pub(crate) type Wrong = Vec<Cow<'static, str>>;

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;
const PORT_NAME_LENGTH: usize = 15;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
pub(crate) const SUBDOMAIN_OF_ANY_CASE: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must \
     start and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SUBDOMAIN_WITH_UNDERSCORE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
     characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
     for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
     or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// A DNS-1123 label, such as the name of a container or a namespace.
pub(crate) fn dns1123_label(value: &str) -> Wrong {
    let mut wrong = at_most(LABEL_LENGTH, value);
    if !is_label(value) {
        let dots = is_subdomain(value);
        wrong.push(Cow::Borrowed(if dots { "must not contain dots" } else { LABEL }));
    }
    wrong
}

/// A DNS-1123 subdomain, such as the name of most objects.
pub(crate) fn dns1123_subdomain(value: &str) -> Wrong {
    let mut wrong = at_most(SUBDOMAIN_LENGTH, value);
    if !is_subdomain(value) {
        wrong.push(Cow::Borrowed(SUBDOMAIN));
    }
    wrong
}

/// A DNS-1123 subdomain that may contain underscores, such as the DNS search paths of a pod.
pub(crate) fn dns1123_subdomain_with_underscore(value: &str) -> Wrong {
    let mut wrong = at_most(SUBDOMAIN_LENGTH, value);
    let is_part = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part);
        is_enclosed(part, is_lower_alphanumeric, |byte| {
            is_lower_alphanumeric(byte) || matches!(byte, b'-' | b'_')
        })
    };
    if !value.split('.').all(is_part) {
        wrong.push(Cow::Borrowed(SUBDOMAIN_WITH_UNDERSCORE));
    }
    wrong
}

/// A DNS-1035 label, such as the name of a service.
pub(crate) fn dns1035_label(value: &str) -> Wrong {
    let mut wrong = at_most(LABEL_LENGTH, value);
    if !(is_label(value) && value.starts_with(|first: char| first.is_ascii_lowercase())) {
        wrong.push(Cow::Borrowed(LABEL_1035));
    }
    wrong
}

/// The name of a port.
pub(crate) fn port_name(value: &str) -> Wrong {
    let mut wrong = at_most(PORT_NAME_LENGTH, value);
    let bytes = value.as_bytes();
    let mut refuse = |is_wrong: bool, why: &'static str| {
        if is_wrong {
            wrong.push(Cow::Borrowed(why));
        }
    };
    let is_known = |byte: &u8| is_lower_alphanumeric(*byte) || *byte == b'-';
    refuse(
        bytes.is_empty() || !bytes.iter().all(is_known),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    refuse(!bytes.iter().any(u8::is_ascii_lowercase), "must contain at least one letter (a-z)");
    refuse(value.contains("--"), "must not contain consecutive hyphens");
    refuse(value.starts_with('-') || value.ends_with('-'), "must not begin or end with a hyphen");
    wrong
}

/// A port number.
pub(crate) fn port_number(port: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

/// The key of a ConfigMap's or Secret's data.
pub(crate) fn config_key(value: &str) -> Wrong {
    let mut wrong = at_most(SUBDOMAIN_LENGTH, value);
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if value.is_empty() || !value.bytes().all(is_known) {
        wrong.push(Cow::Borrowed(CONFIG_KEY));
    }
    match value {
        "." => wrong.push(Cow::Borrowed("must not be '.'")),
        ".." => wrong.push(Cow::Borrowed("must not be '..'")),
        _ if value.starts_with("..") => wrong.push(Cow::Borrowed("must not start with '..'")),
        _ => {}
    }
    wrong
}

/// The name of an environment variable.
pub(crate) fn env_var(value: &str) -> Wrong {
    let mut wrong = Wrong::new();
    if value.is_empty() {
        wrong.push(Cow::Borrowed("environment variable name must be non-empty"));
    }
    if value.chars().any(|letter| !(' '..='~').contains(&letter) || letter == '=') {
        wrong.push(Cow::Borrowed(
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        ));
    }
    wrong
}

/// A single path segment, such as the name of an RBAC role.
pub(crate) fn path_segment(value: &str) -> Wrong {
    match value {
        "." => return vec![Cow::Borrowed("may not be '.'")],
        ".." => return vec![Cow::Borrowed("may not be '..'")],
        _ => {}
    }
    let mut wrong = Wrong::new();
    if value.contains('/') {
        wrong.push(Cow::Borrowed("may not contain '/'"));
    }
    if value.contains('%') {
        wrong.push(Cow::Borrowed("may not contain '%'"));
    }
    wrong
}

/// Checks the length of a value.
pub(crate) fn at_most(limit: usize, value: &str) -> Wrong {
    if value.len() > limit {
        vec![Cow::Owned(format!("must be no more than {limit} characters"))]
    } else {
        Wrong::new()
    }
}

fn is_label(value: &str) -> bool {
    is_enclosed(value, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || byte == b'-')
}

pub(super) fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

/// Not empty, `edge` characters at both ends and `inner` ones throughout.
pub(super) fn is_enclosed(value: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    edge(*first) && edge(*last) && bytes.iter().all(|byte| inner(*byte))
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_has_no_dots_and_no_capitals() {
        assert!(dns1123_label("a-1").is_empty());
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label("A"), [LABEL]);
        assert_eq!(dns1123_label(""), [LABEL]);
        assert_eq!(dns1123_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
    }

    #[test]
    fn subdomain_is_labels_with_dots() {
        for sound in ["a", "a.b-c.1", "0"] {
            assert!(dns1123_subdomain(sound).is_empty(), "{sound}");
        }
        for wrong in ["", ".", "a..b", "-a", "a-", "a_b", "a.-b"] {
            assert_eq!(dns1123_subdomain(wrong), [SUBDOMAIN], "{wrong}");
        }
    }

    #[test]
    fn port_name_has_a_letter() {
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_name("-a--b").len(), 2);
    }

    #[test]
    fn error_texts_are_single_lines() {
        for text in [LABEL, SUBDOMAIN, SUBDOMAIN_WITH_UNDERSCORE, LABEL_1035, CONFIG_KEY] {
            assert!(!text.contains('\n') && !text.contains("   "), "{text}");
        }
    }
}
