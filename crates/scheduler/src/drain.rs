//! Draining: the scheduler takes no more pods and cancels what it can.

use supercargo_framework::{Now, Status, Text, Uid};

use crate::scheduler::Scheduler;

/// The queue event for pods whose binding was cancelled by draining.
pub(crate) const DRAINED: Text = Text::Static("Drained");

impl Scheduler {
    /// Takes no more pods. Pods that Permit holds are requeued, and PreBind is cancelled: it may
    /// take minutes, and the next scheduler starts over with these pods. They get no event or
    /// condition, because nothing is wrong with them. Binds that have started run to their end.
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
