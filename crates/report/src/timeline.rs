//! What happened to a pod.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::Timestamp;
use supercargo_framework::pod::PodKey;
use supercargo_scheduler::{Attempt, Entry, Happening, History};

use super::{Page, Width, document, page};
use crate::words::count;

/// For people.
pub fn timeline(pod: &PodKey, history: &History, width: Width) -> String {
    page(width, |page| write(page, pod, history))
}

fn write(page: &mut Page, pod: &PodKey, History { entries, cut_at }: &History) -> std::fmt::Result {
    page.wrapped("", &headline(pod, entries))?;
    if !entries.is_empty() {
        writeln!(page, "\n{:<23}{:>9}  EVENT", "TIME (UTC)", "AFTER")?;
    }
    let mut last = None;
    for entry in entries {
        let after = last.map_or_else(|| "-".to_owned(), |last| duration(entry.time.since(last)));
        let time = moment(entry.time).replace('T', " ").replace('Z', "");
        page.wrapped(&format!("{time}{after:>9}  "), &event(&entry.what))?;
        last = Some(entry.time);
    }
    if let Some(begin) = cut_at {
        writeln!(page)?;
        page.wrapped("", &format!("The log begins at {}.", moment(*begin)))?;
    }
    Ok(())
}

/// Where the pod is now, and how long that took.
fn headline(pod: &PodKey, entries: &[Entry]) -> String {
    // Before, there may have been another pod of this name.
    let begin = entries.iter().rposition(|entry| entry.what == Happening::Added).unwrap_or_default();
    let entries = &entries[begin..];
    let Some(last) = entries.last() else { return format!("The log has nothing about {pod}") };
    // Its binding may fail after it was deleted.
    match entries
        .iter()
        .map(|entry| &entry.what)
        .find(|what| matches!(what, Happening::Deleted | Happening::Ended))
    {
        Some(Happening::Deleted) => return format!("{pod} is gone: it was deleted"),
        Some(_) => return format!("{pod} is gone: it ended, or was deleted"),
        None => {}
    }
    let number = entries.iter().rev().find_map(|entry| match entry.what {
        Happening::Chosen(_, Attempt { number, .. }) | Happening::Failed(_, Attempt { number, .. }) => {
            Some(number)
        }
        _ => None,
    });
    let tries = count(number.unwrap_or_default() as usize, "attempt");
    let added = entries.first().filter(|first| first.what == Happening::Added);
    let since = added.map_or_else(String::new, |added| {
        format!(", {} after it was added", duration(last.time.since(added.time)))
    });
    match &last.what {
        Happening::Bound(node) => format!("{pod} is on {node}: bound{since}, with {tries}"),
        Happening::BoundElsewhere(node) => format!("{pod} is on {node}: another scheduler bound it"),
        Happening::Chosen(node, _) => format!("{pod} is being bound to {node}"),
        Happening::Permitted => format!("{pod} is being bound: Permit lets it go"),
        Happening::Waits(plugin) => format!("{pod} waits on Permit, for {plugin}"),
        Happening::Gated(plugin) => format!("{pod} is held by {plugin} before it is queued"),
        Happening::PreemptedBy { namespace, name } => format!("{pod} is evicted for {namespace}/{name}"),
        _ => format!("{pod} is pending after {tries}"),
    }
}

fn event(what: &Happening) -> String {
    match what {
        Happening::Added => "added to the queue".to_owned(),
        Happening::Gated(plugin) => format!("held by {plugin}"),
        Happening::Released => "no longer held".to_owned(),
        Happening::Woken(cause) => format!("worth another attempt: {cause}"),
        Happening::Chosen(node, attempt) => format!("{} chose {node}", attempt_text(*attempt)),
        Happening::Waits(plugin) => format!("waits on Permit, for {plugin}"),
        Happening::Permitted => "Permit let it go".to_owned(),
        Happening::Bound(node) => format!("bound to {node}"),
        Happening::Failed(message, attempt) => format!("{} failed: {message}", attempt_text(*attempt)),
        Happening::Preempts(node, pods) => format!("preempts {} on {node}", count(*pods, "pod")),
        Happening::PreemptedBy { namespace, name } => format!("evicted for {namespace}/{name}"),
        Happening::GaveUp(cause) => format!("gave its node up: {cause}"),
        Happening::BoundElsewhere(node) => format!("bound to {node} by another scheduler"),
        Happening::Deleted => "deleted".to_owned(),
        Happening::Ended => "ended, or was deleted".to_owned(),
    }
}

