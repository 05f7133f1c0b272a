//! A candidate: acquires, renews and releases the lease.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use kube::Client;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::identity::{jittered, new_identity};
use super::leader_events::LeaderEvents;
use super::lease::{Failure, Lease, LeaseClient, LeaseName, Record, micros};
use super::lease_watch::LeaseWatch;
use super::observed::{Action, Observed};
use super::{Fence, Leadership, Timing};
use crate::api::Api;
use crate::host::Host;

/// How long shutdown waits for the last event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LossReason {
    /// Another candidate holds the lease.
    #[error("{holder} holds lease {lease} now")]
    Taken {
        /// The lease.
        lease: String,
        /// Its holder.
        holder: String,
    },
    /// The lease could not be renewed in time, so others may take it.
    #[error("lease {lease} could not be renewed within {within:?}: {reason}")]
    NotRenewed {
        /// The lease.
        lease: String,
        /// The minimum time since the last renewal was sent.
        within: Duration,
        /// The error of the last attempt.
        reason: String,
    },
}

/// An involuntary end of leadership.
#[derive(Debug)]
pub struct Loss {
    /// The reason.
    pub why: LossReason,
    event: JoinHandle<()>,
}

impl Loss {
    /// Waits briefly for the event about the loss to be written.
    pub async fn event_written(self) {
        // A failure is already logged.
        let _ = timeout(EVENT_TIMEOUT, self.event).await;
    }
}

/// A candidate.
pub struct Elector {
    client: LeaseClient,
    timing: Timing,
    identity: Arc<str>,
    events: LeaderEvents,
    /// The client for watching the lease; `None` for polling only.
    watch: Option<Client>,
    fence: Fence,
    host: Host,
    random: Rng,
    leadership: watch::Sender<Leadership>,
    observed: Option<Observed>,
    /// When the last successful renewal was sent.
    renewed: Option<Instant>,
}

/// The outcome of an attempt that the server answered.
enum Attempt {
    /// This candidate holds the lease.
    Ours,
    /// Another candidate holds it at least until then.
    Theirs { holder: String, until: Instant },
}

impl Elector {
    /// A candidate for the lease. It sends requests by `api` and watches by `watch`. The
    /// `fence` is open while it leads. Events name `component` as their source.
    pub fn new(
        name: LeaseName,
        timing: Timing,
        api: Api,
        watch: Option<Client>,
        component: Arc<str>,
        fence: Fence,
        host: Host,
    ) -> Self {
        let mut random = host.seed.numbers("election");
        let identity: Arc<str> = new_identity(&host.name, &mut random).into();
        let leadership = Leadership {
            lease: name.name.as_str().into(),
            identity: Arc::clone(&identity),
            holder: None,
            is_leader: false,
            last_renewal: None,
            lease_duration: timing.lease_duration,
        };
        let events = LeaderEvents {
            api: api.clone(),
            name: name.clone(),
            identity: Arc::clone(&identity),
            component,
            host: host.clone(),
        };
        let client = LeaseClient { api, name, timeout: timing.request_timeout() };
        let (leadership, _) = watch::channel(leadership);
        let (observed, renewed) = (None, None);
        Self { client, timing, identity, events, watch, fence, host, random, leadership, observed, renewed }
    }

    /// The observed leader.
    pub(crate) fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Runs until leadership is lost, or until `resign` is cancelled; then it releases the lease.
    pub(crate) async fn run(mut self, resign: CancellationToken) -> Option<Loss> {
        if !self.acquire(&resign).await {
            return None;
        }
        let lost = self.keep(&resign).await;
        if let Some(why) = &lost {
            self.fence.close();
            tracing::warn!(lease = %self.client.name, reason = %why, "stopped leading");
        } else if let Err(failure) = self.release().await {
            tracing::warn!(lease = %self.client.name, error = failure.message, "failed to release lock");
        }
        self.leadership.send_modify(|leadership| leadership.is_leader = false);
        let event = self.record_event("stopped leading");
        match lost {
            Some(why) => Some(Loss { why, event }),
            None => {
                let _ = timeout(EVENT_TIMEOUT, event).await;
                None
            }
        }
    }

