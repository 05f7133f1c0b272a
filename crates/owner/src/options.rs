//! Converts the configuration to the options of the scheduler.

use std::sync::Arc;

use supercargo_framework::{Feature, Plugin};
use supercargo_scheduler::{
    Backoff, DEFAULT_TABLE_MEMORY, ExtenderSpec, Options, PluginLists, ProfileSpec, QueueOptions,
};

use crate::memory_limit;
use supercargo_config::{Config, ExtenderConfig, PluginSet, ProfileConfig};

/// The scheduler's options for this configuration.
pub fn scheduler_options(config: &Config) -> Options {
    Options {
        profiles: config.profiles.iter().map(profile_spec).collect(),
        extenders: extender_specs(&config.extenders),
        // The profiles already contain the file's value; 0 in a profile overrides it.
        percentage_of_nodes_to_score: None,
        queue: QueueOptions {
            backoff: Backoff { initial: config.pod_initial_backoff, max: config.pod_max_backoff },
            max_in_unschedulable: config.pod_max_in_unschedulable_pods_duration,
            pop_from_backoff: config.features.enabled(Feature::SchedulerPopFromBackoffQ),
            groups: config.features.enabled(Feature::GenericWorkload),
        },
        plain: config.table_memory == Some(0),
        table_memory: config.table_memory.unwrap_or_else(default_table_memory),
        timeline_memory: config.timeline_memory,
        features: config.features.clone(),
        ..Options::default()
    }
}

/// A quarter of the container's memory, but no more than the scheduler's default.
fn default_table_memory() -> usize {
    let quarter = memory_limit::of_container().and_then(|bytes| usize::try_from(bytes / 4).ok());
    quarter.map_or(DEFAULT_TABLE_MEMORY, |bytes| bytes.min(DEFAULT_TABLE_MEMORY))
}

/// Ignorable extenders come last, as upstream.
fn extender_specs(extenders: &[ExtenderConfig]) -> Vec<ExtenderSpec> {
    let spec = |(id, extender): (usize, &ExtenderConfig)| ExtenderSpec {
        id,
        name: extender.url_prefix.as_str().into(),
        filters: extender.filter_verb.is_some(),
        preempts: extender.preempt_verb.is_some(),
        weight: extender.prioritize_verb.is_some().then_some(extender.weight),
        binds: extender.bind_verb.is_some(),
        ignorable: extender.ignorable,
        managed_resources: extender.managed_resources.iter().map(|r| Arc::clone(&r.name)).collect(),
    };
    let mut specs: Vec<_> = extenders.iter().enumerate().map(spec).collect();
    specs.sort_by_key(|extender| extender.ignorable);
    specs
}

fn profile_spec(profile: &ProfileConfig) -> ProfileSpec {
    let set = &profile.plugins;
    let point = |names: &[String]| names.iter().filter_map(|name| instance(set, name)).collect();
    let weighted = |plugins: &[(String, i32)]| {
        plugins.iter().filter_map(|(name, weight)| Some((instance(set, name)?, *weight))).collect()
    };
    ProfileSpec {
        scheduler_name: profile.scheduler_name.to_string(),
        percentage_of_nodes_to_score: profile.percentage_of_nodes_to_score,
        plugins: PluginLists {
            pre_enqueue: point(&set.pre_enqueue),
            queue_sort: point(&set.queue_sort),
            pre_filter: point(&set.pre_filter),
            filter: point(&set.filter),
            post_filter: point(&set.post_filter),
            placement_generate: point(&set.placement_generate),
            placement_score: weighted(&set.placement_score),
            pod_group_post_filter: point(&set.pod_group_post_filter),
            pre_score: point(&set.pre_score),
            score: weighted(&set.score),
            reserve: point(&set.reserve),
            permit: point(&set.permit),
            pre_bind: point(&set.pre_bind),
            bind: point(&set.bind),
            post_bind: point(&set.post_bind),
        },
    }
}

/// Never `None`: the configuration has an instance of every plugin that it lists.
fn instance(set: &PluginSet, name: &str) -> Option<Arc<dyn Plugin>> {
    set.instances.get(name).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_config::Catalog;
    use supercargo_scheduler::Scheduler;

    #[test]
    fn default_configuration_has_upstreams_score_plugins_and_weights() {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let options = scheduler_options(&config);
        let weights: Vec<_> = options.profiles[0]
            .plugins
            .score
            .iter()
            .map(|(plugin, weight)| (plugin.name(), *weight))
            .collect();
        assert_eq!(
            weights,
            [
                ("TaintToleration", 3),
                ("NodeAffinity", 2),
                ("NodeResourcesFit", 1),
                ("VolumeBinding", 1),
                ("PodTopologySpread", 2),
                ("InterPodAffinity", 2),
                ("DynamicResources", 2),
                ("NodeResourcesBalancedAllocation", 1),
                ("ImageLocality", 1)
            ]
        );
        assert!(Scheduler::new(options).unwrap().is_responsible_for("supercargo"));
    }

    #[test]
    fn no_memory_for_tables_switches_them_off() {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let plain = |table_memory| scheduler_options(&Config { table_memory, ..config.clone() }).plain;
        assert_eq!([None, Some(1), Some(0)].map(plain), [false, false, true]);
    }

    #[test]
    fn ignorable_extenders_come_last() {
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n\
                    - {urlPrefix: 'http://a', ignorable: true, weight: 3}\n\
                    - {urlPrefix: 'http://b', filterVerb: f, bindVerb: b}\n\
                    - {urlPrefix: 'http://c', ignorable: true, prioritizeVerb: p, preemptVerb: q, weight: 3}\n";
        let options = scheduler_options(&Config::parse("c.yaml", text, &Catalog::in_tree()).unwrap());
        let shown = |e: &ExtenderSpec| (e.id, e.name.to_string(), e.filters, e.preempts, e.weight, e.binds);
        assert_eq!(
            options.extenders.iter().map(shown).collect::<Vec<_>>(),
            [
                (1, "http://b".to_owned(), true, false, None, true),
                (0, "http://a".to_owned(), false, false, None, false),
                (2, "http://c".to_owned(), false, true, Some(3), false),
            ]
        );
    }

    #[test]
    fn unsupported_constraints_is_disabled_only_by_name() {
        let plugins = |disabled: &str| {
            let text = format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins:\n    \
                 multiPoint: {{disabled: [{disabled}], enabled: [{{name: PrioritySort}}, {{name: DefaultBinder}}]}}\n"
            );
            let config = Config::parse("c.yaml", &text, &Catalog::in_tree()).unwrap();
            let lists = scheduler_options(&config).profiles.remove(0).plugins;
            lists.pre_filter.iter().map(|plugin| plugin.name()).collect::<Vec<_>>()
        };
        assert_eq!(plugins(r#"{name: "*"}"#), ["UnsupportedConstraints"]);
        assert!(plugins(r#"{name: "*"}, {name: UnsupportedConstraints}"#).is_empty());
    }

    #[test]
    fn percentage_of_nodes_0_in_a_profile_overrides_the_global_value() {
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                    percentageOfNodesToScore: 30\nprofiles:\n- {schedulerName: a}\n\
                    - {schedulerName: b, percentageOfNodesToScore: 0}\n";
        let options = scheduler_options(&Config::parse("c.yaml", text, &Catalog::in_tree()).unwrap());
        let wanted: Vec<_> =
            options.profiles.iter().map(|profile| profile.percentage_of_nodes_to_score).collect();
        assert_eq!((wanted, options.percentage_of_nodes_to_score), (vec![Some(30), None], None));
    }
}
