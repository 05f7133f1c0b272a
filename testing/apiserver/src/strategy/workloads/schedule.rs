//! The schedules of cron jobs.

/// Validates a schedule, with the errors of upstream's parser.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    // A time zone prefix is rejected elsewhere.
    let schedule = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest).trim(),
        None => schedule,
    };
    if schedule.starts_with('@') {
        return check_descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        let ranges = field.split(',').filter(|range| !range.is_empty());
        ranges.into_iter().try_for_each(|range| check_range(range, bounds))
    })
}

struct Bounds {
    least: i64,
    most: i64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds { least: 1, most: 12, names: MONTHS },
    Bounds { least: 0, most: 6, names: DAYS },
];
const DESCRIPTORS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

fn check_descriptor(descriptor: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&descriptor) {
        return Ok(());
    }
    let Some(duration) = descriptor.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {descriptor}"));
    };
    if is_duration(duration) {
        return Ok(());
    }
    Err(format!("failed to parse duration {descriptor}: time: invalid duration {duration:?}"))
}

/// Whether Go parses it as a duration: numbers with units, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        if number.len() == rest.len() {
            return false;
        }
        let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
        let Some(after) = units.iter().find_map(|unit| number.strip_prefix(unit)) else { return false };
        rest = after;
        parts += 1;
    }
    parts > 0
}

fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let mut slashes = range.split('/');
    let (span, step, more) = (slashes.next().unwrap_or_default(), slashes.next(), slashes.next());
    let parts: Vec<&str> = span.split('-').collect();
    let (start, mut end) = match parts.as_slice() {
        ["*" | "?", ..] => (bounds.least, bounds.most),
        [only] => (number_or_name(only, bounds)?, number_or_name(only, bounds)?),
        [first, last] => (number_or_name(first, bounds)?, number_or_name(last, bounds)?),
        _ => {
            number_or_name(parts[0], bounds)?;
            return Err(format!("too many hyphens: {range}"));
        }
    };
    if more.is_some() {
        return Err(format!("too many slashes: {range}"));
    }
    let step = match step {
        None => 1,
        Some(step) => {
            let step = number(step)?;
            if parts.len() == 1 {
                end = bounds.most;
            }
            step
        }
    };
    if start < bounds.least {
        return Err(format!("beginning of range ({start}) below minimum ({}): {range}", bounds.least));
    }
    if end > bounds.most {
        return Err(format!("end of range ({end}) above maximum ({}): {range}", bounds.most));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<i64, String> {
    let name = bounds.names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match name.and_then(|index| i64::try_from(index).ok()) {
        Some(index) => Ok(index + bounds.least),
        None => number(text),
    }
}

fn number(text: &str) -> Result<i64, String> {
    let number: i64 = text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })?;
    if number < 0 { Err(format!("negative number ({number}) not allowed: {text}")) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_parsed_as_cron_does() {
        for sound in ["* * * * *", "*/5 0-3 1,15 * MON-FRI", "@hourly", "@every 1h30m", "0 0 31 dec sun"] {
            assert_eq!(check(sound), Ok(()), "{sound}");
        }
        for (schedule, why) in [
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
            ("@bad", "unrecognized descriptor: @bad"),
        ] {
            assert_eq!(check(schedule).unwrap_err(), why, "{schedule}");
        }
    }
}