    /// Tries to acquire the lease; returns false if `resign` is cancelled first.
    async fn acquire(&mut self, resign: &CancellationToken) -> bool {
        tracing::info!(lease = %self.client.name, identity = %self.identity, "attempting to acquire leader lease...");
        let lease_watch = self.watch.clone().map(|client| LeaseWatch::start(client, &self.client.name));
        let lease_changed = async || match &lease_watch {
            Some(lease_watch) => lease_watch.changed().await,
            None => pending().await,
        };
        loop {
            let mut next = Instant::now() + jittered(self.timing.retry_period, &mut self.random);
            // Attempts are not cancelled: one may acquire the lease.
            match self.attempt().await {
                Ok(Attempt::Ours) => break,
                Ok(Attempt::Theirs { until, .. }) => next = next.min(until),
                Err(failure) => self.complain(&failure),
            }
            tokio::select! {
                () = resign.cancelled() => return false,
                () = sleep_until(next) => {}
                () = lease_changed() => {}
            }
        }
        tracing::info!(lease = %self.client.name, identity = %self.identity, "successfully acquired lease");
        self.record_event("became leader");
        true
    }

    /// Renews the lease until it is lost or `resign` is cancelled.
    async fn keep(&mut self, resign: &CancellationToken) -> Option<LossReason> {
        let mut reason = "this process was not running".to_owned();
        loop {
            let deadline = self.deadline();
            let next = (Instant::now() + self.timing.retry_period).min(deadline);
            tokio::select! {
                () = resign.cancelled() => return None,
                () = sleep_until(next) => {}
            }
            // After the deadline no renewal is sent: the process may have been suspended, and
            // another candidate may lead.
            if Instant::now() >= deadline {
                return Some(self.not_renewed(reason));
            }
            match timeout_at(deadline, self.attempt()).await {
                Ok(Ok(Attempt::Ours)) => {}
                Ok(Ok(Attempt::Theirs { holder, .. })) => {
                    return Some(LossReason::Taken { lease: self.client.name.to_string(), holder });
                }
                Ok(Err(failure)) => {
                    self.complain(&failure);
                    reason = failure.message;
                }
                Err(_) => return Some(self.not_renewed("no answer".to_owned())),
            }
        }
    }

    /// When leadership ends without another renewal.
    fn deadline(&self) -> Instant {
        self.renewed.map_or_else(Instant::now, |renewed| renewed + self.timing.hold())
    }

    fn not_renewed(&self, reason: String) -> LossReason {
        LossReason::NotRenewed { lease: self.client.name.to_string(), within: self.timing.hold(), reason }
    }

    fn complain(&self, failure: &Failure) {
        tracing::warn!(lease = %self.client.name, error = failure.message, "cannot acquire or renew the lease");
    }

    /// Acquires or renews the lease if possible.
    async fn attempt(&mut self) -> Result<Attempt, Failure> {
        if let Some(lease) = self.known_as_ours() {
            match self.write(Some(lease)).await {
                Ok(()) => return Ok(Attempt::Ours),
                Err(failure) => tracing::warn!(
                    lease = %self.client.name,
                    error = failure.message,
                    "failed to update lock optimistically, falling back to slow path"
                ),
            }
        }
        let Some(lease) = self.client.get().await? else {
            self.observed = None;
            return self.write(None).await.map(|()| Attempt::Ours);
        };
        let now = Instant::now();
        let observed = Observed::see(self.observed.take(), lease, now);
        let action = observed.action(&self.identity, now);
        self.report(&observed.record.holder);
        let (lease, holder) = (observed.lease.clone(), observed.record.holder.clone());
        self.observed = Some(observed);
        match action {
            Action::Wait(until) => Ok(Attempt::Theirs { holder, until }),
            Action::Renew | Action::Take => self.write(Some(lease)).await.map(|()| Attempt::Ours),
        }
    }

