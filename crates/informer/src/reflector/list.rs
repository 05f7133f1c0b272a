//! Lists: the requested versions, pages and results.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::coop;

use super::Reflector;
use crate::delta::{Delta, Queue, Replacement};
use crate::key::ObjectKey;
use crate::kind::Kind;
use crate::list_watch::{ListOptions, ListWatchError, Page, Undecodable};

/// The page size for the API server's watch cache.
const PAGE_SIZE: u32 = 500;

/// A complete list, assembled from its pages.
pub(super) struct Listing<T> {
    pub(super) objects: Vec<(ObjectKey, Arc<T>)>,
    pub(super) undecodable: Vec<Undecodable>,
    pub(super) version: String,
    paginated: bool,
}

impl<T> Listing<T> {
    /// Keep the version of the first page. Later pages of an inconsistent list can have a newer
    /// version, and a watch from there would miss the changes in between.
    fn new(first: &Page<T>) -> Self {
        Self {
            objects: Vec::new(),
            undecodable: Vec::new(),
            version: first.resource_version.clone(),
            paginated: first.continue_token.is_some(),
        }
    }

    /// The result of initial events, with unique keys.
    pub(super) fn collect(
        objects: BTreeMap<ObjectKey, Result<Arc<T>, Undecodable>>,
        version: String,
    ) -> Self {
        let mut listing = Self { objects: Vec::new(), undecodable: Vec::new(), version, paginated: false };
        for (key, object) in objects {
            match object {
                Ok(object) => listing.objects.push((key, object)),
                Err(item) => listing.undecodable.push(item),
            }
        }
        listing
    }
}

impl<K: Kind, Q: Queue<K::Object>> Reflector<K, Q> {
    /// Lists, and replaces the content with the result.
    pub(super) async fn list(&mut self) -> Result<(), ListWatchError> {
        let version = self.relist_version();
        let mut listed = self.list_pages(&version).await;
        if let Err(error) = &listed
            && (error.is_expired()
                || error.is_too_large_resource_version()
                // An invalid request can be due to its version.
                || (error.is_invalid() && !matches!(version.as_str(), "" | "0")))
        {
            self.version_unavailable = true;
            listed = self.list_pages("").await;
        }
        let listing = listed?;
        self.paginated |= version == "0" && listing.paginated;
        self.replace(listing);
        Ok(())
    }

    /// Never lists a state older than the last one seen. "0" is used only at the start.
    fn relist_version(&self) -> String {
        let last = self.status.version.lock();
        match last.as_str() {
            _ if self.version_unavailable => String::new(),
            "" => "0".to_owned(),
            last => last.to_owned(),
        }
    }

    fn page_limit(&self, version: &str) -> Option<u32> {
        // The server's cache serves lists at a version only without a limit.
        let default = self.paginated || matches!(version, "" | "0");
        self.options.page_size.or(default.then_some(PAGE_SIZE))
    }

    async fn list_pages(&self, version: &str) -> Result<Listing<K::Object>, ListWatchError> {
        let mut options = ListOptions {
            resource_version: version.to_owned(),
            limit: self.page_limit(version),
            ..ListOptions::default()
        };
        let mut page = self.list_page(&options).await?;
        let mut listing = Listing::new(&page);
        loop {
            options.continue_token = page.continue_token.take();
            self.append(&mut listing, page).await;
            if options.continue_token.is_none() {
                return Ok(listing);
            }
            // The token implies the version.
            options.resource_version.clear();
            page = match self.list_page(&options).await {
                Err(error) if error.is_expired() => return self.list_whole(version).await,
                page => page?,
            };
        }
    }

    /// Lists without pages, after an early page has expired.
    async fn list_whole(&self, version: &str) -> Result<Listing<K::Object>, ListWatchError> {
        let whole = ListOptions { resource_version: version.to_owned(), ..ListOptions::default() };
        let page = self.list_page(&whole).await?;
        let mut listing = Listing { paginated: true, ..Listing::new(&page) };
        self.append(&mut listing, page).await;
        Ok(listing)
    }

    /// Requests a page with transformed items.
    async fn list_page(&self, options: &ListOptions) -> Result<Page<K::Object>, ListWatchError> {
        match &self.transform {
            Some(transform) => self.source.list_transformed(options, transform).await,
            None => self.source.list(options).await,
        }
    }

    async fn append(&self, listing: &mut Listing<K::Object>, page: Page<K::Object>) {
        listing.objects.reserve(page.items.len());
        for item in page.items {
            listing.objects.push((self.kind.key(&item), Arc::new(item)));
            coop::consume_budget().await;
        }
        listing.undecodable.extend(page.undecodable);
    }

    pub(super) fn replace(&mut self, listing: Listing<K::Object>) {
        let unknown = listing.undecodable.iter().filter(|item| !item.is_of_another_type());
        let keep = unknown.filter_map(|item| item.key.clone()).collect();
        for item in &listing.undecodable {
            self.report_undecodable("listed", item);
        }
        let Listing { objects, version: resource_version, .. } = listing;
        self.advance(&resource_version);
        self.version_unavailable = false;
        *self.status.last_error.lock() = None;
        self.queue.push(Delta::ReplacedAll(Replacement { objects, keep, resource_version }));
    }
}
