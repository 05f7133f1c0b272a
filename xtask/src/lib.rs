//! What the workspace's own commands and tests know about the workspace.
//!
//! | module | subject |
//! |---|---|
//! | `workspace` | the packages and what they depend on, from `cargo metadata` |
//! | `source` | source files, and where their code has certain words |
//!
//! The rules themselves are this package's tests: `cargo test -p xtask`.

pub mod source;
pub mod workspace;

use std::path::Path;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is in a folder of the repository")
}
