//! Completes a profile: merges defaults, builds plugins, expands MultiPoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::Plugin;
use supercargo_framework::plugin::{ExtensionPoints, MAX_NODE_SCORE};
use supercargo_framework::registry::ArgsError;

use super::args::{self, Args};
use super::args_errors;
use super::catalog::Catalog;
use super::error::Problem;
use super::merge::{self, Sets};
use super::points::ConfigPoint;
use super::profile_file::{Enabled, FileProfile};
use super::report::{FieldPosition, Report};
use crate::config::{PluginSet, ProfileConfig};

/// A plugin of a profile, and its extension points.
struct PluginInstance {
    plugin: Arc<dyn Plugin>,
    points: ExtensionPoints,
}

/// Completes a profile; `None` if a problem was reported.
pub(super) fn complete(
    profile: &FileProfile<'_>,
    scheduler_name: &str,
    percentage_of_nodes_to_score: Option<i32>,
    ignored_resources: &[&str],
    catalog: &Catalog,
    report: &mut Report<'_>,
) -> Option<ProfileConfig> {
    let before = report.count();
    let mut args = args::read(&profile.plugin_config, report);
    if !ignored_resources.is_empty() {
        // Overrides the profile's own setting, as upstream does.
        args::set(&mut args, "NodeResourcesFit", "ignoredResources", ignored_resources.into());
    }
    let sets = merge::sets(&profile.plugins, &catalog.defaults, &catalog.features, &profile.place);
    let built = build(&sets, &args, catalog, report);
    refuse_misplaced(&sets, &built, report);
    if profile.flawed || report.count() > before {
        return None;
    }
    let mut plugins = expand(&sets, &built);
    check(&plugins, profile, report);
    plugins.instances = built.into_iter().map(|(name, built)| (name, built.plugin)).collect();
    Some(ProfileConfig {
        scheduler_name: scheduler_name.into(),
        percentage_of_nodes_to_score,
        plugins,
        args: args.into_iter().map(|(name, args)| (name, args.value)).collect(),
        own_percentage: profile.percentage_of_nodes_to_score,
        sets,
    })
}

/// Builds every enabled plugin once. Plugins that are configured but not enabled are built to
/// validate their arguments.
fn build(
    sets: &Sets,
    args: &BTreeMap<String, Args<'_>>,
    catalog: &Catalog,
    report: &mut Report<'_>,
) -> BTreeMap<String, PluginInstance> {
    let enabled: BTreeMap<&str, &FieldPosition> =
        sets.enabled().map(|plugin| (plugin.name.as_str(), &plugin.place)).collect();
    let names: BTreeSet<&str> = enabled.keys().copied().chain(args.keys().map(String::as_str)).collect();
    let mut built = BTreeMap::new();
    for name in names {
        let args = args.get(name);
        match build_one(name, args.map(|args| &args.value), catalog) {
            Ok(plugin) if enabled.contains_key(name) => {
                let points = Arc::clone(&plugin).extension_points();
                built.insert(name.to_owned(), PluginInstance { plugin, points });
            }
            Ok(_) => {}
            Err(first) => match args {
                Some(args) => {
                    let validate = |value: &Value| build_one(name, Some(value), catalog).err();
                    for error in args_errors::all(first, &args.value, validate) {
                        let (place, problem) = args.problem(&error);
                        report.add(&place, problem);
                    }
                }
                None => {
                    let place = enabled.get(name).copied().cloned().unwrap_or_default();
                    report.add(&place, Problem::Args(format!("{name} cannot be built: {first}")));
                }
            },
        }
    }
    built
}

fn build_one(
    name: &str,
    args: Option<&Value>,
    Catalog { registry, features, .. }: &Catalog,
) -> Result<Arc<dyn Plugin>, ArgsError> {
    // Names in the file are already checked, so only a default plugin can be missing.
    let factory = registry.get(name).ok_or_else(|| ArgsError::new("", "it is not registered"))?;
    let none = Value::Object(serde_json::Map::new());
    factory(args.unwrap_or(&none), features)
}

