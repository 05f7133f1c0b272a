//! Profiles: a scheduler name and the plugins that serve it, per extension point.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use supercargo_framework::caching::{Caching, IncrementalPlugin, Uncached};
use supercargo_framework::event::{EventRegistration, EventResource};
use supercargo_framework::objects::{Objects, resources};
use supercargo_framework::plugin::{
    BindPlugin, EnqueueExtensions, ExtensionPoints, FilterPlugin, Normalize, PermitPlugin,
    PlacementGeneratePlugin, PlacementScorePlugin, PodGroupPostFilterPlugin, PostBindPlugin,
    PostFilterPlugin, PreBindPlugin, PreEnqueuePlugin, PreFilter, PreFilterExtensions, PreFilterPlugin,
    PreScorePlugin, QueueSortPlugin, ReservePlugin, ScorePlugin, SignPlugin,
};
use supercargo_framework::signature::{Signature, Signer};
use supercargo_framework::{ActionType, Context, CycleState, Plugin, PodInfo, Text};
use thiserror::Error;

use crate::observer::{Evaluated, ObservedProfile, PluginSet};

/// A plugin that binds, with its name.
#[derive(Clone)]
pub struct NamedBinder {
    /// The plugin's name.
    pub name: Text,
    /// The plugin.
    pub plugin: Arc<dyn BindPlugin>,
}

/// The plugins of a profile, in order, per extension point.
#[derive(Clone, Default)]
pub struct PluginLists {
    /// PreEnqueue.
    pub pre_enqueue: Vec<Arc<dyn Plugin>>,
    /// QueueSort: exactly one.
    pub queue_sort: Vec<Arc<dyn Plugin>>,
    /// PreFilter.
    pub pre_filter: Vec<Arc<dyn Plugin>>,
    /// Filter.
    pub filter: Vec<Arc<dyn Plugin>>,
    /// PostFilter.
    pub post_filter: Vec<Arc<dyn Plugin>>,
    /// PlacementGenerate: at most one.
    pub placement_generate: Vec<Arc<dyn Plugin>>,
    /// PlacementScore, with weights.
    pub placement_score: Vec<(Arc<dyn Plugin>, i32)>,
    /// PodGroupPostFilter.
    pub pod_group_post_filter: Vec<Arc<dyn Plugin>>,
    /// PreScore.
    pub pre_score: Vec<Arc<dyn Plugin>>,
    /// Score, with weights.
    pub score: Vec<(Arc<dyn Plugin>, i32)>,
    /// Reserve.
    pub reserve: Vec<Arc<dyn Plugin>>,
    /// Permit.
    pub permit: Vec<Arc<dyn Plugin>>,
    /// PreBind.
    pub pre_bind: Vec<Arc<dyn Plugin>>,
    /// Bind: at least one.
    pub bind: Vec<Arc<dyn Plugin>>,
    /// PostBind.
    pub post_bind: Vec<Arc<dyn Plugin>>,
}

/// The configuration of a profile.
#[derive(Clone)]
pub struct ProfileSpec {
    /// The `schedulerName` that pods ask for.
    pub scheduler_name: String,
    /// The percentage of nodes to score; `None` for all.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The plugins.
    pub plugins: PluginLists,
}

/// Why a profile is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// A plugin is listed at a point that it does not implement.
    #[error("profile {profile:?}: plugin {plugin:?} does not take part in {point}")]
    NotAtPoint {
        /// The profile.
        profile: String,
        /// The plugin.
        plugin: &'static str,
        /// The extension point.
        point: &'static str,
    },
    /// Not exactly one queue-sort plugin is listed.
    #[error("profile {profile:?}: exactly one queueSort plugin is needed, {count} are enabled")]
    QueueSort {
        /// The profile.
        profile: String,
        /// The number of queue-sort plugins.
        count: usize,
    },
    /// No bind plugin is listed.
    #[error("profile {profile:?}: at least one bind plugin is needed")]
    NoBind {
        /// The profile.
        profile: String,
    },
    /// Two profiles share a name, or there is no profile.
    #[error("profiles need distinct names, and at least one is required; {0:?} is repeated or missing")]
    Names(String),
}

/// A plugin at a point, with its name.
pub struct Named<P: ?Sized> {
    /// The plugin's name.
    pub name: &'static str,
    /// The plugin.
    pub plugin: Arc<P>,
}

