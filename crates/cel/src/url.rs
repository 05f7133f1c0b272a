//! URLs as Go's `net/url` reads them.

use std::fmt::Write as _;

use crate::gofmt::{quote, quote_bytes};
use crate::net::parse_address;

/// Go reads no more parameters of a query; with more, it reads none.
const MAX_PARAMETERS: usize = 10_000;

/// An absolute URI, or an absolute path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// Decoded, with the port. It need not be UTF-8.
    pub(crate) host: Vec<u8>,
    /// Encoded.
    pub(crate) path: String,
    /// Encoded.
    query: String,
    /// The whole of it: for comparisons, and to print it.
    pub(crate) text: String,
}

/// A part of a URL, with its rules for escape sequences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

impl Part {
    /// Beside letters, digits and `-_.~`, what stands for itself.
    const fn plain(self) -> &'static [u8] {
        match self {
            Self::Path => b"$&+,/:;=@",
            Self::Host | Self::Zone => b"!$&'()*+,;=:[]<>\"",
            Self::User => b"$&+,;=",
            Self::Query => b"",
            Self::Fragment => b"$&+,/:;=?@!()*",
        }
    }

    fn escapes(self, byte: u8) -> bool {
        !byte.is_ascii_alphanumeric() && !b"-_.~".contains(&byte) && !self.plain().contains(&byte)
    }
}

/// Whether a text is a URL, or Go's error of `ParseRequestURI`.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text, true).map(drop).map_err(|error| format!("parse {}: {error}", quote(text)))
}

impl Url {
    /// Reads a URL. Errors are Go's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        check(text)?;
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let failed = |of: &str, error: String| format!("parse {}: {error}", quote(of));
        let mut url = parse(whole, false).map_err(|error| failed(whole, error))?;
        if !fragment.is_empty() {
            let fragment = normalized(fragment, Part::Fragment).map_err(|error| failed(text, error))?;
            url.text += "#";
            url.text += &fragment;
        }
        Ok(url)
    }

    /// The host and the port.
    pub(crate) fn host_and_port(&self) -> (&[u8], &[u8]) {
        let (mut host, mut port) = (&self.host[..], &b""[..]);
        if let Some(colon) = host.iter().rposition(|byte| *byte == b':')
            && is_optional_port(&host[colon..])
        {
            (host, port) = (&host[..colon], &host[colon + 1..]);
        }
        if let [b'[', inner @ .., b']'] = host {
            host = inner;
        }
        (host, port)
    }

    /// The decoded parameters of the query, in its order. Broken ones are left out.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let is_short = self.query.matches('&').count() < MAX_PARAMETERS;
        let pairs = self.query.split('&').filter(move |pair| is_short && !pair.is_empty());
        pairs.filter(|pair| !pair.contains(';')).filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape(key, Part::Query).ok()?, unescape(value, Part::Query).ok()?))
        })
    }
}

/// Reads a URL without a fragment. One of a request is an absolute URI or path.
fn parse(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && is_request {
        return Err("empty url".into());
    }
    if text == "*" {
        return Ok(Url { path: "*".into(), text: "*".into(), ..Url::default() });
    }
    let (scheme, rest) = split_scheme(text)?;
    let scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let prefix = if scheme.is_empty() { String::new() } else { format!("{scheme}:") };
    let suffix = query.map_or_else(String::new, |query| format!("?{query}"));
    let query = query.unwrap_or_default().to_string();
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            let text = format!("{prefix}{rest}{suffix}");
            return Ok(Url { scheme, query, text, ..Url::default() });
        }
        return Err("invalid URI for request".into());
    }
    let may_have_host = !scheme.is_empty() || !is_request && !rest.starts_with("///");
    let Some(authority) = rest.strip_prefix("//").filter(|_| may_have_host) else {
        let path = normalized(rest, Part::Path)?;
        let text = format!("{prefix}{path}{suffix}");
        return Ok(Url { scheme, path, query, text, ..Url::default() });
    };
    let (authority, rest) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    let (user, host) = parse_authority(&scheme, authority)?;
    let path = normalized(rest, Part::Path)?;
    let is_empty = host.is_empty() && path.is_empty() && user.is_none();
    let slashes = if is_empty || prefix.is_empty() && host.is_empty() && user.is_none() { "" } else { "//" };
    let user = user.map_or_else(String::new, |user| user + "@");
    let text = format!("{prefix}{slashes}{user}{}{path}{suffix}", escape(&host, Part::Host));
    Ok(Url { scheme, host, path, query, text })
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let length = text.find(|c| !is_part(c)).unwrap_or(text.len());
    match text[length..].strip_prefix(':') {
        Some(_) if length == 0 => Err("missing protocol scheme".into()),
        Some(rest) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => Ok((&text[..length], rest)),
        _ => Ok(("", text)),
    }
}

