//! Reads the `profiles` of a file.

use std::collections::BTreeMap;

use super::catalog::Catalog;
use super::cursor::{Cursor, Object};
use super::error::Problem;
use super::names;
use super::points::ConfigPoint;
use super::report::{FieldPosition, Report};

const FIELDS: &[&str] = &["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"];
const SET_FIELDS: &[&str] = &["enabled", "disabled"];
const PLUGIN_FIELDS: &[&str] = &["name", "weight"];
const PLUGIN_CONFIG_FIELDS: &[&str] = &["name", "args"];

/// A profile as written in the file.
#[derive(Debug, Default)]
pub(super) struct FileProfile<'a> {
    pub(super) place: FieldPosition,
    /// `None` only for a single profile, or if its absence was reported.
    pub(super) scheduler_name: Option<(String, FieldPosition)>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) plugins: FilePlugins,
    pub(super) plugin_config: Vec<FileArgs<'a>>,
    /// Whether a part was rejected, so that the rest is incomplete.
    pub(super) flawed: bool,
}

/// The plugins of a profile by extension point.
#[derive(Debug, Default)]
pub(super) struct FilePlugins {
    sets: BTreeMap<ConfigPoint, FileSet>,
}

/// The plugins of an extension point.
#[derive(Clone, Debug, Default)]
pub(super) struct FileSet {
    pub(super) place: FieldPosition,
    pub(super) enabled: Vec<Enabled>,
    pub(super) disabled: Vec<String>,
}

/// A plugin that is enabled.
#[derive(Clone, Debug)]
pub(super) struct Enabled {
    pub(super) name: String,
    pub(super) weight: i32,
    pub(super) place: FieldPosition,
}

/// The arguments of a plugin.
#[derive(Clone, Debug)]
pub(super) struct FileArgs<'a> {
    pub(super) name: String,
    pub(super) place: FieldPosition,
    pub(super) args: Option<Cursor<'a>>,
    /// The place of the arguments, whether present or not.
    pub(super) args_place: FieldPosition,
}

impl FilePlugins {
    /// The plugins of a point.
    pub(super) fn at(&self, point: ConfigPoint) -> Option<&FileSet> {
        self.sets.get(&point)
    }
}

/// Reads the profiles.
pub(super) fn read_all<'a>(
    list: &Cursor<'a>,
    catalog: &Catalog,
    report: &mut Report<'_>,
) -> Vec<FileProfile<'a>> {
    let profiles = list.items(report);
    let alone = profiles.len() == 1;
    profiles.iter().filter_map(|profile| read(profile, alone, catalog, report)).collect()
}

fn read<'a>(
    cursor: &Cursor<'a>,
    alone: bool,
    catalog: &Catalog,
    report: &mut Report<'_>,
) -> Option<FileProfile<'a>> {
    let before = report.count();
    let object = cursor.object(FIELDS, report)?;
    let configs = object.get("pluginConfig").map(|configs| configs.items(report));
    let mut profile = FileProfile {
        place: cursor.place.clone(),
        scheduler_name: read_scheduler_name(&object, alone, report),
        percentage_of_nodes_to_score: read_percentage(&object, report),
        plugins: read_plugins(&object, catalog, report),
        plugin_config: configs
            .into_iter()
            .flatten()
            .filter_map(|config| read_plugin_config(&config, catalog, report))
            .collect(),
        flawed: false,
    };
    profile.flawed = report.count() > before;
    Some(profile)
}

fn read_scheduler_name(
    object: &Object<'_>,
    alone: bool,
    report: &mut Report<'_>,
) -> Option<(String, FieldPosition)> {
    let Some(cursor) = object.get("schedulerName") else {
        if !alone {
            let place = object.place.field("schedulerName");
            report.invalid(&place, "is missing; with several profiles each needs its own");
        }
        return None;
    };
    let name = cursor.string(report)?;
    if name.is_empty() {
        report.invalid(&cursor.place, "must not be empty");
        return None;
    }
    Some((name.to_owned(), cursor.place))
}

