//! What goes wrong with the API server meanwhile: it refuses, answers badly, cuts watches, forgets, and is started anew.

use std::fmt;
use std::time::{Duration, Instant};

use http::StatusCode;
use supercargo_apiserver::ApiServer;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::status::Status;

/// So many requests at a time go wrong.
const AT_A_TIME: u64 = 20;
/// How long each kind of trouble has.
const TURN: Duration = Duration::from_secs(2);
/// So many turns of so many have trouble: half a minute of three. An informer's waits grow with each failure, as client-go's do, and
/// start over only after two minutes without one: were there no peace, nobody would see what comes.
const BOUT: (u64, u64) = (15, 90);

/// Makes trouble of one kind after the other.
pub(super) struct Trouble {
    server: ApiServer,
    /// How often there was some of each kind.
    had: [u64; KINDS.len()],
    next: usize,
    turns: u64,
    turn_began: Option<Instant>,
}

const KINDS: [&str; 7] =
    ["refusals", "refused bindings", "lost answers", "resets", "cuts", "relists", "restarts"];

/// What is watched, and so can be cut off.
const WATCHED: [&str; 4] = ["pods", "nodes", "namespaces", "poddisruptionbudgets"];

impl Trouble {
    pub(super) fn new(server: ApiServer) -> Self {
        Self { server, had: [0; KINDS.len()], next: 0, turns: 0, turn_began: None }
    }

    /// Makes some, or none, as it is time for.
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

    /// Makes the next kind of trouble.
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
        // One after the other: of what nobody has met by now there would only be more and more. A scheduler that is refused sends one
        // request a second, and would do nothing else than be refused.
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
                // What was missed is forgotten, so everything has to be listed again.
                self.server.compact();
                self.server.cut_watches(Matcher::default(), false);
            }
            _ => self.server.restart(round.is_multiple_of(2)),
        }
    }

    /// No more for now.
    pub(super) fn end(&self) {
        self.server.faults().clear();
    }

    /// Whether there was some of each kind.
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
