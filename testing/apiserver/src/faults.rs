//! Faults on request: which requests go wrong, how, and how often.
//!
//! ```
//! use supercargo_apiserver::ApiServer;
//! use supercargo_apiserver::faults::{Fault, Matcher, Rule};
//! use supercargo_apiserver::status::Status;
//!
//! let server = ApiServer::default();
//! // The next two bindings are done, and their callers told that time ran out.
//! let binds = Matcher { verb: "create".into(), subresource: "binding".into(), ..Matcher::default() };
//! let timeout = Fault::AnswerAfter(Status::timeout("request did not complete within the allotted timeout"));
//! server.faults().add(Rule::new(binds, timeout).times(2));
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::status::Status;

/// Which requests. An empty field matches all, so `pods` without a subresource means their bindings, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Upstream's verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The plural, as `pods`.
    pub resource: String,
    /// As `binding`.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// A part of the User-Agent header.
    pub user_agent: String,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The request waits for so long, then goes on.
    Delay(Duration),
    /// The request is not answered before a restart ends its connection.
    Drop,
    /// The request is answered with this at once, and has no effect.
    Answer(Status),
    /// The request takes effect, and is answered with this.
    AnswerAfter(Status),
    /// The connection ends without an answer, and the request has no effect.
    Reset,
    /// The request takes effect, and the connection ends without an answer.
    ResetAfter,
    /// A watch ends after so many events.
    CutWatch {
        /// How many events it gets first.
        after: usize,
        /// Whether the next event is begun, and the connection broken in the middle of it.
        mid_frame: bool,
    },
    /// A watch gets no bookmarks, not even the one that ends the initial events.
    HoldBookmarks,
}

/// A fault, for which requests, and how often.
#[derive(Clone, Debug)]
pub struct Rule {
    matcher: Matcher,
    fault: Fault,
    skip: u64,
    times: u64,
}

/// A rule that has been added, by which it can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

/// All faults of a server.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<(RuleId, Rule)>>,
    next: AtomicU64,
}

/// What is known of a request before it is carried out.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestInfo {
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) user_agent: String,
}

impl Rule {
    /// A fault for all requests that match.
    pub fn new(matcher: Matcher, fault: Fault) -> Self {
        Self { matcher, fault, skip: 0, times: u64::MAX }
    }

    /// The same, for so many requests.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// The same, after so many that go well.
    #[must_use]
    pub fn skip(self, skip: u64) -> Self {
        Self { skip, ..self }
    }
}

impl Matcher {
    pub(crate) fn matches(&self, info: &RequestInfo) -> bool {
        let is = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        is(&self.verb, info.verb)
            && is(&self.resource, &info.resource)
            && is(&self.subresource, &info.subresource)
            && is(&self.namespace, &info.namespace)
            && is(&self.name, &info.name)
            && info.user_agent.contains(&self.user_agent)
    }
}

impl Faults {
    /// From now on requests go wrong as the rule says. Of several rules that match, each counts the request, and all of
    /// their faults happen.
    pub fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next.fetch_add(1, Ordering::Relaxed));
        self.rules.lock().push((id, rule));
        id
    }

    /// Takes a rule away.
    pub fn remove(&self, id: RuleId) {
        self.rules.lock().retain(|(known, _)| *known != id);
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        self.rules.lock().clear();
    }

    /// How many requests a rule will still hit; 0 when it is gone.
    pub fn remaining(&self, id: RuleId) -> u64 {
        let rules = self.rules.lock();
        rules.iter().find(|(known, _)| *known == id).map_or(0, |(_, rule)| rule.times)
    }

    /// What goes wrong with a request. Rules that are used up go.
    pub(crate) fn take(&self, info: &RequestInfo) -> Vec<Fault> {
        let mut rules = self.rules.lock();
        // Nearly always.
        if rules.is_empty() {
            return Vec::new();
        }
        let mut faults = Vec::new();
        for (_, rule) in rules.iter_mut().filter(|(_, rule)| rule.matcher.matches(info)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 {
                rule.times -= 1;
                faults.push(rule.fault.clone());
            }
        }
        rules.retain(|(_, rule)| rule.times > 0);
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(name: &str) -> RequestInfo {
        RequestInfo { verb: "get", resource: "pods".into(), name: name.into(), ..RequestInfo::default() }
    }

    #[test]
    fn a_rule_hits_what_it_matches_as_often_as_it_says() {
        let faults = Faults::default();
        let matcher = Matcher { verb: "get".into(), name: "a".into(), ..Matcher::default() };
        let id = faults.add(Rule::new(matcher, Fault::Reset).skip(1).times(2));
        let hits: Vec<bool> = (0..4).map(|_| !faults.take(&get("a")).is_empty()).collect();
        assert_eq!(hits, [false, true, true, false]);
        assert_eq!(faults.remaining(id), 0);
        assert!(faults.take(&get("b")).is_empty());
    }

    #[test]
    fn rules_are_taken_away() {
        let faults = Faults::default();
        let one = faults.add(Rule::new(Matcher::default(), Fault::Drop));
        let two = faults.add(Rule::new(Matcher::default(), Fault::Reset));
        faults.remove(one);
        assert_eq!(faults.take(&get("a")), [Fault::Reset]);
        assert_eq!(faults.remaining(two), u64::MAX - 1);
        faults.clear();
        assert!(faults.take(&get("a")).is_empty());
    }
}
