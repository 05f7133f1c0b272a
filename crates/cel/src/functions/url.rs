//! Functions of URLs and of named formats.

use std::sync::Arc;

use super::code::Code;
use super::text::text;
use crate::eval_failure::{EvalFailure, Steps};
use crate::map::Map;
use crate::named_format::{NamedFormat, find};
use crate::url::{self, Url};
use crate::value::{Outcome, Value};

pub(super) fn code(overload: &str) -> Option<Code> {
    Some(match overload {
        "string_to_url" => |args, _| match Url::parse(text(&args[0])) {
            Ok(url) => Ok(Value::Url(Arc::new(url))),
            Err(error) => {
                Err(EvalFailure::error(format!("URL parse error during conversion from string: {error}")))
            }
        },
        "is_url_string" => |args, _| Ok(Value::Bool(url::check(text(&args[0])).is_ok())),
        "url_get_scheme" => |args, _| Ok(Value::string(&url(&args[0])?.scheme)),
        "url_get_host" => |args, _| utf8(&url(&args[0])?.host),
        "url_get_hostname" => |args, _| utf8(url(&args[0])?.host_and_port().0),
        "url_get_port" => |args, _| utf8(url(&args[0])?.host_and_port().1),
        "url_get_escaped_path" => |args, _| Ok(Value::string(&url(&args[0])?.path)),
        "url_get_query" => query,
        "format-named" => |args, _| Ok(Value::Optional(constant(text(&args[0])).map(Arc::new))),
        "format-validate" => validate,
        _ => return None,
    })
}

/// The value of a named format.
pub(super) fn constant(name: &str) -> Option<Value> {
    find(name).map(Value::Format)
}

fn url(value: &Value) -> Result<&Url, EvalFailure> {
    match value {
        Value::Url(url) => Ok(url),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

/// A text that was decoded. Upstream's may be any bytes.
fn utf8(bytes: &[u8]) -> Outcome {
    let text = std::str::from_utf8(bytes);
    text.map(Value::string).map_err(|_| EvalFailure::halt("text that is not UTF-8 is not supported"))
}

fn query(args: &[Value], steps: &mut Steps) -> Outcome {
    let url = url(&args[0])?;
    steps.take(url.text.len() as u64 / 4)?;
    let mut parameters = url.parameters().collect::<Vec<_>>();
    parameters.sort_by(|(key, _), (other, _)| key.cmp(other));
    let entries = parameters.chunk_by(|(key, _), (other, _)| key == other).map(|values| {
        let list = values.iter().map(|(_, value)| utf8(value)).collect::<Result<_, _>>()?;
        Ok((utf8(&values[0].0)?, Value::list(list)))
    });
    Ok(Value::Map(Map::new(entries.collect::<Result<_, EvalFailure>>()?)?))
}

fn validate(args: &[Value], steps: &mut Steps) -> Outcome {
    let (Value::Format(NamedFormat { problems, .. }), Value::String(text)) = (&args[0], &args[1]) else {
        return Err(EvalFailure::no_such_overload());
    };
    steps.take(text.len() as u64 / 4)?;
    let problems = problems(text);
    if problems.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(problems.iter().map(|problem| Value::string(problem)).collect())))
}
