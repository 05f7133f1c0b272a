//! A scheduler whose copies tests read.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use supercargo_client::host::SystemClock;
use supercargo_config::{Catalog, Config};
use supercargo_framework::Now;
use supercargo_framework::testing::{node, pod};
use supercargo_scheduler::{Input, Notification, Scheduler};
use supercargo_telemetry::metrics::Metrics;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Insight;
use crate::reload::Generation;
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::{Mailbox, Message};

pub(crate) fn insight(mailbox: Mailbox) -> Arc<Insight> {
    let config = Config::default_with(&Catalog::in_tree()).unwrap();
    let metrics = Metrics::new(&config.features);
    let (_, generations) = watch::channel(Generation::first(Arc::new(config)));
    let (clock, synced) = (Arc::new(SystemClock::default()), CancellationToken::new());
    synced.cancel();
    Arc::new(Insight::new(mailbox, clock, generations, Catalog::in_tree(), metrics, synced))
}

/// A scheduler with a node and a pod that fits, and the number of its copies.
pub(crate) fn owner() -> (Arc<Insight>, JoinHandle<usize>) {
    let config = Config::default_with(&Catalog::in_tree()).unwrap();
    let mut scheduler = Scheduler::new(scheduler_options(&config)).unwrap();
    let node = node("n").allocatable("cpu", "4").allocatable("pods", "10").build();
    scheduler.handle(Now::default(), Input::Node(Notification::Added(Arc::new(node))));
    let pod = pod("p").scheduler("supercargo").request("cpu", "1").build();
    scheduler.handle(Now::default(), Input::QueuedPod(Notification::Added(Arc::new(pod))));
    let (mailbox, messages) = Mailbox::new();
    let owner = thread::spawn(move || {
        let mut copies = 0;
        for message in messages {
            match message {
                Message::Ask(question) => {
                    question(&scheduler);
                    copies += 1;
                }
                Message::Input(input) => {
                    scheduler.handle(Now::default(), *input);
                }
                _ => {}
            }
        }
        copies
    });
    (insight(mailbox), owner)
}

/// Adds a pod on the node of [`owner`].
pub(crate) fn add_pod(insight: &Insight, name: &str) {
    let pod = Arc::new(pod(name).node("n").request("cpu", "1").build());
    insight.mailbox.send(Input::AssignedPod(Notification::Added(pod)));
}
