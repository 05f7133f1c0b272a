//! Counts the lists and watches of informers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tower::util::MapRequestLayer;

/// Counts the requests of a client.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Counts>);

#[derive(Default)]
struct Counts {
    lists: AtomicUsize,
    watches: AtomicUsize,
}

impl Requests {
    fn count(&self, request: &Request<Body>) {
        let query = request.uri().query().unwrap_or_default();
        let resumes = query.contains("watch=true") && !query.contains("sendInitialEvents=true");
        // The next page is part of a list.
        let goes_on = query.contains("continue=");
        self.0.watches.fetch_add(usize::from(resumes), Ordering::Relaxed);
        self.0.lists.fetch_add(usize::from(!resumes && !goes_on), Ordering::Relaxed);
    }

    /// Lists, and watches that start with existing objects.
    pub(crate) fn lists(&self) -> usize {
        self.0.lists.load(Ordering::Relaxed)
    }

    /// Watches that resume where another ended.
    pub(crate) fn watches(&self) -> usize {
        self.0.watches.load(Ordering::Relaxed)
    }

    /// A client whose requests are counted.
    pub(crate) fn client(&self, config: kube::Config) -> Client {
        let counts = self.clone();
        let layer = MapRequestLayer::new(move |request: Request<Body>| {
            counts.count(&request);
            request
        });
        ClientBuilder::try_from(config).unwrap().with_layer(&layer).build()
    }
}