impl<P: ?Sized> Clone for Named<P> {
    fn clone(&self) -> Self {
        Self { name: self.name, plugin: Arc::clone(&self.plugin) }
    }
}

/// Prepares what its plugin does, and refuses no node.
struct Lenient(Arc<dyn PreFilterPlugin>);

impl PreFilterPlugin for Lenient {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        match self.0.pre_filter(cx, state, pod) {
            PreFilter::Nodes(_) | PreFilter::Reject(_) => PreFilter::AllNodes,
            other => other,
        }
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        self.0.extensions()
    }
}

/// A score plugin with its weight.
pub struct Scorer<P: ?Sized = dyn ScorePlugin> {
    /// The plugin's name.
    pub name: &'static str,
    /// The plugin.
    pub plugin: Arc<P>,
    /// The factor of its normalized scores.
    pub weight: i64,
}

impl<P: ?Sized> Clone for Scorer<P> {
    fn clone(&self) -> Self {
        Self { name: self.name, plugin: Arc::clone(&self.plugin), weight: self.weight }
    }
}

/// A plugin that takes part in the choice of a node, as evaluation tables see it.
#[derive(Clone)]
pub struct TablePlugin {
    /// The plugin's name.
    pub name: &'static str,
    /// Writes what its answers depend on.
    pub sign: Arc<dyn SignPlugin>,
    /// Prepares Filter.
    pub pre_filter: Option<Arc<dyn PreFilterPlugin>>,
    /// With its position among the filters.
    pub filter: Option<(usize, Arc<dyn FilterPlugin>)>,
    /// Prepares Score.
    pub pre_score: Option<Arc<dyn PreScorePlugin>>,
    /// With its weight.
    pub score: Option<(i64, Arc<dyn ScorePlugin>)>,
    /// Applies changes to its state.
    pub incremental: Option<Arc<dyn IncrementalPlugin>>,
    /// What its answers depend on, or the defaults.
    pub caching: Arc<dyn Caching>,
    /// Its positions among the plugins of each point.
    pub places: Evaluated,
    /// Whether it also runs after a node is chosen, and may read what PreFilter and Filter wrote
    /// for this pod.
    pub sets_aside: bool,
}

impl TablePlugin {
    /// Whether it keeps a state.
    pub fn prepares(&self) -> bool {
        self.pre_filter.is_some() || self.pre_score.is_some()
    }

    /// How its scores are normalised.
    pub fn normalization(&self) -> Normalize {
        self.score.as_ref().map_or(Normalize::None, |(_, score)| score.normalization())
    }

    /// Whether a normalised score depends on the raw score and the range of all raw scores only.
    pub fn normalizes_by_range(&self) -> bool {
        self.normalization() == Normalize::Custom && self.caching.normalizes_by_range()
    }
}

/// A profile, ready to run.
#[derive(Clone)]
pub struct Profile {
    /// The name that pods ask for.
    pub scheduler_name: Arc<str>,
    /// Overrides the scheduler's own; 0 means adaptive, as upstream.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Orders activeQ.
    pub queue_sort: Arc<Named<dyn QueueSortPlugin>>,
    /// Gate pods.
    pub pre_enqueue: Vec<Named<dyn PreEnqueuePlugin>>,
    /// Prepare filters.
    pub pre_filter: Vec<Named<dyn PreFilterPlugin>>,
    /// Reject nodes.
    pub filter: Vec<Named<dyn FilterPlugin>>,
    /// The caching of those filters that register it.
    filter_caching: Vec<Named<dyn Caching>>,
    /// Make room when no node fits.
    pub post_filter: Vec<Named<dyn PostFilterPlugin>>,
    /// Lists the placements of groups; without it, they have one: all nodes.
    pub placement_generate: Option<Named<dyn PlacementGeneratePlugin>>,
    /// Rank the placements on which a group fits.
    pub placement_score: Vec<Scorer<dyn PlacementScorePlugin>>,
    /// Make room when a group cannot be scheduled.
    pub pod_group_post_filter: Vec<Named<dyn PodGroupPostFilterPlugin>>,
    /// Prepare scores.
    pub pre_score: Vec<Named<dyn PreScorePlugin>>,
    /// Rank feasible nodes.
    pub score: Vec<Scorer>,
    /// Reserve resources on the chosen node.
    pub reserve: Vec<Named<dyn ReservePlugin>>,
    /// Allow, delay or reject the binding.
    pub permit: Vec<Named<dyn PermitPlugin>>,
    /// Prepare the binding.
    pub pre_bind: Vec<Named<dyn PreBindPlugin>>,
    /// Bind; the first that does not skip the pod.
    pub bind: Arc<[NamedBinder]>,
    /// Run after the binding.
    pub post_bind: Vec<Named<dyn PostBindPlugin>>,
    /// Every plugin of the profile once, with the events it registers for.
    pub events: Arc<[(Text, Vec<EventRegistration>)]>,
    /// The kinds of registered events, without pods and nodes.
    registered_kinds: BTreeSet<Text>,
    /// Every plugin of the profile once.
    plugins: Vec<Arc<dyn Plugin>>,
    /// The plugins that take part in the choice of a node, in order; `None` if one of them does not
    /// sign pods.
    pub table_plugins: Option<Vec<TablePlugin>>,
}