/// The user in the form in which it is printed, and the host.
fn parse_authority(scheme: &str, authority: &str) -> Result<(Option<String>, Vec<u8>), String> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, parse_host(scheme, authority)?));
    };
    let host = parse_host(scheme, host)?;
    let is_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(is_user) {
        return Err("net/url: invalid userinfo".into());
    }
    let printed = |text: &str| Ok::<_, String>(escape(&unescape(text, Part::User)?, Part::User));
    let user = match user.split_once(':') {
        Some((name, password)) => format!("{}:{}", printed(name)?, printed(password)?),
        None => printed(user)?,
    };
    Ok((Some(user), host))
}

fn is_optional_port(text: &[u8]) -> bool {
    match text {
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        text => text.is_empty(),
    }
}

fn check_port(text: &str) -> Result<(), String> {
    if is_optional_port(text.as_bytes()) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quote(text)))
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    match host.rfind('[') {
        Some(0) => return parse_bracketed(host),
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    if let Some(first) = host.find(':') {
        // Hosts of other schemes may contain colons, such as lists of hosts.
        let is_strict = matches!(scheme, "http" | "https");
        check_port(&host[if is_strict { first } else { host.rfind(':').unwrap_or(first) }..])?;
    }
    unescape(host, Part::Host)
}

/// An IPv6 address in brackets, and a port.
fn parse_bracketed(host: &str) -> Result<Vec<u8>, String> {
    let (inner, port) = host[1..].rsplit_once(']').ok_or("missing ']' in host")?;
    check_port(port)?;
    let zone = inner.find("%25").unwrap_or(inner.len());
    let mut address = unescape(&inner[..zone], Part::Host)?;
    address.extend(unescape(&inner[zone..], Part::Zone)?);
    // Text that is not UTF-8 is not an address; the error has a replacement for it.
    let text = String::from_utf8_lossy(&address);
    let ip = parse_address(&text).map_err(|error| format!("invalid host: {error}"))?;
    if ip.is_ipv4() {
        return Err("invalid IP-literal".into());
    }
    Ok([b"[", &address[..], b"]", port.as_bytes()].concat())
}

/// A path or fragment as Go prints it.
fn normalized(text: &str, part: Part) -> Result<String, String> {
    let decoded = unescape(text, part)?;
    let stays = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !part.escapes(byte);
    if text.bytes().all(stays) { Ok(text.into()) } else { Ok(escape(&decoded, part)) }
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// The byte of an escape sequence.
fn escaped(sequence: &[u8]) -> Option<u8> {
    match sequence {
        [b'%', high, low, ..] => Some(hex(*high)? << 4 | hex(*low)?),
        _ => None,
    }
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let sequence = &bytes[at..bytes.len().min(at + 3)];
                let value = escaped(sequence).filter(|value| may_be_escaped(*value, part));
                out.push(value.ok_or_else(|| format!("invalid URL escape {}", quote_bytes(sequence)))?);
                at += 2;
            }
            b'+' if part == Part::Query => out.push(b' '),
            _ if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && part.escapes(byte) => {
                return Err(format!("invalid character {} in host name", quote_bytes(&[byte])));
            }
            _ => out.push(byte),
        }
        at += 1;
    }
    Ok(out)
}

/// Whether a byte may be written as an escape sequence: a host has such ones beyond ASCII only.
fn may_be_escaped(byte: u8, part: Part) -> bool {
    match part {
        Part::Host => byte == b'%' || !byte.is_ascii(),
        Part::Zone => matches!(byte, b'%' | b' ') || !Part::Host.escapes(byte),
        _ => true,
    }
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if part.escapes(byte) {
            let _ = write!(out, "%{byte:02X}");
        } else {
            out.push(char::from(byte));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_printed_as_go_prints_them() {
        let cases = [
            (
                "HTTP://user:p@ss@example.com:80/a b?q=1#f g",
                "http://user:p%40ss@example.com:80/a%20b?q=1#f%20g",
            ),
            ("http://h/%2f%61", "http://h/%2f%61"),
            ("http:///path?", "http:///path?"),
            ("mailto:a b?x#y", "mailto:a b?x#y"),
            ("http://", "http:"),
            ("//h", "//h"),
            ("*", "*"),
        ];
        for (text, printed) in cases {
            assert_eq!(Url::parse(text).map(|url| url.text), Ok(printed.into()), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_has_gos_error() {
        let cases = [
            ("", "empty url"),
            ("a/b", "invalid URI for request"),
            ("https://a:b:c/", "invalid port \":b:c\" after host"),
            ("http://[::1/", "missing ']' in host"),
            ("/%zz", "invalid URL escape \"%zz\""),
            ("/%é", "invalid URL escape \"%é\""),
            ("/%aé", "invalid URL escape \"%a\\xc3\""),
        ];
        for (text, error) in cases {
            let expected = format!("parse {}: {error}", quote(text));
            assert_eq!(Url::parse(text), Err(expected), "{text}");
        }
    }
}
