//! Merges a profile's plugins over the defaults, and expands MultiPoint.

use std::collections::BTreeMap;
use std::fmt;

use supercargo_framework::Features;
use supercargo_framework::registry::DefaultPlugin;
use supercargo_plugins::unsupported_constraints;

use super::points::ConfigPoint;
use super::profile_file::{Enabled, FilePlugins, FileSet};
use super::report::FieldPosition;

/// The plugins of a profile after merging.
#[derive(Clone)]
pub(super) struct Sets {
    sets: BTreeMap<ConfigPoint, FileSet>,
    empty: FileSet,
}

/// Without places: they do not affect equality.
impl fmt::Debug for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets = self.sets.iter().map(|(point, set)| {
            let enabled: Vec<_> = set.enabled.iter().map(|plugin| (&plugin.name, plugin.weight)).collect();
            (point.name(), (enabled, &set.disabled))
        });
        f.debug_map().entries(sets).finish()
    }
}

impl Sets {
    /// The plugins of a point.
    pub(super) fn at(&self, point: ConfigPoint) -> &FileSet {
        self.sets.get(&point).unwrap_or(&self.empty)
    }

    /// The plugins enabled at any point, once per point.
    pub(super) fn enabled(&self) -> impl Iterator<Item = &Enabled> {
        self.sets.values().flat_map(|set| &set.enabled)
    }
}

/// Merges a profile's plugins over the default ones, which are all at MultiPoint.
pub(super) fn sets(
    user: &FilePlugins,
    defaults: &[DefaultPlugin],
    features: &Features,
    place: &FieldPosition,
) -> Sets {
    let defaults: Vec<Enabled> = defaults
        .iter()
        .filter(|plugin| plugin.is_enabled(features))
        .map(|plugin| Enabled { name: plugin.name.to_owned(), weight: plugin.weight, place: place.clone() })
        .collect();
    let empty = FileSet::default();
    let merged = |point: &ConfigPoint| {
        let user = user.at(*point).unwrap_or(&empty);
        match point {
            ConfigPoint::MultiPoint => (*point, merge(&defaults, user)),
            point => (*point, user.clone()),
        }
    };
    Sets { sets: ConfigPoint::ALL.iter().map(merged).collect(), empty: FileSet::default() }
}

/// Merges the user's set over the defaults. Disabled plugins are removed, plugins listed again are
/// replaced in their slot, and new ones are appended. So a plugin that is both disabled and enabled
/// moves to the end.
fn merge(defaults: &[Enabled], user: &FileSet) -> FileSet {
    let listed = |name: &str| user.enabled.iter().find(|plugin| plugin.name == name);
    let kept = defaults.iter().filter(|plugin| !is_disabled_default(user, &plugin.name));
    let mut enabled: Vec<Enabled> =
        kept.map(|plugin| listed(&plugin.name).unwrap_or(plugin).clone()).collect();
    for plugin in &user.enabled {
        if !contains(&enabled, &plugin.name) {
            enabled.push(plugin.clone());
        }
    }
    FileSet { enabled, ..user.clone() }
}

/// The plugins of a point, in order: first the point's own entries that override MultiPoint, then
/// the rest of MultiPoint that implements the point, then the point's other entries.
pub(super) fn expand(
    sets: &Sets,
    point: ConfigPoint,
    implements: impl Fn(&Enabled) -> bool,
) -> Vec<&Enabled> {
    let own = sets.at(point);
    let from_multi_point: Vec<&Enabled> = sets
        .at(ConfigPoint::MultiPoint)
        .enabled
        .iter()
        .filter(|plugin| implements(plugin) && !is_disabled(own, &plugin.name))
        .collect();
    let overrides = |plugin: &&Enabled| from_multi_point.iter().any(|other| other.name == plugin.name);
    let overriding = own.enabled.iter().filter(overrides);
    let inherited = from_multi_point.iter().copied().filter(|plugin| !contains(&own.enabled, &plugin.name));
    let additional = own.enabled.iter().filter(|plugin| !overrides(plugin));
    overriding.chain(inherited).chain(additional).collect()
}

/// `*` does not disable this plugin, only its name does. A file written for kube-scheduler does not
/// know it, and without it pods with constraints that supercargo does not evaluate yet would be
/// misplaced.
fn is_disabled_default(set: &FileSet, name: &str) -> bool {
    match name {
        unsupported_constraints::NAME => set.disabled.iter().any(|disabled| disabled == name),
        _ => is_disabled(set, name),
    }
}

fn is_disabled(set: &FileSet, name: &str) -> bool {
    set.disabled.iter().any(|disabled| disabled == "*" || disabled == name)
}

fn contains(plugins: &[Enabled], name: &str) -> bool {
    plugins.iter().any(|plugin| plugin.name == name)
}
