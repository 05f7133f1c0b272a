//! Plain output, one line per change: for pipes, logs and dumb terminals.

use std::io::{self, Write};

use super::canvas::shortened;
use super::model::{Activity, Model, display_name};
use super::text::{milliseconds, seconds};

/// Line width if standard output is not a terminal.
pub(crate) const WIDTH: usize = 80;

/// Prints new activities.
#[derive(Default)]
pub(crate) struct Lines {
    next: usize,
}

impl Lines {
    /// Prints all activities since the last call.
    pub(crate) fn print(&mut self, model: &Model, out: &mut impl Write) -> io::Result<()> {
        let (new, next) = model.since(self.next);
        for (at, activity) in new {
            let text = match activity {
                Activity::Bound { pod, node, took } => {
                    format!("{} -> {node}  ({})", display_name(pod), milliseconds(*took))
                }
                Activity::Waits { pod, why } => format!("{} waits: {why}", display_name(pod)),
                Activity::Note(text) => format!("* {text}"),
            };
            writeln!(out, "{:>8}  {text}", seconds(*at))?;
        }
        self.next = next;
        out.flush()
    }

    /// Skips past activities.
    pub(crate) fn skip(&mut self, model: &Model) {
        self.next = model.since(self.next).1;
    }
}

/// A list of pod names, truncated to `columns`.
pub(crate) fn names<'a>(
    pods: impl Iterator<Item = &'a supercargo_framework::pod::PodKey>,
    columns: usize,
) -> String {
    let all: Vec<String> = pods.map(display_name).collect();
    let mut text = String::new();
    for (index, name) in all.iter().enumerate() {
        let more = all.len() - index - 1;
        let comma = if index == 0 { "" } else { ", " };
        // Reserves space for the number of omitted pods.
        let reserve = if more == 0 { 0 } else { format!(" and {more} more").len() };
        if index > 0 && text.len() + comma.len() + name.len() + reserve > columns {
            return format!("{text} and {} more", more + 1);
        }
        text.push_str(comma);
        text.push_str(name);
    }
    shortened(&text, columns.max(1)).replace('…', "~")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use supercargo_framework::pod::{PodCondition, PodKey};
    use supercargo_framework::testing::pod;

    use super::*;

    #[test]
    fn each_activity_is_printed_once() {
        let mut model = Model::new("supercargo");
        let ours = |name: &str| pod(name).namespace("default").scheduler("supercargo");
        let mut lines = Lines::default();
        let mut printed = |model: &Model| {
            let mut out = Vec::new();
            lines.print(model, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        model.update_pod(Duration::from_secs(1), &Arc::new(ours("a").build()));
        assert_eq!(printed(&model), "");
        model.update_pod(Duration::from_millis(1003), &Arc::new(ours("a").node("n1").build()));
        model.note(Duration::from_millis(1100), "node n2 joins".to_owned());
        assert_eq!(printed(&model), "   1.0 s  a -> n1  (3 ms)\n   1.1 s  * node n2 joins\n");
        let waiting = ours("b").with(|pod| {
            pod.status.pod_scheduled = Some(PodCondition {
                status: "False".into(),
                reason: "Unschedulable".into(),
                message: "0/2 nodes are available: 2 Insufficient cpu.".into(),
                observed_generation: None,
                last_transition: None,
            });
        });
        model.update_pod(Duration::from_secs(2), &Arc::new(waiting.build()));
        assert_eq!(printed(&model), "   2.0 s  b waits: 0/2 nodes are available: 2 Insufficient cpu.\n");
        model.note(Duration::from_millis(2100), "unseen".to_owned());
        lines.skip(&model);
        let mut out = Vec::new();
        lines.print(&model, &mut out).unwrap();
        assert!(out.is_empty());
    }

    #[test]
    fn list_of_names_is_truncated_to_the_width() {
        let keys: Vec<PodKey> =
            ["aa", "bb", "cc"].map(|name| PodKey { namespace: "default".into(), name: name.into() }).into();
        assert_eq!(names(keys.iter(), 20), "aa, bb, cc");
        assert_eq!(names(keys.iter(), 14), "aa and 2 more");
        assert_eq!(names(keys.iter(), 0), "aa and 2 more");
        assert_eq!(names([].iter(), 5), "");
    }
}