/// Selects one extension point of a list of plugins.
macro_rules! at_point {
    ($profile:expr, $plugins:expr, $point:ident, $label:literal) => {
        $plugins
            .iter()
            .map(|plugin| match Arc::clone(plugin).extension_points().$point {
                Some(at_point) => Ok(Named { name: plugin.name(), plugin: at_point }),
                None => Err(not_at_point($profile, &**plugin, $label)),
            })
            .collect::<Result<Vec<_>, _>>()
    };
}

/// The same for plugins with weights.
fn scorers<P: ?Sized>(
    profile: &str,
    plugins: &[(Arc<dyn Plugin>, i32)],
    label: &'static str,
    point: impl Fn(ExtensionPoints) -> Option<Arc<P>>,
) -> Result<Vec<Scorer<P>>, ProfileError> {
    let scorer = |(plugin, weight): &(Arc<dyn Plugin>, i32)| {
        let at_point = point(Arc::clone(plugin).extension_points());
        let at_point = at_point.ok_or_else(|| not_at_point(profile, &**plugin, label))?;
        Ok(Scorer { name: plugin.name(), plugin: at_point, weight: i64::from(*weight) })
    };
    plugins.iter().map(scorer).collect()
}

fn not_at_point(profile: &str, plugin: &dyn Plugin, point: &'static str) -> ProfileError {
    ProfileError::NotAtPoint { profile: profile.to_owned(), plugin: plugin.name(), point }
}

impl Profile {
    /// The same profile, in which this plugin refuses no node. It still prepares what it scores.
    pub fn without_filter(&self, plugin: &str) -> Self {
        let mut other = self.clone();
        other.filter.retain(|filter| filter.name != plugin);
        for Named { plugin: pre_filter, .. } in other.pre_filter.iter_mut().filter(|it| it.name == plugin) {
            *pre_filter = Arc::new(Lenient(Arc::clone(pre_filter)));
        }
        // Their plugins still refuse nodes.
        other.table_plugins = None;
        other
    }

    pub(crate) fn new(spec: &ProfileSpec) -> Result<Self, ProfileError> {
        let name = &spec.scheduler_name;
        let lists = &spec.plugins;
        let mut queue_sort = at_point!(name, lists.queue_sort, queue_sort, "queueSort")?;
        let (Some(queue_sort), true) = (queue_sort.pop(), queue_sort.is_empty()) else {
            let count = lists.queue_sort.len();
            return Err(ProfileError::QueueSort { profile: name.clone(), count });
        };
        let bind = at_point!(name, lists.bind, bind, "bind")?;
        if bind.is_empty() {
            return Err(ProfileError::NoBind { profile: name.clone() });
        }
        let every = lists.every_plugin();
        let events: Vec<_> = every.iter().filter_map(events_of).collect();
        let registered_kinds = events.iter().flat_map(|(_, events)| kinds_of(events.as_deref())).collect();
        let events = events.into_iter().map(|(name, events)| (name, events.unwrap_or_else(all_events)));
        let events = events.collect();
        Ok(Self {
            scheduler_name: name.as_str().into(),
            percentage_of_nodes_to_score: spec.percentage_of_nodes_to_score,
            queue_sort: Arc::new(queue_sort),
            pre_enqueue: at_point!(name, lists.pre_enqueue, pre_enqueue, "preEnqueue")?,
            pre_filter: at_point!(name, lists.pre_filter, pre_filter, "preFilter")?,
            filter: at_point!(name, lists.filter, filter, "filter")?,
            filter_caching: lists.filter.iter().filter_map(caching_of).collect(),
            post_filter: at_point!(name, lists.post_filter, post_filter, "postFilter")?,
            placement_generate: at_point!(
                name,
                lists.placement_generate,
                placement_generate,
                "placementGenerate"
            )?
            .into_iter()
            .next(),
            placement_score: scorers(name, &lists.placement_score, "placementScore", |points| {
                points.placement_score
            })?,
            pod_group_post_filter: at_point!(
                name,
                lists.pod_group_post_filter,
                pod_group_post_filter,
                "podGroupPostFilter"
            )?,
            pre_score: at_point!(name, lists.pre_score, pre_score, "preScore")?,
            score: scorers(name, &lists.score, "score", |points| points.score)?,
            reserve: at_point!(name, lists.reserve, reserve, "reserve")?,
            permit: at_point!(name, lists.permit, permit, "permit")?,
            pre_bind: at_point!(name, lists.pre_bind, pre_bind, "preBind")?,
            bind: bind
                .into_iter()
                .map(|Named { name, plugin }| NamedBinder { name: name.into(), plugin })
                .collect(),
            post_bind: at_point!(name, lists.post_bind, post_bind, "postBind")?,
            registered_kinds,
            plugins: every,
            events,
            table_plugins: lists.table_plugins(),
        })
    }

