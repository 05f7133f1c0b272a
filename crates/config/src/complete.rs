//! Completes a file with defaults, and checks its profiles against each other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::catalog::Catalog;
use super::file::File;
use super::points::ConfigPoint;
use super::profile;
use super::profile_file::FileProfile;
use super::report::Report;
use crate::config::{
    Config, DEFAULT_INITIAL_BACKOFF, DEFAULT_MAX_BACKOFF, DEFAULT_MAX_IN_UNSCHEDULABLE, DEFAULT_PARALLELISM,
    DEFAULT_SCHEDULER_NAME, ExtenderConfig, ProfileConfig,
};

/// Completes a file. The result is meaningful only if nothing was reported.
pub(super) fn complete(mut file: File<'_>, catalog: &Catalog, report: &mut Report<'_>) -> Config {
    if file.profiles.is_empty() {
        file.profiles.push(FileProfile::default());
    }
    let names = scheduler_names(&file.profiles, report);
    let ignored: Vec<&str> = ignored_by_scheduler(&file.extenders).collect();
    let percentage =
        |of: Option<i32>| of.or(file.percentage_of_nodes_to_score).filter(|percent| *percent != 0);
    let profiles: Vec<Option<ProfileConfig>> = file
        .profiles
        .iter()
        .zip(names)
        .map(|(profile, name)| {
            let percentage = percentage(profile.percentage_of_nodes_to_score);
            profile::complete(profile, name, percentage, &ignored, catalog, report)
        })
        .collect();
    check_common_queue_sort(&file.profiles, &profiles, report);
    file.leader_election.check_file(report);
    let enable_profiling = file.enable_profiling.unwrap_or(true);
    let seconds = |of: Option<u64>, default| of.map_or(default, Duration::from_secs);
    Config {
        profiles: profiles.into_iter().flatten().collect(),
        parallelism: file.parallelism.unwrap_or(DEFAULT_PARALLELISM),
        percentage_of_nodes_to_score: percentage(None),
        pod_initial_backoff: seconds(file.initial_backoff_seconds, DEFAULT_INITIAL_BACKOFF),
        pod_max_backoff: seconds(file.max_backoff_seconds, DEFAULT_MAX_BACKOFF),
        client_connection: file.client_connection,
        features: catalog.features.clone(),
        extenders: file.extenders,
        leader_election: file.leader_election.config,
        delay_cache_until_active: file.delay_cache_until_active.unwrap_or(false),
        enable_profiling,
        // As upstream: on by default, but only together with `enableProfiling`.
        enable_contention_profiling: file.enable_contention_profiling.unwrap_or(enable_profiling),
        pod_max_in_unschedulable_pods_duration: DEFAULT_MAX_IN_UNSCHEDULABLE,
        table_memory: None,
        timeline_memory: 0,
    }
}

/// The resources that extenders handle and NodeResourcesFit ignores.
fn ignored_by_scheduler(extenders: &[ExtenderConfig]) -> impl Iterator<Item = &str> {
    let resources = extenders.iter().flat_map(|extender| &extender.managed_resources);
    resources.filter(|resource| resource.ignored_by_scheduler).map(|resource| &*resource.name)
}

/// The name of each profile.
fn scheduler_names<'a>(profiles: &'a [FileProfile<'_>], report: &mut Report<'_>) -> Vec<&'a str> {
    let mut taken = BTreeMap::new();
    let mut names = Vec::new();
    for profile in profiles {
        let Some((name, place)) = &profile.scheduler_name else {
            names.push(DEFAULT_SCHEDULER_NAME);
            continue;
        };
        if let Some(Some(first)) = taken.insert(name, place.position) {
            report.invalid(place, format!("the profile at {first} is named {name:?} too; rename one"));
        }
        names.push(name);
    }
    names
}

/// All profiles share one queue, so they must use the same queue sort.
fn check_common_queue_sort(
    files: &[FileProfile<'_>],
    profiles: &[Option<ProfileConfig>],
    report: &mut Report<'_>,
) {
    let mut queue_sorts = files.iter().zip(profiles).filter_map(|(file, profile)| {
        let profile = profile.as_ref()?;
        let name = profile.plugins.queue_sort.first()?;
        let args = profile.args.get(name).and_then(|args| args.as_object()).filter(|args| !args.is_empty());
        Some((file, name, args))
    });
    let Some((_, first_name, first_args)) = queue_sorts.next() else {
        return;
    };
    for (file, name, args) in queue_sorts {
        if name != first_name {
            let message = format!(
                "{name} is not the queue sort of the first profile, {first_name}; all share one queue"
            );
            report.invalid(&profile::place_of(file, ConfigPoint::QueueSort), message);
        } else if args != first_args {
            let config = file.plugin_config.iter().find(|config| config.name == *name);
            let place = config.map_or(&file.place, |config| &config.place);
            report.invalid(
                place,
                format!("{name} must have the same arguments in every profile; all share one queue"),
            );
        }
    }
}
