//! Fault injection: which requests fail, how, and how often.
//!
//! ```
//! use supercargo_apiserver::ApiServer;
//! use supercargo_apiserver::faults::{Fault, Matcher, Rule};
//! use supercargo_apiserver::status::Status;
//!
//! let server = ApiServer::default();
//! // The next two bindings succeed, but their callers get a timeout.
//! let binds = Matcher { verb: "create".into(), subresource: "binding".into(), ..Matcher::default() };
//! let timeout = Fault::AnswerAfter(Status::timeout("request did not complete within the allotted timeout"));
//! server.faults().add(Rule::new(binds, timeout).times(2));
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::status::Status;

/// Selects requests. An empty field matches every value, so `pods` without a subresource also
/// matches their bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Upstream's verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The plural, for example `pods`.
    pub resource: String,
    /// The subresource, for example `binding`.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// A substring of the User-Agent header.
    pub user_agent: String,
}

/// What a fault does to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Delays the request, then handles it.
    Delay(Duration),
    /// Leaves the request without a response until a restart closes its connection.
    Drop,
    /// Responds with this status at once. The request has no effect.
    Answer(Status),
    /// Handles the request, but responds with this status.
    AnswerAfter(Status),
    /// Closes the connection without a response. The request has no effect.
    Reset,
    /// Handles the request, then closes the connection without a response.
    ResetAfter,
    /// Ends a watch after a number of events.
    CutWatch {
        /// The number of events sent before the cut.
        after: usize,
        /// Whether the cut is in the middle of the next event, which breaks the connection.
        mid_frame: bool,
    },
    /// Suppresses a watch's bookmarks, including the one that ends the initial events.
    HoldBookmarks,
}

/// A fault, the requests it applies to, and how often.
#[derive(Clone, Debug)]
pub struct Rule {
    matcher: Matcher,
    fault: Fault,
    skip: u64,
    times: u64,
}

/// Identifies an added rule, for removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

/// The fault rules of a server.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<(RuleId, Rule)>>,
    next: AtomicU64,
}

/// The attributes of a request that faults match.
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
    /// Applies the fault to every matching request.
    pub fn new(matcher: Matcher, fault: Fault) -> Self {
        Self { matcher, fault, skip: 0, times: u64::MAX }
    }

    /// Limits the rule to a number of requests.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// Exempts the first `skip` matching requests.
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
    /// Adds a rule. If several rules match a request, each counts it, and all their faults apply.
    pub fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next.fetch_add(1, Ordering::Relaxed));
        self.rules.lock().push((id, rule));
        id
    }

    /// Removes a rule.
    pub fn remove(&self, id: RuleId) {
        self.rules.lock().retain(|(known, _)| *known != id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.lock().clear();
    }

    /// How many more requests a rule applies to; 0 once it is removed.
    pub fn remaining(&self, id: RuleId) -> u64 {
        let rules = self.rules.lock();
        rules.iter().find(|(known, _)| *known == id).map_or(0, |(_, rule)| rule.times)
    }

    /// Takes the faults that apply to a request. Rules that have no uses left are removed.
    pub(crate) fn take(&self, info: &RequestInfo) -> Vec<Fault> {
        let mut rules = self.rules.lock();
        // The common case.
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
    fn rule_applies_to_matching_requests_up_to_its_count() {
        let faults = Faults::default();
        let matcher = Matcher { verb: "get".into(), name: "a".into(), ..Matcher::default() };
        let id = faults.add(Rule::new(matcher, Fault::Reset).skip(1).times(2));
        let hits: Vec<bool> = (0..4).map(|_| !faults.take(&get("a")).is_empty()).collect();
        assert_eq!(hits, [false, true, true, false]);
        assert_eq!(faults.remaining(id), 0);
        assert!(faults.take(&get("b")).is_empty());
    }

    #[test]
    fn removed_rules_no_longer_apply() {
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
