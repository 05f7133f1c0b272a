//! An extender that rejects and prefers nodes by their names, and that can hang and lie.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use supercargo_scheduler::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec};

/// The extender. Clones share its state.
#[derive(Clone)]
pub struct Extender(Arc<Mutex<State>>);

struct State {
    random: Rng,
    is_slow: bool,
    lies: bool,
}

/// Whether it accepts a node of this name.
pub fn accepts(node: &str) -> bool {
    !node.ends_with('7')
}

impl Extender {
    /// An extender that works.
    pub fn new(seed: u64) -> Self {
        let random = Rng::with_seed(seed ^ 0x6578_7465);
        Self(Arc::new(Mutex::new(State { random, is_slow: false, lies: false })))
    }

    /// Whether calls end with the timeout.
    pub fn set_slow(&self, is_slow: bool) {
        self.0.lock().is_slow = is_slow;
    }

    /// Whether answers are wrong.
    pub fn set_lying(&self, lies: bool) {
        self.0.lock().lies = lies;
    }

    /// Whether schedulers wait for it: they get no further within a slice of a slow call.
    pub fn is_busy(&self, now: Duration) -> bool {
        self.0.lock().is_slow && !now.as_secs().is_multiple_of(6)
    }
}

impl Calls for Extender {
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String> {
        let mut state = self.0.lock();
        if state.is_slow {
            return Err(format!("{}: context deadline exceeded", extender.name));
        }
        if state.lies && state.random.bool() {
            let nobody = || vec![Arc::<str>::from("no-such-node")];
            return match question {
                _ if state.random.bool() => Err("simulated failure".to_owned()),
                ExtenderQuestion::Filter { .. } => Ok(ExtenderAnswer::Filtered {
                    nodes: nobody(),
                    failed: Vec::new(),
                    failed_and_unresolvable: vec![("no-such-node".into(), "lie".to_owned())],
                }),
                _ => Ok(ExtenderAnswer::Prioritized(vec![("no-such-node".into(), i64::MAX)])),
            };
        }
        match question {
            ExtenderQuestion::Filter { nodes, .. } => {
                let (failed, nodes) = nodes
                    .iter()
                    .map(|node| Arc::clone(&node.name))
                    .partition::<Vec<_>, _>(|name| !accepts(name));
                let failed = failed.into_iter().map(|name| (name, "simulated".to_owned())).collect();
                Ok(ExtenderAnswer::Filtered { nodes, failed, failed_and_unresolvable: Vec::new() })
            }
            ExtenderQuestion::Prioritize { nodes, .. } => Ok(ExtenderAnswer::Prioritized(
                nodes.iter().map(|node| (Arc::clone(&node.name), node.name.len() as i64 % 10)).collect(),
            )),
            ExtenderQuestion::Preempt { .. } => Err("simulated: preempts nothing".to_owned()),
        }
    }
}
