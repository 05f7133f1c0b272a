//! The annotations, on pods or their templates, that control how pods behave.

use std::time::Duration;

use serde_json::Value;

use crate::json::{flag, list, text, text_at};

/// The simulated behaviour: `run`, `complete`, `fail` or `crash-loop` for pods, `not-ready` for
/// nodes.
pub const SIMULATE: &str = "supercargo.dev/simulate";
/// How long a pod runs before it completes, fails or crashes, for example `90s`, `1m30s` or
/// `500ms`.
pub const SIMULATE_AFTER: &str = "supercargo.dev/simulate-after";
/// The exit code of a failing or crashing pod's containers; 1 by default.
pub const SIMULATE_EXIT_CODE: &str = "supercargo.dev/simulate-exit-code";

/// The behaviour of a running pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// It keeps running.
    Run,
    /// It ends after a while, whatever its restart policy is.
    End { after: Duration, exit_code: i64 },
    /// Its containers exit repeatedly, and restart with growing delays.
    CrashLoop { after: Duration, exit_code: i64 },
}

impl Script {
    /// The script of a pod. By default a pod of a job completes after `usual`, and other pods keep
    /// running.
    pub(super) fn of(pod: &Value, usual: Duration) -> Self {
        let annotations = pod.pointer("/metadata/annotations").unwrap_or(&Value::Null);
        let after = parse_duration(text(annotations, SIMULATE_AFTER)).unwrap_or(usual);
        let failure =
            text(annotations, SIMULATE_EXIT_CODE).parse().ok().filter(|code| *code != 0).unwrap_or(1);
        match text(annotations, SIMULATE) {
            "complete" => Self::End { after, exit_code: 0 },
            "fail" => Self::End { after, exit_code: failure },
            "crash-loop" => Self::CrashLoop { after, exit_code: failure },
            "run" => Self::Run,
            _ if is_of_job(pod) => Self::End { after, exit_code: 0 },
            _ => Self::Run,
        }
    }
}

fn is_of_job(pod: &Value) -> bool {
    let owners = pod.get("metadata").map_or(&[][..], |metadata| list(metadata, "ownerReferences"));
    text_at(pod, "/spec/restartPolicy") != "Always"
        && owners.iter().any(|owner| text(owner, "kind") == "Job" && flag(owner, "controller"))
}

/// Parses a duration in Go's format.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit) = rest.split_at(end);
        let length = unit.find(|letter: char| letter.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(length);
        let scale = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_parsed_in_the_format_of_go() {
        for (text, expected) in [
            ("5s", Some(5_000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("1.5h", Some(5_400_000)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            ("s", None),
            ("5d", None),
        ] {
            assert_eq!(parse_duration(text), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn pods_keep_running_without_annotation_or_job() {
        let usual = Duration::from_secs(5);
        let after = |seconds| Duration::from_secs(seconds);
        let of = |annotations: Value, owner: &str, policy: &str| {
            let owners = json!([{"kind": owner, "controller": true}]);
            let pod = json!({
                "metadata": {"annotations": annotations, "ownerReferences": owners}, "spec": {"restartPolicy": policy},
            });
            Script::of(&pod, usual)
        };
        assert_eq!(of(json!({}), "ReplicaSet", "Always"), Script::Run);
        assert_eq!(of(json!({}), "Job", "Never"), Script::End { after: usual, exit_code: 0 });
        assert_eq!(of(json!({SIMULATE: "run"}), "Job", "Never"), Script::Run);
        let fails = json!({SIMULATE: "fail", SIMULATE_AFTER: "2s", SIMULATE_EXIT_CODE: "137"});
        assert_eq!(of(fails, "ReplicaSet", "Always"), Script::End { after: after(2), exit_code: 137 });
        let crashes = json!({SIMULATE: "crash-loop", SIMULATE_EXIT_CODE: "0"});
        assert_eq!(of(crashes, "", "Always"), Script::CrashLoop { after: usual, exit_code: 1 });
    }
}