    /// The known lease, if it is ours and can be renewed without reading it. The update is rejected
    /// if anyone has changed it.
    fn known_as_ours(&self) -> Option<Lease> {
        let observed = self.observed.as_ref()?;
        let is_ours = observed.record.holder == *self.identity && observed.end() > Instant::now();
        is_ours.then(|| observed.lease.clone())
    }

    /// Writes this candidate as holder into the lease, or creates it.
    async fn write(&mut self, lease: Option<Lease>) -> Result<(), Failure> {
        let now = micros(self.host.wall());
        let mut record = Record {
            holder: self.identity.to_string(),
            duration_seconds: self.timing.lease_seconds(),
            acquired: now.clone(),
            renewed: now,
            transitions: 0,
        };
        let moment = self.fence.moment();
        let sent = moment.at;
        let written = match lease {
            Some(lease) => {
                let before = lease.record();
                if before.holder == record.holder {
                    (record.acquired, record.transitions) = (before.acquired, before.transitions);
                } else {
                    record.transitions = before.transitions.saturating_add(1);
                }
                self.client.update(&lease.with(&record)).await?
            }
            None => self.client.create(&Lease::new(&self.client.name, &record)).await?,
        };
        // Counted from sending: others observe the renewal later.
        self.renewed = Some(sent);
        self.observed = Some(Observed { record: written.record(), lease: written, since: sent });
        self.fence.open_for(self.timing.hold(), moment);
        self.leadership.send_modify(|leadership| {
            leadership.holder = Some(Arc::clone(&leadership.identity));
            leadership.is_leader = true;
            leadership.last_renewal = Some(sent);
        });
        Ok(())
    }

    /// Reports a new holder of the lease.
    fn report(&self, holder: &str) {
        let is_news = self.leadership.send_if_modified(|leadership| {
            let is_news = leadership.holder.as_deref().unwrap_or_default() != holder;
            leadership.holder = (!holder.is_empty()).then(|| holder.into());
            is_news
        });
        if is_news && !holder.is_empty() {
            tracing::info!(lease = %self.client.name, leader = holder, "new leader elected");
        }
    }

    /// Releases the lease, so that the next leader need not wait for its expiry. Tries until the
    /// renew deadline, as client-go does.
    async fn release(&mut self) -> Result<(), Failure> {
        self.fence.release();
        let Some(Observed { lease, .. }) = self.observed.clone() else { return Ok(()) };
        let within = self.timing.renew_deadline;
        let released = timeout(within, self.give_up(lease)).await;
        if released.unwrap_or_else(|_| Err(Failure::late(within)))? {
            self.leadership.send_modify(|leadership| leadership.holder = None);
            tracing::info!(lease = %self.client.name, "released lease");
        }
        Ok(())
    }

    /// Gives the lease up unless another candidate holds it; returns whether it did. Reads the
    /// lease again after each conflict with another writer, and after any failure of the first try:
    /// the answer to the last renewal may have been lost.
    async fn give_up(&self, mut lease: Lease) -> Result<bool, Failure> {
        let mut is_first = true;
        loop {
            match self.write_free(&lease).await {
                Ok(()) => return Ok(true),
                Err(failure) if is_first || failure.status == Some(StatusCode::CONFLICT) => is_first = false,
                Err(failure) => return Err(failure),
            }
            match self.client.get().await? {
                Some(current) if current.record().holder == *self.identity => lease = current,
                _ => return Ok(false),
            }
        }
    }

    /// Writes the lease without holder.
    async fn write_free(&self, lease: &Lease) -> Result<(), Failure> {
        let now = micros(self.host.wall());
        let transitions = lease.record().transitions;
        // The shortest duration that the API accepts, as in client-go.
        let record = Record {
            holder: String::new(),
            duration_seconds: 1,
            acquired: now.clone(),
            renewed: now,
            transitions,
        };
        self.client.update(&lease.with(&record)).await.map(drop)
    }

    /// Writes an event about this candidate in the background.
    fn record_event(&self, what: &'static str) -> JoinHandle<()> {
        let (events, lease) = (self.events.clone(), self.observed.clone());
        tokio::spawn(async move {
            if let Some(Observed { lease, .. }) = lease {
                events.record(lease, what).await;
            }
        })
    }
}
