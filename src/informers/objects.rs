//! The informers of other kinds: those that plugins want, as far as the server serves them.

use std::time::Duration;

use futures::future::join_all;
use kube_informers::{DiscoveryError, HandlerOptions, Indexers, discover_resource};
use supercargo_framework::Text;
use supercargo_framework::objects::Object;
use supercargo_scheduler::Input;
use tokio_util::sync::CancellationToken;

use super::{Forward, Informers};
use crate::owner::Mailbox;
use supercargo_codec::ObjectKind;

/// A server that cannot say what it serves is asked again after this, then after twice as long, and so on.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// But not later than this.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How often a kind that is not served is looked for: it may come with an upgrade, or a CustomResourceDefinition.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// A kind that is wanted: the name by which plugins want it, and where it may be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedResource {
    name: Text,
    group: String,
    version: String,
    plural: String,
}

impl WantedResource {
    /// The kind of this name: one with a type of its own, or `<plural>.<version>.<group>`.
    fn new(name: &Text) -> Option<Self> {
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

    /// The kind as the server serves it, if it does.
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

    /// The same, asking until the server answers; `None` too when `give_up` is cancelled before.
    async fn discover_patiently(
        &self,
        client: &kube::Client,
        give_up: &CancellationToken,
    ) -> Option<ObjectKind> {
        let mut wait = FIRST_RETRY;
        loop {
            match self.discover(client).await {
                Ok(found) => return found,
                Err(error) => {
                    tracing::warn!(kind = %self.name, %error, "cannot find out whether it is served");
                }
            }
            give_up.run_until_cancelled(tokio::time::sleep(wait)).await?;
            wait = LONGEST_RETRY.min(wait * 2);
        }
    }
}

impl Informers {
    /// Has these kinds watched, and no other; returns those that the server does not serve. Returns when the server has
    /// said of each whether it does, or `give_up` is cancelled.
    pub(crate) async fn watch_objects(
        &self,
        mailbox: &Mailbox,
        resources: &[Text],
        give_up: &CancellationToken,
    ) -> Vec<WantedResource> {
        let wanted = resources.iter().filter_map(|name| {
            let wanted = WantedResource::new(name);
            if wanted.is_none() {
                tracing::error!(kind = %name, "a plugin wants what cannot be watched: it is no <plural>.<version>.<group>");
            }
            wanted
        });
        let discovered = join_all(wanted.map(|wanted| async {
            let kind = wanted.discover_patiently(&self.client, give_up).await;
            (wanted, kind)
        }));
        let mut not_served = Vec::new();
        for (wanted, kind) in discovered.await {
            match kind {
                Some(kind) => self.watch(mailbox, kind),
                None => not_served.push(wanted),
            }
        }
        if !give_up.is_cancelled() {
            for WantedResource { name, .. } in &not_served {
                tracing::warn!(kind = %name, "not served: for plugins there are none of it until it is");
            }
        }
        self.start();
        not_served
    }

    /// Watches each of these kinds once the server serves it. Pods that its objects can help are tried as they come.
    pub(crate) async fn watch_once_served(&self, mailbox: &Mailbox, mut not_served: Vec<WantedResource>) {
        while !not_served.is_empty() {
            tokio::time::sleep(LOOK_AGAIN).await;
            let looked = join_all(not_served.into_iter().map(|wanted| async {
                // One that could not be asked is asked again.
                let kind = wanted.discover(&self.client).await.unwrap_or_default();
                (wanted, kind)
            }));
            not_served = Vec::new();
            for (wanted, kind) in looked.await {
                match kind {
                    Some(kind) => {
                        tracing::info!(kind = %wanted.name, "served now, watching");
                        self.watch(mailbox, kind);
                    }
                    None => not_served.push(wanted),
                }
            }
            self.start();
        }
    }

    /// Waits until the handler of this kind has seen what exists. Of one that is not served nothing does.
    pub(crate) async fn known(&self, kind: &Text) {
        let registration = self.others.lock().get(kind).cloned();
        if let Some(registration) = registration {
            registration.synced().await;
        }
    }

    /// Has a kind watched, unless it is.
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
            // Only an informer that has ended takes no handler, and then we are about to end.
            Err(error) => tracing::warn!(%error, "cannot hear of objects"),
        }
    }
}
