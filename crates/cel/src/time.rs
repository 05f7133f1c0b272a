//! Timestamps and durations as Go's `time` reads and prints them. There is no clock here.

use crate::eval_failure::EvalFailure;

const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// An instant, and the offset in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp {
    /// Since 1970, in UTC.
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
    /// East of UTC, in seconds.
    pub(crate) offset: i32,
}

/// A day and time in some offset.
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) day_of_year: i64,
    pub(crate) day_of_week: i64,
    pub(crate) second_of_day: i64,
}

pub(crate) fn overflow() -> EvalFailure {
    EvalFailure::error("timestamp overflow")
}

impl Timestamp {
    pub(crate) fn at(seconds: i64) -> Result<Self, EvalFailure> {
        Self { seconds, nanos: 0, offset: 0 }.checked()
    }

    fn checked(self) -> Result<Self, EvalFailure> {
        if (MIN_SECONDS..=MAX_SECONDS).contains(&self.seconds) { Ok(self) } else { Err(overflow()) }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.seconds == MIN_SECONDS && self.nanos == 0
    }

    pub(crate) fn same_instant(&self, other: &Self) -> bool {
        (self.seconds, self.nanos) == (other.seconds, other.nanos)
    }

    /// This time and a duration in nanoseconds.
    pub(crate) fn plus(&self, duration: i64) -> Result<Self, EvalFailure> {
        let total =
            i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos) + i128::from(duration);
        let seconds =
            i64::try_from(total.div_euclid(i128::from(NANOS))).map_err(|_| EvalFailure::int_overflow())?;
        let nanos = total.rem_euclid(i128::from(NANOS)) as u32;
        Self { seconds, nanos, offset: self.offset }.checked()
    }

    /// The duration since another time, in nanoseconds.
    pub(crate) fn minus(&self, other: &Self) -> Result<i64, EvalFailure> {
        let seconds =
            (self.seconds - other.seconds).checked_mul(NANOS).ok_or_else(EvalFailure::int_overflow)?;
        seconds
            .checked_add(i64::from(self.nanos) - i64::from(other.nanos))
            .ok_or_else(EvalFailure::int_overflow)
    }

    /// The date at an offset from UTC, in seconds.
    pub(crate) fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let (days, second_of_day) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day) = date(days);
        let day_of_year = days - days_before(year, 1, 1);
        Civil { year, month, day, day_of_year, day_of_week: (days + 4).rem_euclid(7), second_of_day }
    }

    /// RFC 3339 with as many digits as needed.
    pub(crate) fn rfc3339(&self) -> String {
        let Civil { year, month, day, second_of_day, .. } = self.civil(self.offset.into());
        let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        let fraction = match self.nanos {
            0 => String::new(),
            nanos => format!(".{nanos:09}").trim_end_matches('0').to_string(),
        };
        let zone = match self.offset {
            0 => "Z".to_string(),
            offset => {
                let minutes = offset.abs() / 60;
                format!("{}{:02}:{:02}", if offset < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
            }
        };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}")
    }

    /// Go's `%v` of a time in UTC.
    pub(crate) fn go_string(&self) -> String {
        let text = self.rfc3339();
        match text.strip_suffix('Z') {
            Some(text) => format!("{} +0000 UTC", text.replacen('T', " ", 1)),
            None => text,
        }
    }

    /// Reads RFC 3339.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, EvalFailure>> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| number(text, from, to);
        let mark = |at: usize, mark: u8| (bytes.get(at) == Some(&mark)).then_some(());
        let (year, month, day) = parse_date(text.get(..10)?)?;
        mark(10, b'T')?;
        let (hour, hour_end) = match number(11, 13) {
            Some(hour) => (hour, 13),
            // Go accepts an hour of one digit.
            None => (number(11, 12)?, 12),
        };
        let at = hour_end;
        let (minute, second) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
        mark(at, b':').and(mark(at + 3, b':'))?;
        let mut rest = text.get(at + 6..)?;
        let mut nanos = 0;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            (end > 0).then_some(())?;
            nanos = format!("{:0<9.9}", &fraction[..end]).parse().ok()?;
            rest = &fraction[end..];
        }
        let offset = zone(rest)?;
        (hour < 24 && minute < 60 && second < 60).then_some(())?;
        let seconds =
            days_before(year, month, day) * DAY + hour * 3600 + minute * 60 + second - i64::from(offset);
        Some(Self { seconds, nanos, offset }.checked())
    }
}

/// The number that these bytes of a text are.
fn number(text: &str, from: usize, to: usize) -> Option<i64> {
    let digits = text.get(from..to)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The year, month and day of a date such as `2006-01-02`.
fn parse_date(text: &str) -> Option<(i64, i64, i64)> {
    let (year, month, day) = (number(text, 0, 4)?, number(text, 5, 7)?, number(text, 8, 10)?);
    let bytes = text.as_bytes();
    let is_valid = bytes.len() == 10
        && (bytes[4], bytes[7]) == (b'-', b'-')
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day);
    is_valid.then_some((year, month, day))
}

/// Whether a text is a date such as `2006-01-02`.
pub(crate) fn is_date(text: &str) -> bool {
    parse_date(text).is_some()
}

fn zone(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits = |range: std::ops::Range<usize>| -> Option<i32> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    (text.len() == 6 && text.as_bytes()[3] == b':').then_some(())?;
    let (hours, minutes) = (digits(1..3)?, digits(4..6)?);
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Go's `time.ParseDuration`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, after) = rest.split_at(end);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut value = whole.checked_mul(unit).filter(|value| *value <= 1 << 63)?;
        value = value.checked_add(part_of(fraction, unit)).filter(|value| *value <= 1 << 63)?;
        total = total.checked_add(value).filter(|value| *value <= 1 << 63)?;
        rest = after;
    }
    if is_negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }
}

/// A fraction of a unit. Digits that do not fit are dropped, as Go does.
fn part_of(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        let Some(next) = value.checked_mul(10).map(|next| next + u64::from(digit - b'0')) else { break };
        if next > 1 << 63 {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}