/// Reports plugins that are enabled at points they do not implement.
fn refuse_misplaced(sets: &Sets, built: &BTreeMap<String, PluginInstance>, report: &mut Report<'_>) {
    for point in ConfigPoint::ALL {
        for plugin in &sets.at(*point).enabled {
            if built.get(&plugin.name).is_some_and(|built| !point.is_in(&built.points)) {
                let message = format!("{} does not implement {}; remove it here", plugin.name, point.name());
                report.invalid(&plugin.place, message);
            }
        }
    }
}

fn expand(sets: &Sets, built: &BTreeMap<String, PluginInstance>) -> PluginSet {
    let implements = |plugin: &Enabled, point: ConfigPoint| {
        built.get(&plugin.name).is_some_and(|built| point.is_in(&built.points))
    };
    let expanded = |point| merge::expand(sets, point, |plugin| implements(plugin, point));
    let names = |point| expanded(point).into_iter().map(|plugin| plugin.name.clone()).collect();
    // An unset weight is 1. To score with no weight, disable the plugin.
    let weight = |plugin: &Enabled| if plugin.weight == 0 { 1 } else { plugin.weight };
    let weighted =
        |point| expanded(point).into_iter().map(|plugin| (plugin.name.clone(), weight(plugin))).collect();
    PluginSet {
        pre_enqueue: names(ConfigPoint::PreEnqueue),
        queue_sort: names(ConfigPoint::QueueSort),
        pre_filter: names(ConfigPoint::PreFilter),
        filter: names(ConfigPoint::Filter),
        post_filter: names(ConfigPoint::PostFilter),
        placement_generate: names(ConfigPoint::PlacementGenerate),
        placement_score: weighted(ConfigPoint::PlacementScore),
        pod_group_post_filter: names(ConfigPoint::PodGroupPostFilter),
        pre_score: names(ConfigPoint::PreScore),
        score: weighted(ConfigPoint::Score),
        reserve: names(ConfigPoint::Reserve),
        permit: names(ConfigPoint::Permit),
        pre_bind: names(ConfigPoint::PreBind),
        bind: names(ConfigPoint::Bind),
        post_bind: names(ConfigPoint::PostBind),
        instances: BTreeMap::new(),
    }
}

/// Reports what makes a profile unusable.
fn check(plugins: &PluginSet, profile: &FileProfile<'_>, report: &mut Report<'_>) {
    match plugins.queue_sort.as_slice() {
        [_] => {}
        [] => report.invalid(
            &place_of(profile, ConfigPoint::QueueSort),
            "no queue sort plugin is enabled; enable one",
        ),
        several => {
            report.invalid(&place_of(profile, ConfigPoint::QueueSort), more_than_one("queue sort", several));
        }
    }
    if let several @ [_, _, ..] = plugins.placement_generate.as_slice() {
        let place = place_of(profile, ConfigPoint::PlacementGenerate);
        report.invalid(&place, more_than_one("placement generate", several));
    }
    if plugins.bind.is_empty() {
        report.invalid(&place_of(profile, ConfigPoint::Bind), "no bind plugin is enabled; enable one");
    }
    for (point, plugins) in
        [(ConfigPoint::Score, &plugins.score), (ConfigPoint::PlacementScore, &plugins.placement_score)]
    {
        if !total_fits(plugins.iter().map(|(_, weight)| *weight)) {
            report.invalid(&place_of(profile, point), "the sum of the weights is too large");
        }
    }
}

fn more_than_one(point: &str, enabled: &[String]) -> String {
    format!("only one {point} plugin can be enabled, these are: {}", enabled.join(", "))
}

/// The place for problems of a point as a whole.
pub(super) fn place_of(profile: &FileProfile<'_>, point: ConfigPoint) -> FieldPosition {
    match profile.plugins.at(point) {
        Some(set) => set.place.clone(),
        None => profile.place.field("plugins").field(point.name()),
    }
}

/// Whether the maximum total score fits into 64 bits.
pub(super) fn total_fits(mut weights: impl Iterator<Item = i32>) -> bool {
    let best = |weight: i32| i64::from(weight).checked_mul(MAX_NODE_SCORE);
    weights.try_fold(0_i64, |total, weight| total.checked_add(best(weight)?)).is_some()
}
