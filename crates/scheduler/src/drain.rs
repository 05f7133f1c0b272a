//! The end: no more pods are taken, and those that can still turn back do.

use supercargo_framework::{Now, Status, Text, Uid};

use crate::scheduler::Scheduler;

/// Why pods are in the queue again that were on their way.
pub(crate) const DRAINED: Text = Text::Static("Drained");

impl Scheduler {
    /// Takes no more pods. Those that Permit holds go back into the queue, and PreBind is made to give up: that may take minutes, and
    /// whoever schedules next begins anew with them. Nothing is said of them, as nothing is wrong with them. What Bind has begun
    /// is let end.
    pub(crate) fn drain(&mut self, now: Now) {
        self.draining = true;
        let held: Vec<Uid> = self.bindings.waiting().iter().map(|pod| pod.uid.clone()).collect();
        for uid in held {
            if let Some(binding) = self.bindings.remove(&uid) {
                self.put_back(now, binding, &DRAINED);
            }
        }
        for uid in self.bindings.pre_binding() {
            self.cancel_binding(&uid, Status::error("the scheduler is stopping"));
        }
    }
}