fn attempt_text(Attempt { number, after_flush }: Attempt) -> String {
    let why = if after_flush { ", after the longest wait," } else { "" };
    format!("attempt {number}{why}")
}

/// A time in milliseconds, as the API writes it.
pub fn moment(time: Timestamp) -> String {
    let seconds = time.to_rfc3339();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), time.0.rem_euclid(1_000_000) / 1000)
}

/// A duration with at most two units.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// For programs.
pub fn timeline_json(pod: &PodKey, History { entries, cut_at }: &History) -> String {
    let fields = json!({
        "headline": headline(pod, entries),
        "pod": { "namespace": pod.namespace, "name": pod.name },
        "events": entries.iter().map(entry_json).collect::<Vec<_>>(),
        "logBegins": cut_at.map(moment),
    });
    document("Timeline", fields)
}

fn entry_json(Entry { time, what, .. }: &Entry) -> Value {
    let mut object = match what {
        Happening::Added => json!({ "event": "Added" }),
        Happening::Gated(plugin) => json!({ "event": "Gated", "plugin": plugin.to_string() }),
        Happening::Released => json!({ "event": "Released" }),
        Happening::Woken(cause) => json!({ "event": "Woken", "cause": cause }),
        Happening::Chosen(node, attempt) => {
            json!({ "event": "Chosen", "node": node, "attempt": attempt.number, "afterFlush": attempt.after_flush })
        }
        Happening::Waits(plugin) => json!({ "event": "Waits", "plugin": plugin.to_string() }),
        Happening::Permitted => json!({ "event": "Permitted" }),
        Happening::Bound(node) => json!({ "event": "Bound", "node": node }),
        Happening::Failed(message, attempt) => {
            json!({
                "event": "Failed", "message": message,
                "attempt": attempt.number, "afterFlush": attempt.after_flush,
            })
        }
        Happening::Preempts(node, pods) => json!({ "event": "Preempts", "node": node, "pods": pods }),
        Happening::PreemptedBy { namespace, name } => {
            json!({ "event": "PreemptedBy", "by": format!("{namespace}/{name}") })
        }
        Happening::GaveUp(cause) => json!({ "event": "GaveUp", "cause": cause.to_string() }),
        Happening::BoundElsewhere(node) => json!({ "event": "BoundElsewhere", "node": node }),
        Happening::Deleted => json!({ "event": "Deleted" }),
        Happening::Ended => json!({ "event": "Ended" }),
    };
    object["time"] = moment(*time).into();
    object["text"] = event(what).into();
    object
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    fn history(happenings: Vec<(i64, Happening)>) -> History {
        let key = pod("p").build().key();
        let entry = |(millis, what)| Entry {
            time: Timestamp(1_767_225_600_000_000 + millis * 1000),
            pod: key.clone(),
            what,
        };
        History { entries: happenings.into_iter().map(entry).collect(), cut_at: None }
    }

    fn attempt(number: u32) -> Attempt {
        Attempt { number, after_flush: number == 2 }
    }

    fn shown(happenings: Vec<(i64, Happening)>) -> String {
        timeline(&pod("p").build().key(), &history(happenings), Width::Usual)
    }

    /// The page draws a lane for each state. Two events leave it as it is.
    #[test]
    fn the_page_knows_the_state_after_each_event() {
        let script = supercargo_page::ASSETS.iter().find(|asset| asset.name == "timeline.js").unwrap();
        let text = || "x".into();
        for happening in [
            Happening::Added,
            Happening::Gated(text()),
            Happening::Released,
            Happening::Woken(text()),
            Happening::Chosen(text(), attempt(1)),
            Happening::Waits(text()),
            Happening::Permitted,
            Happening::Bound(text()),
            Happening::Failed(text(), attempt(1)),
            Happening::Preempts(text(), 1),
            Happening::PreemptedBy { namespace: text(), name: text() },
            Happening::GaveUp(text()),
            Happening::BoundElsewhere(text()),
            Happening::Deleted,
            Happening::Ended,
        ] {
            let entry = history(vec![(0, happening)]).entries.remove(0);
            let event = entry_json(&entry)["event"].as_str().unwrap().to_owned();
            let is_known = script.text.contains(&format!("[\"{event}\", "));
            assert_eq!(is_known, !event.starts_with("Preempt"), "{event}");
        }
    }

    #[test]
    fn a_pod_is_followed_from_its_queue_to_its_node() {
        let text = shown(vec![
            (0, Happening::Added),
            (4, Happening::Failed("0/2 nodes are available".into(), attempt(1))),
            (305_004, Happening::Chosen("node-a".into(), attempt(2))),
            (306_504, Happening::Bound("node-a".into())),
        ]);
        let expected = "\
default/p is on node-a: bound, 5m06s after it was added, with 2 attempts

TIME (UTC)                 AFTER  EVENT
2026-01-01 00:00:00.000        -  added to the queue
2026-01-01 00:00:00.004      4ms  attempt 1 failed: 0/2 nodes are available
2026-01-01 00:05:05.004    5m05s  attempt 2, after the longest wait, chose
                                  node-a
2026-01-01 00:05:06.504     1.5s  bound to node-a
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_first_line_is_about_the_last_pod_of_the_name() {
        let failed = |number| Happening::Failed("full".into(), attempt(number));
        let gone = vec![(0, Happening::Added), (1, Happening::Deleted), (2, failed(1))];
        assert!(shown(gone).starts_with("default/p is gone: it was deleted\n"));
        let again =
            vec![(0, Happening::Added), (1, failed(5)), (2, Happening::Deleted), (3, Happening::Added)];
        assert!(shown(again).starts_with("default/p is pending after 0 attempts\n"));
    }

    #[test]
    fn the_first_line_tells_where_the_pod_is() {
        let first = |what| shown(vec![(0, Happening::Added), (1, what)]).lines().next().unwrap().to_owned();
        assert_eq!(shown(Vec::new()), "The log has nothing about default/p\n");
        let failed = Happening::Failed("no".into(), attempt(1));
        assert_eq!(first(failed), "default/p is pending after 1 attempt");
        assert_eq!(first(Happening::Gated("G".into())), "default/p is held by G before it is queued");
        assert_eq!(first(Happening::Waits("P".into())), "default/p waits on Permit, for P");
        let by_vip = Happening::PreemptedBy { namespace: "default".into(), name: "vip".into() };
        assert_eq!(first(by_vip), "default/p is evicted for default/vip");
        assert_eq!(first(Happening::Deleted), "default/p is gone: it was deleted");
        assert_eq!(first(Happening::Ended), "default/p is gone: it ended, or was deleted");
        let elsewhere = Happening::BoundElsewhere("b".into());
        assert_eq!(first(elsewhere), "default/p is on b: another scheduler bound it");
    }

    #[test]
    fn long_messages_wrap_and_a_cut_log_is_told() {
        let failed = Happening::Failed("word ".repeat(60).into(), attempt(1));
        let mut cut = history(vec![(0, failed)]);
        cut.cut_at = Some(Timestamp(0));
        let text = timeline(&pod("p").build().key(), &cut, Width::Usual);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.ends_with("\nThe log begins at 1970-01-01T00:00:00.000Z.\n"), "{text}");
    }

    #[test]
    fn programs_read_each_event() {
        let answer = history(vec![(7, Happening::Preempts("a".into(), 2)), (3_600_000, Happening::Released)]);
        let object: Value = serde_json::from_str(&timeline_json(&pod("p").build().key(), &answer)).unwrap();
        let first = &object["events"][0];
        assert_eq!((&first["event"], &first["pods"]), (&json!("Preempts"), &json!(2)));
        assert_eq!(first["time"], json!("2026-01-01T00:00:00.007Z"));
        assert_eq!(object["events"][1]["text"], json!("no longer held"));
        let flushed = entry_json(&history(vec![(0, Happening::Chosen("a".into(), attempt(2)))]).entries[0]);
        assert_eq!((&flushed["attempt"], &flushed["afterFlush"]), (&json!(2), &json!(true)));
    }
}
