//! The last write of a process that ends because it makes no progress with a pod.

use std::time::Duration;

use supercargo_framework::plugin::Nomination;
use supercargo_framework::{PodInfo, Timestamp};

use crate::effect::StatusPatch;

/// Marks a pod whose attempt or update has taken `stalled_for`: the next process tries it after all
/// others (see [`supercargo_queue::stall`]).
pub fn stalled(pod: &PodInfo, stalled_for: Duration, now: Timestamp) -> StatusPatch {
    StatusPatch {
        pod: pod.key(),
        uid: pod.uid.clone(),
        condition: Some(supercargo_queue::stall::condition(pod, stalled_for, now)),
        nomination: Nomination::Keep,
    }
}