    /// The profile for the observer.
    pub fn observed(&self) -> ObservedProfile {
        fn names<P: ?Sized>(plugins: &[Named<P>]) -> Vec<&'static str> {
            plugins.iter().map(|plugin| plugin.name).collect()
        }
        ObservedProfile {
            scheduler_name: Arc::clone(&self.scheduler_name),
            pre_filter: names(&self.pre_filter),
            filter: names(&self.filter),
            pre_score: names(&self.pre_score),
            score: self.score.iter().map(|scorer| scorer.name).collect(),
        }
    }

    /// The caching of a filter.
    pub fn filter_caching(&self, filter: &str) -> &dyn Caching {
        let caching = self.filter_caching.iter().find(|named| named.name == filter);
        caching.map_or(&Uncached, |named| &*named.plugin)
    }

    /// The pod's signature under this profile; `None` if its evaluation cannot be cached.
    pub fn sign(&self, cx: &Context<'_>, pod: &PodInfo) -> Option<Signature> {
        let mut signer = Signer::default();
        for plugin in self.table_plugins.as_ref()? {
            plugin.sign.sign(cx, pod, &mut signer).ok()?;
        }
        Some(signer.finish())
    }
}

fn caching_of(plugin: &Arc<dyn Plugin>) -> Option<Named<dyn Caching>> {
    let caching = Arc::clone(plugin).extension_points().caching?;
    Some(Named { name: plugin.name(), plugin: caching })
}

/// A plugin that can reject a pod, with the events it registers for, if it does.
fn events_of(plugin: &Arc<dyn Plugin>) -> Option<(Text, Option<Vec<EventRegistration>>)> {
    let points = Arc::clone(plugin).extension_points();
    let rejects = points.pre_enqueue.is_some()
        || points.pre_filter.is_some()
        || points.filter.is_some()
        || points.reserve.is_some()
        || points.permit.is_some();
    let events = points.enqueue_extensions.map(EnqueueExtensions::events_to_register);
    (rejects || events.is_some()).then(|| (Text::Static(plugin.name()), events))
}

/// The events for plugins that register for none, and for extenders: every event of pods, nodes,
/// [`EVENT_KINDS`] and PodGroups. Same as upstream's UnrollWildCardResource.
pub fn all_events() -> Vec<EventRegistration> {
    let others = EVENT_KINDS.into_iter().chain([resources::POD_GROUP]).map(EventResource::Other);
    let resources = [EventResource::Pod, EventResource::Node].into_iter().chain(others);
    resources.map(|resource| EventRegistration::always(resource, ActionType::ALL)).collect()
}

/// The kinds of [`all_events`], without pods, nodes and PodGroups, which exist with a feature gate
/// only. As upstream, kinds that plugins only read, such as Services, are not among them, nor are
/// VolumeAttachments and kinds outside Kubernetes.
pub const EVENT_KINDS: [Text; 8] = [
    resources::PERSISTENT_VOLUME,
    resources::PERSISTENT_VOLUME_CLAIM,
    resources::STORAGE_CLASS,
    resources::CSI_NODE,
    resources::CSI_DRIVER,
    resources::CSI_STORAGE_CAPACITY,
    resources::RESOURCE_CLAIM,
    resources::DEVICE_CLASS,
];

