//! IP addresses and CIDRs as Go's `net/netip` reads and prints them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::gofmt::quote;

/// An IP address without a zone, never an IPv4 address in the form of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip(pub(crate) IpAddr);

/// A network address as written, and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) ip: Ip,
    pub(crate) bits: u8,
}

struct Parsed {
    ip: IpAddr,
    has_zone: bool,
}

impl Ip {
    /// Reads an address. Errors are upstream's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parsed = parse(text).map_err(|error| {
            format!("IP Address {} parse error during conversion from string: {error}", quote(text))
        })?;
        if parsed.has_zone {
            return Err(format!("IP address {} with zone value is not allowed", quote(text)));
        }
        refuse_mapped(parsed.ip, text)?;
        Ok(Self(parsed.ip))
    }

    pub(crate) const fn size(self) -> u64 {
        if self.0.is_ipv4() { 4 } else { 16 }
    }

    pub(crate) fn is_link_local_unicast(self) -> bool {
        match self.0 {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
        }
    }

    pub(crate) fn is_link_local_multicast(self) -> bool {
        match self.0 {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
        }
    }

    pub(crate) fn is_global_unicast(self) -> bool {
        let is_broadcast = matches!(self.0, IpAddr::V4(ip) if ip.is_broadcast());
        !is_broadcast
            && !self.0.is_unspecified()
            && !self.0.is_loopback()
            && !self.0.is_multicast()
            && !self.is_link_local_unicast()
    }

    fn bits(self) -> u128 {
        match self.0 {
            IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
            IpAddr::V6(ip) => ip.to_bits(),
        }
    }

    fn masked(self, bits: u8) -> Self {
        let keep = if bits == 0 { 0 } else { u128::MAX << (128 - u32::from(bits)) };
        let kept = self.bits() & keep;
        Self(match self.0 {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((kept >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(kept)),
        })
    }
}

impl Cidr {
    /// Reads a network. Errors are upstream's, which says some of it twice.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const PARSE: &str = "network address parse error during conversion from string:";
        let parsed = parse_prefix(text)
            .map_err(|error| format!("{PARSE} {PARSE} netip.ParsePrefix({}): {error}", quote(text)))?;
        refuse_mapped(parsed.ip.0, text).map_err(|error| format!("{PARSE} {error}"))?;
        Ok(parsed)
    }

    pub(crate) fn size(self) -> u64 {
        u64::from(self.bits.div_ceil(8))
    }

    pub(crate) fn masked(self) -> Self {
        Self { ip: self.ip.masked(self.bits), bits: self.bits }
    }

    pub(crate) fn contains(self, ip: Ip) -> bool {
        self.ip.0.is_ipv4() == ip.0.is_ipv4() && self.ip.masked(self.bits) == ip.masked(self.bits)
    }

    pub(crate) fn contains_cidr(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains(other.ip)
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IpAddr::V6(ip) = self.0 else { return write!(f, "{}", self.0) };
        // Rust writes some addresses with an IPv4 part; Go writes only mapped ones so.
        if ip.to_ipv4_mapped().is_some() {
            return write!(f, "{ip}");
        }
        let segments = ip.segments();
        let (start, len) = longest_zeros(&segments);
        let part = |segments: &[u16]| segments.iter().map(|s| format!("{s:x}")).collect::<Vec<_>>().join(":");
        if len < 2 {
            return f.write_str(&part(&segments));
        }
        write!(f, "{}::{}", part(&segments[..start]), part(&segments[start + len..]))
    }
}

fn longest_zeros(segments: &[u16; 8]) -> (usize, usize) {
    let (mut best, mut start) = ((0, 0), 0);
    while start < 8 {
        let len = segments[start..].iter().take_while(|segment| **segment == 0).count();
        if len > best.1 {
            best = (start, len);
        }
        start += len.max(1);
    }
    best
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

fn refuse_mapped(ip: IpAddr, text: &str) -> Result<(), String> {
    match ip {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)))
        }
        _ => Ok(()),
    }
}

