//! The feature gates of a file.

use std::io::{self, BufRead, Cursor, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use supercargo_config::Catalog;
use supercargo_config::flags::FeatureOptions;
use supercargo_framework::Features;
use supercargo_scheduler::record;

use super::file::open;
use crate::cli::output::print_error;

/// A file whose first line was read.
pub(crate) type Reopened = Box<dyn BufRead>;

/// The catalog for files: with the feature gates of the command line if it sets any, and else with
/// those of the file.
#[derive(Clone, Debug)]
pub(crate) struct FileCatalog {
    /// With the feature gates of the command line, or the defaults.
    catalog: Catalog,
    /// Whether the command line sets feature gates.
    is_given: bool,
    /// Whether to warn if those replace other ones.
    warns: bool,
}

impl FileCatalog {
    pub(crate) fn new(options: &FeatureOptions, catalog: &Catalog) -> Result<Self> {
        let catalog = options.applied_to(catalog)?;
        Ok(Self { catalog, is_given: options.are_given(), warns: true })
    }

    /// The same for the next reading of the file, after a warning.
    pub(crate) fn without_warning(self) -> Self {
        Self { warns: false, ..self }
    }

    /// The catalog for a cluster.
    pub(crate) fn without_file(self) -> Catalog {
        self.catalog
    }

    /// Opens the first file of a record, or a capture.
    pub(crate) fn open(&self, path: &Path) -> Result<(Reopened, Catalog)> {
        let (file, features) = peek(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((file, self.with(features)))
    }

    fn with(&self, recorded: Option<Features>) -> Catalog {
        let Some(recorded) = recorded.filter(|it| *it != self.catalog.features) else {
            return self.catalog.clone();
        };
        if !self.is_given {
            return self.catalog.clone().with_features(recorded);
        }
        if self.warns {
            print_error("warning: the given feature gates replace other ones of the file");
        }
        self.catalog.clone()
    }
}

/// Reads the first line, and puts it back.
fn peek(path: &Path) -> io::Result<(Reopened, Option<Features>)> {
    let (mut file, mut line) = (open(path)?, Vec::new());
    file.read_until(b'\n', &mut line)?;
    let features = record::features(&line);
    Ok((Box::new(Cursor::new(line).chain(file)), features))
}
