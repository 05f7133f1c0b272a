//! Tables by signature.

use super::table::Table;
use supercargo_framework::hash_seed::{HashSeed, SeededMap};

/// Tables by signature. A cycle takes its table out and puts it back, and hashes the signature
/// once.
pub(super) struct BySignature {
    places: SeededMap<Box<[u8]>, usize>,
    /// By place; `None` while a cycle has the table, and for unused places.
    tables: Vec<Option<Table>>,
    /// Unused places.
    free: Vec<usize>,
}

impl BySignature {
    pub(super) fn new(seed: &HashSeed) -> Self {
        Self { places: seed.map(), tables: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().flatten()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn get(&self, signature: &[u8]) -> Option<&Table> {
        self.tables[*self.places.get(signature)?].as_ref()
    }

    /// Takes a table out, to be put back in its place or removed.
    pub(super) fn take(&mut self, signature: &[u8]) -> Option<(usize, Table)> {
        let place = *self.places.get(signature)?;
        Some((place, self.tables[place].take()?))
    }

    /// Puts a table back in its place.
    pub(super) fn put_back(&mut self, place: usize, table: Table) {
        self.tables[place] = Some(table);
    }

    /// Adds a table.
    pub(super) fn insert(&mut self, signature: &[u8], table: Table) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        self.tables[place] = Some(table);
        self.places.insert(signature.into(), place);
    }

    /// Removes a table that was taken out. An unknown signature is ignored.
    pub(super) fn remove(&mut self, signature: &[u8]) {
        self.free.extend(self.places.remove(signature));
    }

    /// Removes the tables last used at this time or earlier.
    pub(super) fn remove_until(&mut self, last_used: u64) -> Vec<Table> {
        let (tables, free, mut gone) = (&mut self.tables, &mut self.free, Vec::new());
        self.places.retain(|_, place| {
            let is_old = tables[*place].as_ref().is_none_or(|table| table.last_used <= last_used);
            if is_old {
                gone.extend(tables[*place].take());
                free.push(*place);
            }
            !is_old
        });
        gone
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let keys: usize = self.places.keys().map(|signature| signature.len()).sum();
        keys + self.values().map(Table::bytes).sum::<usize>()
    }
}
