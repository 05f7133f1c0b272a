//! Groups that wait: none starves. As upstream, the leader tries a group that was rejected again
//! after its backoff, for ever, whatever smaller pods come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::InvariantChecker;

/// How long a group may wait for its next attempt, in the time of a leader that nothing disturbs:
/// the longest backoff of a group of thirty pods, and two looks.
const LONGEST_WAIT: Duration = Duration::from_mins(2);

/// A pod that waits in a complete group, as the leader has it.
pub struct Waiting {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// How often it was tried; `None` if the leader does not have it in its queue, or tries it now.
    pub attempts: Option<u32>,
}

/// The pods of complete groups that wait, by UID.
#[derive(Default)]
pub(super) struct Waits(BTreeMap<String, Wait>);

struct Wait {
    process: Arc<str>,
    attempts: Option<u32>,
    /// The calm time of the process when this was first seen.
    since: Duration,
}

impl InvariantChecker {
    /// These pods wait in complete groups. The leader had this much time in which nothing disturbed
    /// it.
    pub fn check_waits(&mut self, process: &Arc<str>, calm: Duration, waiting: Vec<Waiting>) {
        let mut before = std::mem::take(&mut self.waits.0);
        let mut found = Vec::new();
        self.trace.count("checks of waiting groups", waiting.len() as u64);
        for Waiting { name, uid, attempts } in waiting {
            let new = || Wait { process: Arc::clone(process), attempts, since: calm };
            let is_same = |wait: &Wait| wait.process == *process && wait.attempts == attempts;
            let wait = before.remove(&uid).filter(is_same).unwrap_or_else(new);
            let waited = calm.saturating_sub(wait.since);
            self.trace.greatest("longest wait of a group for an attempt, ms", waited.as_millis() as u64);
            if waited > LONGEST_WAIT {
                found.push(format!(
                    "{process}: pod {name} and its group wait, and were not tried for {waited:?}"
                ));
            }
            self.waits.0.insert(uid, wait);
        }
        found.into_iter().for_each(|what| self.fail(what));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::in_true_time;
    use super::*;

    #[test]
    fn a_group_is_tried_again_within_its_longest_backoff() {
        in_true_time(async |checker| {
            let mut is_fine = |process: &str, calm: u64, attempts: u32| {
                let (name, uid) = ("pod".to_owned(), "uid".to_owned());
                let waiting = vec![Waiting { name, uid, attempts: Some(attempts) }];
                checker.check_waits(&process.into(), Duration::from_secs(calm), waiting);
                std::mem::take(&mut checker.failures).is_empty()
            };
            assert!(is_fine("a", 0, 1) && is_fine("a", 120, 1));
            assert!(!is_fine("a", 121, 1));
            assert!(is_fine("a", 122, 2) && is_fine("a", 242, 2), "it was tried");
            assert!(is_fine("b", 243, 2) && is_fine("b", 363, 2), "another process leads");
            assert!(!is_fine("b", 364, 2));
        });
    }
}
