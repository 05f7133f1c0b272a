//! Informers of other kinds: those that plugins watch and the server serves.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use kube_informers::{DiscoveryError, HandlerOptions, Indexers, ListWatchError, discover_resource};
use supercargo_framework::Text;
use supercargo_framework::objects::Object;
use supercargo_scheduler::Input;
use tokio_util::sync::CancellationToken;

use super::{Forward, Informers};
use supercargo_codec::ObjectKind;
use supercargo_owner::owner::Mailbox;

/// First delay between discovery requests that fail; doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest delay between discovery requests that fail.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How often discovery is repeated for a resource that is not served: an upgrade or a
/// CustomResourceDefinition may add it.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);

/// A resource that plugins watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedResource {
    name: Text,
    pub(crate) group: String,
    version: String,
    pub(crate) plural: String,
}

impl WantedResource {
    /// Parses the name of a built-in kind, or `<plural>.<version>.<group>`.
    pub(crate) fn new(name: &Text) -> Option<Self> {
        if let Some(kind) = ObjectKind::of(name) {
            let gvr = kube_informers::Kind::gvr(&kind);
            let [group, version, plural] = [&gvr.group, &gvr.version, &gvr.resource].map(ToString::to_string);
            return Some(Self { name: name.clone(), group, version, plural });
        }
        let mut parts = name.splitn(3, '.').map(str::to_owned);
        let (plural, version, group) = (parts.next()?, parts.next()?, parts.next()?);
        let is_name = !name.contains('/') && ![&plural, &version, &group].iter().any(|part| part.is_empty());
        is_name.then(|| Self { name: name.clone(), group, version, plural })
    }

    pub(crate) fn group_version(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
    }

    /// The kind of the resource, if the server serves it.
    async fn discover(&self, client: &kube::Client) -> Result<Option<ObjectKind>, DiscoveryError> {
        match discover_resource(client, &self.group, &self.version, &self.plural).await {
            Ok(found) if found.supports("list") && found.supports("watch") => Ok(Some(
                ObjectKind::of(&self.name)
                    .unwrap_or_else(|| ObjectKind::dynamic(self.name.clone(), found.resource)),
            )),
            Ok(_) | Err(DiscoveryError::UnknownResource { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The same cause may affect many groups: it is reported once, without them.
fn cause(error: &DiscoveryError) -> String {
    match error {
        DiscoveryError::Request { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

impl Informers {
    /// Starts informers of these resources; returns those that are not served. Returns once
    /// discovery of all has succeeded, or `give_up` is cancelled.
    pub(crate) async fn watch_objects(
        &self,
        mailbox: &Mailbox,
        resources: &[Text],
        give_up: &CancellationToken,
    ) -> Vec<WantedResource> {
        let wanted = resources.iter().filter_map(|name| {
            let wanted = WantedResource::new(name);
            if wanted.is_none() {
                tracing::error!(kind = %name, "invalid resource name; want <plural>.<version>.<group>");
            }
            wanted
        });
        let mut not_served = Vec::new();
        for (wanted, kind) in self.discover_patiently(wanted.collect(), give_up).await {
            match kind {
                Some(kind) => self.watch(mailbox, kind),
                None => not_served.push(wanted),
            }
        }
        if !give_up.is_cancelled() {
            for wanted in &not_served {
                let (kind, version) = (&wanted.name, wanted.group_version());
                tracing::warn!(%kind, %version, "resource not served; plugins see none of it yet");
            }
        }
        self.start();
        not_served
    }

    /// The kind of each resource, if the server serves it. Retries errors; resources whose
    /// discovery has not succeeded when `give_up` is cancelled have none.
    async fn discover_patiently(
        &self,
        mut pending: Vec<WantedResource>,
        give_up: &CancellationToken,
    ) -> Vec<(WantedResource, Option<ObjectKind>)> {
        let mut discovered = Vec::new();
        let mut wait = FIRST_RETRY;
        loop {
            let mut failed: BTreeMap<String, Vec<WantedResource>> = BTreeMap::new();
            let mut unanswered = Vec::new();
            for (wanted, kind) in self.discover(pending).await {
                match kind {
                    Ok(kind) => discovered.push((wanted, kind)),
                    // The client has logged the outage.
                    Err(DiscoveryError::Request { source: ListWatchError::Transport(error), .. }) => {
                        tracing::debug!(kind = %wanted.name, %error, "cannot discover whether it is served");
                        unanswered.push(wanted);
                    }
                    Err(error) => failed.entry(cause(&error)).or_default().push(wanted),
                }
            }
            for (error, of) in &failed {
                let (server, resources) = (&self.server, of.len());
                tracing::warn!(%server, resources, %error, "cannot discover which resources are served; retrying");
            }
            pending = failed.into_values().flatten().chain(unanswered).collect();
            let is_over =
                pending.is_empty() || give_up.run_until_cancelled(tokio::time::sleep(wait)).await.is_none();
            if is_over {
                discovered.extend(pending.into_iter().map(|wanted| (wanted, None)));
                return discovered;
            }
            wait = LONGEST_RETRY.min(wait * 2);
        }
    }

    /// Asks the server for all of these at the same time.
    async fn discover(
        &self,
        wanted: Vec<WantedResource>,
    ) -> Vec<(WantedResource, Result<Option<ObjectKind>, DiscoveryError>)> {
        let discover = async |wanted: WantedResource| {
            let kind = wanted.discover(&self.client).await;
            (wanted, kind)
        };
        join_all(wanted.into_iter().map(discover)).await
    }

    /// Starts an informer of each resource once the server serves it. Its events requeue pods like
    /// any other event.
    pub(crate) async fn watch_once_served(&self, mailbox: &Mailbox, mut not_served: Vec<WantedResource>) {
        while !not_served.is_empty() {
            tokio::time::sleep(DISCOVERY_PERIOD).await;
            let discovered = self.discover(std::mem::take(&mut not_served)).await;
            for (wanted, kind) in discovered {
                // Errors are retried in the next round.
                match kind.unwrap_or_default() {
                    Some(kind) => {
                        tracing::info!(kind = %wanted.name, "resource is now served; watching it");
                        self.watch(mailbox, kind);
                    }
                    None => not_served.push(wanted),
                }
            }
            self.start();
        }
    }

    /// Waits until the handler of this kind has synced. Returns immediately if the kind is not
    /// served.
    pub(crate) async fn wait_for_sync(&self, kind: &Text) {
        let registration = self.others.lock().get(kind).cloned();
        if let Some(registration) = registration {
            registration.synced().await;
        }
    }

    /// Starts an informer of the kind, unless it has one.
    fn watch(&self, mailbox: &Mailbox, kind: ObjectKind) {
        let name = kind.resource().clone();
        let mut others = self.others.lock();
        if others.contains_key(&name) {
            return;
        }
        let informer =
            self.factory.informer_for(std::sync::Arc::new(kind), |parts| parts.build(Indexers::default()));
        self.stats.add(&informer);
        let handler: Forward<Object> = Forward { mailbox: mailbox.clone(), input: Input::Object };
        match informer.add_event_handler(handler, HandlerOptions::named(name.to_string())) {
            Ok(registration) => drop(others.insert(name, registration)),
            // Only a stopped informer rejects a handler, and then the process is shutting down.
            Err(error) => tracing::warn!(%error, "cannot add event handler"),
        }
    }
}
