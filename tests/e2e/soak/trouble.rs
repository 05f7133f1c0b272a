//! Faults of the API server: rejected requests, bad answers, cut watches, lost history, restarts.

use std::fmt;
use std::time::{Duration, Instant};

use http::StatusCode;
use supercargo_apiserver::ApiServer;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::status::Status;

/// The number of requests per fault.
const AT_A_TIME: u64 = 20;
/// The duration of each kind of fault.
const TURN: Duration = Duration::from_secs(2);
/// Faults occur in some rounds out of several: half a minute of three. The backoff of an informer
/// grows with each failure, as in client-go, and resets only after two minutes without one. Without
/// quiet time, nothing would be seen.
const BOUT: (u64, u64) = (15, 90);

/// Injects one kind of fault after the other.
pub(super) struct Trouble {
    server: ApiServer,
    /// How often each kind has occurred.
    had: [u64; KINDS.len()],
    next: usize,
    turns: u64,
    turn_began: Option<Instant>,
}

const KINDS: [&str; 7] =
    ["refusals", "refused bindings", "lost answers", "resets", "cuts", "relists", "restarts"];

/// The watched resources, whose watches can be cut.
const WATCHED: [&str; 6] =
    ["pods", "nodes", "namespaces", "poddisruptionbudgets", "resourceclaims", "resourceslices"];

impl Trouble {
    pub(super) fn new(server: ApiServer) -> Self {
        Self { server, had: [0; KINDS.len()], next: 0, turns: 0, turn_began: None }
    }

    /// Injects the fault that is due, if any.
    pub(super) fn go_on(&mut self) {
        if self.turn_began.is_some_and(|began| began.elapsed() < TURN) {
            return;
        }
        self.turn_began = Some(Instant::now());
        if self.turns % BOUT.1 < BOUT.0 {
            self.make();
        } else {
            self.end();
        }
        self.turns += 1;
    }

    /// Injects the next kind of fault.
    fn make(&mut self) {
        let kind = self.next % KINDS.len();
        let round = self.next / KINDS.len();
        self.next += 1;
        self.had[kind] += 1;
        let resource = WATCHED[round % WATCHED.len()].to_owned();
        let bindings =
            || Matcher { verb: "create".into(), subresource: "binding".into(), ..Matcher::default() };
        let too_many = || Fault::Answer(Status::too_many_requests("the soak wants it so", 1));
        let faults = self.server.faults();
        // Removes the last fault first, because requests that nothing has hit would pile up. A
        // scheduler whose requests are rejected sends one per second and would do nothing else.
        faults.clear();
        match kind {
            0 => drop(faults.add(Rule::new(Matcher::default(), too_many()).times(AT_A_TIME))),
            1 => drop(faults.add(Rule::new(bindings(), too_many()).times(AT_A_TIME))),
            2 => {
                let lost =
                    Fault::AnswerAfter(Status::unknown(StatusCode::GATEWAY_TIMEOUT, "the answer is lost"));
                faults.add(Rule::new(bindings(), lost).times(AT_A_TIME / 4));
            }
            3 => drop(faults.add(Rule::new(Matcher::default(), Fault::Reset).times(AT_A_TIME))),
            4 => self.server.cut_watches(Matcher { resource, ..Matcher::default() }, round.is_multiple_of(2)),
            5 => {
                // Lost history forces a new list.
                self.server.compact();
                self.server.cut_watches(Matcher::default(), false);
            }
            _ => self.server.restart(round.is_multiple_of(2)),
        }
    }

    /// Ends the faults for now.
    pub(super) fn end(&self) {
        self.server.faults().clear();
    }

    /// Whether every kind has occurred.
    pub(super) fn has_been_had(&self) -> bool {
        self.had.iter().all(|times| *times > 0)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let had: Vec<String> =
            KINDS.iter().zip(self.had).map(|(kind, times)| format!("{times} {kind}")).collect();
        f.write_str(&had.join(", "))
    }
}
