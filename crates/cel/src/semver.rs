//! Semantic versions as upstream's library (blang/semver 4) reads and orders them.

use std::cmp::Ordering;
use std::fmt;

use crate::gofmt::quote;

/// A version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) numbers: [u64; 3],
    pre: Vec<Pre>,
    build: Vec<String>,
}

/// A part of the version of a pre-release. Numbers come before texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pre {
    Number(u64),
    Text(String),
}

impl Version {
    /// Reads a version. Errors are upstream's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let major = number(major, "Major", "major")?;
        let minor = number(minor, "Minor", "minor")?;
        let (rest, build) = split(rest, '+');
        let (patch, pre) = split(rest, '-');
        let patch = number(patch, "Patch", "patch")?;
        let pre = pre.iter().map(|part| Pre::parse(part)).collect::<Result<_, _>>()?;
        for part in &build {
            if part.is_empty() {
                return Err("Build meta data is empty".into());
            }
            if !part.bytes().all(is_alphanumeric) {
                return Err(format!("Invalid character(s) found in build meta data {}", quote(part)));
            }
        }
        let build = build.into_iter().map(String::from).collect();
        Ok(Self { numbers: [major, minor, patch], pre, build })
    }

    /// Reads a version as people write it: with a `v`, zeros in front, or parts missing.
    pub(crate) fn parse_normalized(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(normalize).collect();
        let is_short = parts.len() < 3;
        if is_short && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".into());
        Self::parse(&parts.join("."))
    }

    /// The order of versions, in which the build does not count.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let by_pre = || match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        };
        self.numbers.cmp(&other.numbers).then_with(by_pre)
    }
}

fn normalize(part: &str) -> String {
    if part.len() <= 1 {
        return part.into();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) { rest.into() } else { format!("0{rest}") }
}

fn split(text: &str, mark: char) -> (&str, Vec<&str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, after.split('.').collect()),
        None => (text, Vec::new()),
    }
}

const fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn number(text: &str, title: &str, name: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {}", quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{title} number must not contain leading zeroes {}", quote(text)));
    }
    parse_uint(text)
}

/// Errors are those of Go's `strconv.ParseUint`; the text has digits only.
fn parse_uint(text: &str) -> Result<u64, String> {
    let reason = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {}: {reason}", quote(text)))
}

impl Pre {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Prerelease is empty".into());
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            if text.len() > 1 && text.starts_with('0') {
                let text = quote(text);
                return Err(format!("Numeric PreRelease version must not contain leading zeroes {text}"));
            }
            return parse_uint(text).map(Self::Number);
        }
        if text.bytes().all(is_alphanumeric) {
            return Ok(Self::Text(text.into()));
        }
        Err(format!("Invalid character(s) found in prerelease {}", quote(text)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (index, pre) in self.pre.iter().enumerate() {
            f.write_str(if index == 0 { "-" } else { "." })?;
            match pre {
                Pre::Number(number) => write!(f, "{number}")?,
                Pre::Text(text) => f.write_str(text)?,
            }
        }
        for (index, part) in self.build.iter().enumerate() {
            write!(f, "{}{part}", if index == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}