fn parse_prefix(text: &str) -> Result<Cidr, String> {
    let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
    let parsed = parse(address)?;
    if parsed.has_zone {
        return Err("IPv6 zones cannot be present in a prefix".into());
    }
    let bad = || format!("bad bits after slash: {}", quote(bits));
    if bits.len() > 1 && !(b'1'..=b'9').contains(&bits.as_bytes()[0]) {
        return Err(bad());
    }
    let bits: u64 = match bits.parse::<i64>() {
        Ok(bits) => bits.try_into().map_err(|_| "prefix length out of range")?,
        Err(_) => return Err(bad()),
    };
    if bits > if parsed.ip.is_ipv4() { 32 } else { 128 } {
        return Err("prefix length out of range".into());
    }
    Ok(Cidr { ip: Ip(parsed.ip), bits: bits as u8 })
}

fn fail<T>(text: &str, message: &str, at: &str) -> Result<T, String> {
    let at = if at.is_empty() { String::new() } else { format!(" (at {})", quote(at)) };
    Err(format!("ParseAddr({}): {message}{at}", quote(text)))
}

/// Reads an address, which may have a zone. Errors are Go's.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    parse(text).map(|parsed| parsed.ip)
}

fn parse(text: &str) -> Result<Parsed, String> {
    match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => {
            let fields = parse_v4(text, text)?;
            Ok(Parsed { ip: IpAddr::V4(fields.into()), has_zone: false })
        }
        Some(b':') => parse_v6(text),
        Some(_) => fail(text, "missing IPv6 address", ""),
        None => fail(text, "unable to parse IP", ""),
    }
}

fn parse_v4(all: &str, text: &str) -> Result<[u8; 4], String> {
    let bytes = text.as_bytes();
    let (mut fields, mut at, mut value, mut digits) = ([0; 4], 0, 0_u32, 0);
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return fail(all, "IPv4 field has octet with leading zero", "");
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return fail(all, "IPv4 field has value >255", "");
                }
            }
            b'.' => {
                if index == 0 || index == bytes.len() - 1 || bytes[index - 1] == b'.' {
                    return fail(all, "IPv4 field must have at least one digit", &text[index..]);
                }
                if at == 3 {
                    return fail(all, "IPv4 address too long", "");
                }
                fields[at] = value as u8;
                (at, value, digits) = (at + 1, 0, 0);
            }
            _ => return fail(all, "unexpected character", &text[index..]),
        }
    }
    if at < 3 {
        return fail(all, "IPv4 address too short", "");
    }
    fields[3] = value as u8;
    Ok(fields)
}

fn parse_v6(all: &str) -> Result<Parsed, String> {
    let (mut rest, zone) = match all.split_once('%') {
        Some((_, "")) => return fail(all, "zone must be a non-empty string", ""),
        Some((rest, _)) => (rest, true),
        None => (all, false),
    };
    let mut bytes = Vec::new();
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
    }
    while bytes.len() < 16 && !(rest.is_empty() && ellipsis == Some(bytes.len())) {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if end > 4 {
            return fail(all, "each group must have 4 or less digits", rest);
        }
        if end == 0 {
            return fail(all, "each colon-separated field must have at least one digit", rest);
        }
        if rest[end..].starts_with('.') {
            if ellipsis.is_none() && bytes.len() != 12 {
                let message = "embedded IPv4 address must replace the final 2 fields of the address";
                return fail(all, message, rest);
            }
            if bytes.len() + 4 > 16 {
                let message = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return fail(all, message, rest);
            }
            bytes.extend(parse_v4(all, rest)?);
            rest = "";
            break;
        }
        let value = u16::from_str_radix(&rest[..end], 16).unwrap_or(0);
        bytes.extend(value.to_be_bytes());
        rest = &rest[end..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return fail(all, "unexpected character, want colon", rest);
        };
        if after.is_empty() {
            return fail(all, "colon must be followed by more characters", rest);
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return fail(all, "multiple :: in address", rest);
            }
            ellipsis = Some(bytes.len());
            rest = after;
        }
    }
    if !rest.is_empty() {
        return fail(all, "trailing garbage after address", rest);
    }
    match ellipsis {
        None if bytes.len() < 16 => return fail(all, "address string too short", ""),
        Some(_) if bytes.len() == 16 => {
            return fail(all, "the :: must expand to at least one field of zeros", "");
        }
        Some(at) => {
            let zeros = vec![0; 16 - bytes.len()];
            bytes.splice(at..at, zeros);
        }
        None => {}
    }
    let octets: [u8; 16] = bytes.try_into().unwrap_or_default();
    Ok(Parsed { ip: IpAddr::V6(octets.into()), has_zone: zone })
}
