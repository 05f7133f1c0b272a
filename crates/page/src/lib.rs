//! The page of a scheduler: its files, and the data that it draws.
//!
//! [`Overview`] is a cluster as the page draws it: a tile per node, in blocks by zone and pool. A
//! browser gets a [snapshot](Overview::snapshot) and then [changes](Overview::changes_since).
//!
//! The crate is pure. It knows neither the scheduler nor how the page is served.

mod assets;
mod changes;
mod overview;
mod tiles;

pub use self::assets::{ASSETS, Asset, HEADERS, INDEX};
pub use self::changes::Changes;
pub use self::overview::{Overview, Queue, Reason, Summary, Usage};
pub use self::tiles::{Load, MOST_TILES, Node, Tile, share};