/// The kinds of these events; without any, [`EVENT_KINDS`].
fn kinds_of(events: Option<&[EventRegistration]>) -> Vec<Text> {
    let Some(events) = events else { return EVENT_KINDS.to_vec() };
    let kinds = |registration: &EventRegistration| match &registration.event.resource {
        EventResource::Other(kind) => vec![kind.clone()],
        EventResource::Any => EVENT_KINDS.to_vec(),
        _ => Vec::new(),
    };
    events.iter().flat_map(kinds).collect()
}

impl PluginLists {
    /// Every plugin once, in the order of the extension points.
    fn every_plugin(&self) -> Vec<Arc<dyn Plugin>> {
        let scored = self.score.iter().chain(&self.placement_score).map(|(plugin, _)| plugin);
        let mut every: Vec<Arc<dyn Plugin>> = Vec::new();
        for plugin in [
            &self.pre_enqueue,
            &self.queue_sort,
            &self.pre_filter,
            &self.filter,
            &self.post_filter,
            &self.placement_generate,
            &self.pod_group_post_filter,
            &self.pre_score,
            &self.reserve,
            &self.permit,
            &self.pre_bind,
            &self.bind,
            &self.post_bind,
        ]
        .into_iter()
        .flatten()
        .chain(scored)
        {
            if !every.iter().any(|known| known.name() == plugin.name()) {
                every.push(Arc::clone(plugin));
            }
        }
        every
    }

    fn table_plugins(&self) -> Option<Vec<TablePlugin>> {
        let place = |list: &[Arc<dyn Plugin>], name| list.iter().position(|plugin| plugin.name() == name);
        let scored = self.score.iter().map(|(plugin, _)| plugin);
        let deciding = [&self.pre_filter, &self.filter, &self.pre_score].into_iter().flatten().chain(scored);
        let mut table_plugins: Vec<TablePlugin> = Vec::new();
        for plugin in deciding {
            let name = plugin.name();
            if table_plugins.iter().any(|plugin| plugin.name == name) {
                continue;
            }
            let points = Arc::clone(plugin).extension_points();
            let at = |list| place(list, name).map_or_else(PluginSet::default, PluginSet::one);
            let mut scored = self.score.iter().map(|(plugin, _)| plugin);
            let weight =
                self.score.iter().find(|(scorer, _)| scorer.name() == name).map(|(_, weight)| *weight);
            let sets_aside = [&self.reserve, &self.permit, &self.pre_bind, &self.post_bind];
            table_plugins.push(TablePlugin {
                name,
                sign: points.sign?,
                pre_filter: points.pre_filter.filter(|_| place(&self.pre_filter, name).is_some()),
                filter: place(&self.filter, name).and_then(|place| Some((place, points.filter?))),
                pre_score: points.pre_score.filter(|_| place(&self.pre_score, name).is_some()),
                score: weight.and_then(|weight| Some((i64::from(weight), points.score?))),
                incremental: points.incremental,
                caching: points.caching.unwrap_or_else(|| Arc::new(Uncached)),
                places: Evaluated {
                    pre_filter: at(&self.pre_filter),
                    filter: at(&self.filter),
                    pre_score: at(&self.pre_score),
                    score: scored
                        .position(|scorer| scorer.name() == name)
                        .map_or_else(PluginSet::default, PluginSet::one),
                },
                sets_aside: sets_aside.into_iter().any(|list| place(list, name).is_some()),
            });
        }
        Some(table_plugins)
    }
}

/// The index of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileIndex(pub usize);

/// All profiles: the active ones, then replaced ones that bindings still use.
pub struct Profiles {
    all: Vec<Profile>,
    serving: usize,
}

impl Profiles {
    /// Builds profiles. Fails without a profile, with two of one name, and where a profile's
    /// plugins do not fit together.
    pub fn new(specs: &[ProfileSpec]) -> Result<Self, ProfileError> {
        let profiles = specs.iter().map(Profile::new).collect::<Result<Vec<_>, _>>()?;
        let name = |i: usize| profiles[i].scheduler_name.to_string();
        if profiles.is_empty() {
            return Err(ProfileError::Names(String::new()));
        }
        if let Some(twice) =
            (1..profiles.len()).find(|i| profiles[..*i].iter().any(|p| *p.scheduler_name == name(*i)))
        {
            return Err(ProfileError::Names(name(twice)));
        }
        Ok(Self { serving: profiles.len(), all: profiles })
    }