/// Reads `percentageOfNodesToScore` of a file or a profile.
pub(super) fn read_percentage(object: &Object<'_>, report: &mut Report<'_>) -> Option<i32> {
    let cursor = object.get("percentageOfNodesToScore")?;
    let value = cursor.integer(report)?;
    if !(0..=100).contains(&value) {
        report.invalid(&cursor.place, format!("must be from 0 to 100, is {value}"));
    }
    Some(value)
}

fn read_plugins(profile: &Object<'_>, catalog: &Catalog, report: &mut Report<'_>) -> FilePlugins {
    let known: Vec<&str> = ConfigPoint::ALL.iter().map(|point| point.name()).collect();
    let mut plugins = FilePlugins::default();
    let cursor = profile.get("plugins");
    let Some(object) = cursor.and_then(|cursor| cursor.object(&known, report)) else {
        return plugins;
    };
    for point in ConfigPoint::ALL {
        let set = object.get(point.name()).and_then(|set| read_set(&set, *point, catalog, report));
        plugins.sets.extend(set.map(|set| (*point, set)));
    }
    plugins
}

fn read_set(
    cursor: &Cursor<'_>,
    point: ConfigPoint,
    catalog: &Catalog,
    report: &mut Report<'_>,
) -> Option<FileSet> {
    let object = cursor.object(SET_FIELDS, report)?;
    let mut set = FileSet { place: cursor.place.clone(), ..FileSet::default() };
    for plugin in read_list(&object, "enabled", report) {
        if set.enabled.iter().any(|other| other.name == plugin.name) {
            report.invalid(&plugin.place, format!("{} is enabled twice here; keep one", plugin.name));
        } else if let Some(problem) = refusal_to_enable(&plugin.name, point, catalog) {
            report.add(&plugin.place, problem);
        } else {
            set.enabled.push(plugin);
        }
    }
    for plugin in read_list(&object, "disabled", report) {
        match names::refusal_to_disable(&plugin.name, &catalog.registry) {
            Some(problem) => report.add(&plugin.place, problem),
            None => set.disabled.push(plugin.name),
        }
    }
    Some(set)
}

fn refusal_to_enable(name: &str, point: ConfigPoint, catalog: &Catalog) -> Option<Problem> {
    if name == "*" {
        let message = "\"*\" stands for all plugins in disabled only; enable plugins by name";
        return Some(Problem::Invalid(message.to_owned()));
    }
    names::refusal(name, point, catalog)
}

fn read_list(set: &Object<'_>, field: &str, report: &mut Report<'_>) -> Vec<Enabled> {
    let items = set.get(field).map(|list| list.items(report));
    let plugins = items.into_iter().flatten();
    plugins.filter_map(|plugin| read_plugin(&plugin, report)).collect()
}

fn read_plugin(cursor: &Cursor<'_>, report: &mut Report<'_>) -> Option<Enabled> {
    let object = cursor.object(PLUGIN_FIELDS, report)?;
    let weight = object.get("weight").and_then(|weight| weight.integer(report));
    let name = object.require("name", report)?;
    Some(Enabled { name: name.string(report)?.to_owned(), weight: weight.unwrap_or(0), place: name.place })
}

fn read_plugin_config<'a>(
    cursor: &Cursor<'a>,
    catalog: &Catalog,
    report: &mut Report<'_>,
) -> Option<FileArgs<'a>> {
    let object = cursor.object(PLUGIN_CONFIG_FIELDS, report)?;
    let args = object.get("args");
    let name = object.require("name", report)?;
    let text = name.string(report)?;
    if let Some(problem) = names::refusal(text, ConfigPoint::MultiPoint, catalog) {
        report.add(&name.place, problem);
        return None;
    }
    Some(FileArgs {
        name: text.to_owned(),
        args_place: args.as_ref().map_or_else(|| cursor.place.field("args"), |args| args.place.clone()),
        place: name.place,
        args,
    })
}
