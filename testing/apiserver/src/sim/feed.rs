//! Reads the changes of a resource in batches.

use std::sync::Arc;

use tokio::sync::watch;

use super::objects::Objects;
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::store::{ResourceKey, StoreChange};

/// The maximum number of changes in a batch.
const BATCH: usize = 256;

/// The changes of a resource from its beginning.
#[derive(Debug)]
pub(super) struct Feed {
    objects: Objects,
    table: ResourceKey,
    /// All changes up to this version have been read; `None` before the first list.
    cursor: Option<u64>,
    changed: Option<watch::Receiver<()>>,
}

/// A batch.
#[derive(Debug)]
pub(super) enum Update {
    /// All existing objects. Objects that are not among them are gone.
    All(Vec<Arc<StoredObject>>),
    /// The changes since the last batch.
    Changes(Vec<StoreChange>),
    /// There are no changes.
    None,
}

impl Feed {
    pub(super) fn new(objects: &Objects, kind: &Kind) -> Self {
        let table = kind.resource_key();
        let changed = objects.with(|state| Some(state.store.table(&table)?.subscribe()));
        Self { objects: objects.clone(), table, cursor: None, changed }
    }

    /// The next batch. Read until it is `None` before waiting.
    pub(super) fn read(&mut self) -> Update {
        if let Some(changed) = &mut self.changed {
            changed.mark_unchanged();
        }
        let (table, cursor) = (&self.table, self.cursor);
        let (update, cursor) = self.objects.with(|state| {
            let version = state.store.version();
            let Some(table) = state.store.table(table) else { return (Update::None, cursor) };
            match cursor.map(|cursor| table.since(cursor)) {
                Some(Ok(changes)) => {
                    let changes: Vec<StoreChange> = changes.take(BATCH).cloned().collect();
                    match changes.last().map(|last| last.version) {
                        Some(last) => (Update::Changes(changes), Some(last)),
                        None => (Update::None, Some(version)),
                    }
                }
                // The history no longer covers the cursor, or nothing has been read yet.
                Some(Err(_)) | None => (Update::All(table.range("", None).cloned().collect()), Some(version)),
            }
        });
        self.cursor = cursor;
        update
    }

    /// Waits until there may be changes.
    pub(super) async fn changed(&mut self) {
        let is_served = match &mut self.changed {
            Some(changed) => changed.changed().await.is_ok(),
            None => false,
        };
        if !is_served {
            std::future::pending::<()>().await;
        }
    }
}