    /// Replaces the active profiles and keeps the old ones that are `in_use`. Returns the new
    /// indices of these.
    pub fn replace(
        &mut self,
        next: Self,
        in_use: &BTreeSet<ProfileIndex>,
    ) -> BTreeMap<ProfileIndex, ProfileIndex> {
        let old = std::mem::replace(self, next);
        let mut moved = BTreeMap::new();
        for (index, profile) in old.all.into_iter().enumerate() {
            let index = ProfileIndex(index);
            if in_use.contains(&index) {
                moved.insert(index, ProfileIndex(self.all.len()));
                self.all.push(profile);
            }
        }
        moved
    }

    /// The profile at an index.
    pub fn get(&self, index: ProfileIndex) -> &Profile {
        &self.all[index.0]
    }

    /// The active profile for pods of this `schedulerName`.
    pub fn index_of(&self, scheduler_name: &str) -> Option<ProfileIndex> {
        self.iter().position(|profile| &*profile.scheduler_name == scheduler_name).map(ProfileIndex)
    }

    /// Whether a profile has been replaced.
    pub fn is_retired(&self, index: ProfileIndex) -> bool {
        index.0 >= self.serving
    }

    /// The active profiles.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.all[..self.serving].iter()
    }

    /// All profiles, replaced ones included.
    pub fn all(&self) -> impl Iterator<Item = &Profile> {
        self.all.iter()
    }

    /// The number of active profiles.
    pub fn active_count(&self) -> usize {
        self.serving
    }

    /// The kinds of events that plugins register for, without pods and nodes.
    pub fn registered_kinds(&self) -> BTreeSet<Text> {
        self.iter().flat_map(|profile| &profile.registered_kinds).cloned().collect()
    }

    /// The kinds that plugins read, without pods and nodes.
    pub fn read(&self) -> BTreeSet<Text> {
        self.iter().flat_map(|profile| &profile.plugins).flat_map(|plugin| plugin.reads()).collect()
    }

    /// How what plugins keep between cycles differs from the objects.
    pub fn inconsistencies(&self, objects: &Objects) -> Vec<String> {
        let of_plugin = |plugin: &Arc<dyn Plugin>| {
            let (name, found) = (plugin.name(), plugin.inconsistencies(objects));
            found.into_iter().map(move |what| format!("{name}: {what}"))
        };
        self.all().flat_map(|profile| &profile.plugins).flat_map(of_plugin).collect()
    }

    /// The plugin that orders the active queue; configuration ensures that all profiles have the
    /// same one.
    pub fn queue_sort(&self) -> Arc<Named<dyn QueueSortPlugin>> {
        Arc::clone(&self.all[0].queue_sort)
    }
}

impl PluginLists {
    /// Lists every plugin at every point that it implements, in the given order and with the weight
    /// of its scores (0 counts as 1): upstream's `multiPoint` without overrides.
    pub fn multi_point(plugins: impl IntoIterator<Item = (Arc<dyn Plugin>, i32)>) -> Self {
        let mut lists = Self::default();
        for (plugin, weight) in plugins {
            let points = Arc::clone(&plugin).extension_points();
            let join = |takes_part: bool, list: &mut Vec<Arc<dyn Plugin>>| {
                if takes_part {
                    list.push(Arc::clone(&plugin));
                }
            };
            join(points.pre_enqueue.is_some(), &mut lists.pre_enqueue);
            join(points.queue_sort.is_some(), &mut lists.queue_sort);
            join(points.pre_filter.is_some(), &mut lists.pre_filter);
            join(points.filter.is_some(), &mut lists.filter);
            join(points.post_filter.is_some(), &mut lists.post_filter);
            join(points.placement_generate.is_some(), &mut lists.placement_generate);
            join(points.pod_group_post_filter.is_some(), &mut lists.pod_group_post_filter);
            join(points.pre_score.is_some(), &mut lists.pre_score);
            join(points.reserve.is_some(), &mut lists.reserve);
            join(points.permit.is_some(), &mut lists.permit);
            join(points.pre_bind.is_some(), &mut lists.pre_bind);
            join(points.bind.is_some(), &mut lists.bind);
            join(points.post_bind.is_some(), &mut lists.post_bind);
            if points.score.is_some() {
                lists.score.push((Arc::clone(&plugin), weight.max(1)));
            }
            if points.placement_score.is_some() {
                lists.placement_score.push((Arc::clone(&plugin), weight.max(1)));
            }
        }
        lists
    }
}
