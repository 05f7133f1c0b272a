//! Times as parsed by Go's `time.Parse` and as formatted by the API.

use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime};

/// The precision of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// `metav1.Time`. A fraction is accepted and dropped.
    Seconds,
    /// `metav1.MicroTime`. Requires a fraction of six digits.
    Micros,
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// The time in UTC, in the API's format; `None` for Go's zero time, which is null in JSON. The
/// error is Go's.
pub(crate) fn normalise(text: &str, precision: Precision) -> Result<Option<String>, String> {
    if is_normal(text, precision) {
        return Ok(Some(text.to_owned()));
    }
    let mut reader = Reader { text, rest: text, precision };
    let moment = reader.read()?;
    let shown = show(moment, precision);
    Ok((!shown.starts_with("0001-01-01T00:00:00")).then_some(shown))
}

/// Formats a time for the API.
pub(crate) fn show(moment: DateTime, precision: Precision) -> String {
    let seconds = moment.strftime("%Y-%m-%dT%H:%M:%S");
    match precision {
        Precision::Seconds => format!("{seconds}Z"),
        Precision::Micros => format!("{seconds}.{:06}Z", moment.subsec_nanosecond() / 1000),
    }
}

/// A shortcut for times in the API's format, which most are.
fn is_normal(text: &str, precision: Precision) -> bool {
    let shape = match precision {
        Precision::Seconds => b"dddd-dd-ddTdd:dd:ddZ".as_slice(),
        Precision::Micros => b"dddd-dd-ddTdd:dd:dd.ddddddZ".as_slice(),
    };
    let bytes = text.as_bytes();
    let fits = bytes.len() == shape.len()
        && shape.iter().zip(bytes).all(|(shape, byte)| match shape {
            b'd' => byte.is_ascii_digit(),
            other => other == byte,
        });
    let two = |at: usize| (bytes[at] - b'0') * 10 + (bytes[at + 1] - b'0');
    fits && (1..=12).contains(&two(5))
        && (1..=28).contains(&two(8))
        && two(11) < 24
        && two(14) < 60
        && two(17) < 60
        && !text.starts_with("0001-01-01T00:00:00")
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    precision: Precision,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<DateTime, String> {
        let year = self.number(4, 4, "2006")?;
        self.literal("-")?;
        let month = self.number(2, 2, "01")?;
        self.check((1..=12).contains(&month), "month")?;
        self.literal("-")?;
        let day = self.number(2, 2, "02")?;
        self.literal("T")?;
        let hour = self.number(1, 2, "15")?;
        self.check(hour < 24, "hour")?;
        self.literal(":")?;
        let minute = self.number(2, 2, "04")?;
        self.check(minute < 60, "minute")?;
        self.literal(":")?;
        let second = self.number(2, 2, "05")?;
        self.check(second < 60, "second")?;
        let nanos = self.fraction()?;
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {:?}: extra text: {:?}", self.text, self.rest));
        }
        let date = Date::new(narrow(year), narrow(month), narrow(day));
        let date = date.map_err(|_| self.out_of_range("day"))?;
        date.at(narrow(hour), narrow(minute), narrow(second), nanos)
            .checked_sub(offset.minutes())
            .map_err(|_| self.out_of_range("year"))
    }

    fn number(&mut self, least: usize, most: usize, element: &str) -> Result<i32, String> {
        let count = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if count < least {
            return Err(self.cannot(element));
        }
        let (digits, rest) = self.rest.split_at(count);
        let number = digits.parse().map_err(|_| self.cannot(element))?;
        self.rest = rest;
        Ok(number)
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.cannot(literal))?;
        Ok(())
    }

    /// In nanoseconds.
    fn fraction(&mut self) -> Result<i32, String> {
        let digits = self.rest.strip_prefix(['.', ',']);
        let count = digits.map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
        let (Some(digits), true) =
            (digits, count > 0 && (self.precision == Precision::Seconds || count >= 6))
        else {
            return if self.precision == Precision::Micros { Err(self.cannot(".000000")) } else { Ok(0) };
        };
        let taken = if self.precision == Precision::Micros { 6 } else { count };
        let (fraction, rest) = digits.split_at(taken);
        self.rest = rest;
        let nanos: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        nanos.parse().map_err(|_| self.cannot("05"))
    }

    /// In minutes.
    fn zone(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let well_formed = bytes.len() >= 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit());
        if !well_formed {
            return Err(self.cannot("Z07:00"));
        }
        let two = |at: usize| i32::from(bytes[at] - b'0') * 10 + i32::from(bytes[at + 1] - b'0');
        let (hours, minutes) = (two(1), two(4));
        self.check(hours <= 24, "time zone offset hour")?;
        self.check(minutes < 60, "time zone offset minute")?;
        let sign = if bytes[0] == b'-' { -1 } else { 1 };
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 60 + minutes))
    }

    fn check(&self, holds: bool, what: &str) -> Result<(), String> {
        if holds { Ok(()) } else { Err(self.out_of_range(what)) }
    }

    fn cannot(&self, element: &str) -> String {
        let layout = self.precision.layout();
        format!("parsing time {:?} as {layout:?}: cannot parse {:?} as {element:?}", self.text, self.rest)
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {:?}: {what} out of range", self.text)
    }
}

/// The number has at most four digits, or at most two where the type is smaller.
fn narrow<T: TryFrom<i32> + Default>(number: i32) -> T {
    T::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        let seconds = |text| normalise(text, Precision::Seconds).unwrap();
        assert_eq!(seconds("2020-02-29T23:30:00.5-01:00").unwrap(), "2020-03-01T00:30:00Z");
        assert_eq!(seconds("2020-01-01T00:00:00Z").unwrap(), "2020-01-01T00:00:00Z");
        assert_eq!(seconds("0001-01-01T00:00:00Z"), None);
        let micros = |text| normalise(text, Precision::Micros);
        assert_eq!(
            micros("2020-01-01T00:00:00.123456+01:00").unwrap().unwrap(),
            "2019-12-31T23:00:00.123456Z"
        );
        assert_eq!(micros("2020-01-01T00:00:00.000001Z").unwrap().unwrap(), "2020-01-01T00:00:00.000001Z");
    }

    #[test]
    fn invalid_times_have_the_errors_of_go() {
        let error = |text| normalise(text, Precision::Seconds).unwrap_err();
        assert_eq!(
            error("x"),
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
        );
        assert_eq!(
            error("2020-13-01T00:00:00Z"),
            r#"parsing time "2020-13-01T00:00:00Z": month out of range"#
        );
        assert_eq!(error("2020-02-30T00:00:00Z"), r#"parsing time "2020-02-30T00:00:00Z": day out of range"#);
        assert_eq!(
            error("2020-01-01T00:00:00Zx"),
            r#"parsing time "2020-01-01T00:00:00Zx": extra text: "x""#
        );
        assert_eq!(
            error("2020-01-01 00:00:00Z"),
            r#"parsing time "2020-01-01 00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T""#
        );
        assert_eq!(
            normalise("2020-01-01T00:00:00Z", Precision::Micros).unwrap_err(),
            r#"parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }
}
