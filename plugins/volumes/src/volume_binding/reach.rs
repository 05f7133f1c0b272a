//! The nodes that can access a volume.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::affinity::{Operator, Requirement};
use supercargo_framework::errors::aggregate;
use supercargo_framework::label_terms::LabelTerms;
use supercargo_framework::objects::{Object, ObjectBody, PersistentVolume, Untranslatable, annotations};
use supercargo_framework::{Labels, NodeSelectorTerm};

const ZONE: &str = "topology.kubernetes.io/zone";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// The separator of zones in a label value.
const ZONE_SEPARATOR: &str = "__";

/// The in-tree plugins whose CSI drivers use other zone labels, with the driver's topology key.
const ZONE_KEYS: &[(&str, &str)] = &[
    ("kubernetes.io/aws-ebs", "topology.ebs.csi.aws.com/zone"),
    ("kubernetes.io/gce-pd", "topology.gke.io/zone"),
    ("kubernetes.io/cinder", "topology.cinder.csi.openstack.org/zone"),
];

/// A node as volumes see it.
#[derive(Clone, Copy)]
pub(super) struct Viewpoint<'a> {
    /// The node's labels.
    pub(super) labels: &'a Labels,
    /// The node's CSINode, if there is one.
    pub(super) csi_node: Option<&'a Object>,
}

/// A volume, with its node affinity on nodes where its in-tree plugin is migrated to CSI.
#[derive(Clone)]
pub(super) struct Reach {
    volume: Arc<Object>,
    migrated: Option<Arc<Migrated>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Migrated {
    plugin: Arc<str>,
    /// The affinity with the driver's labels, or why the volume cannot be translated.
    terms: Result<Option<LabelTerms>, Arc<str>>,
}

/// Why a node cannot access a volume.
pub(super) enum Unreachable {
    /// The volume's affinity does not match: upstream's reason.
    Mismatch(String),
    /// The volume's in-tree source cannot be translated: upstream's error.
    Untranslatable(String),
}

impl Reach {
    /// Computes the nodes that can access a volume.
    pub(super) fn of(volume: &Arc<Object>) -> Self {
        Self { volume: Arc::clone(volume), migrated: migrate(volume).map(Arc::new) }
    }

    /// What the answers depend on: volumes in one place are accessible from the same nodes.
    pub(super) fn place(&self) -> impl Ord {
        let affinity = PersistentVolume::of(&self.volume.body).map(|body| body.node_affinity.as_ref());
        (affinity, self.migrated.as_deref())
    }

    /// Whether the result depends on the node's CSINode.
    pub(super) fn depends_on_csi_node(&self) -> bool {
        self.migrated.is_some()
    }

    /// Whether the answer is an error on some nodes.
    pub(super) fn can_fail(&self) -> bool {
        self.migrated.as_ref().is_some_and(|migrated| migrated.terms.is_err())
    }

    /// Whether the node can access the volume; an error if its source cannot be translated.
    pub(super) fn includes(&self, from: Viewpoint<'_>) -> Result<bool, String> {
        Ok(any_matches(self.terms(from.csi_node)?, from.labels))
    }

    /// The same with the reason if it cannot.
    pub(super) fn check(&self, from: Viewpoint<'_>) -> Result<(), Unreachable> {
        let terms = self.terms(from.csi_node).map_err(Unreachable::Untranslatable)?;
        if any_matches(terms, from.labels) {
            return Ok(());
        }
        let terms = terms.into_iter().flat_map(|terms| terms.iter().enumerate());
        let mismatch = aggregate(terms.flat_map(|(i, term)| term.errors_at("nodeSelectorTerms", i)))
            .unwrap_or_else(|| "no matching NodeSelectorTerms".to_owned());
        Err(Unreachable::Mismatch(mismatch))
    }

    /// The terms that apply to a node with this CSINode.
    fn terms(&self, csi_node: Option<&Object>) -> Result<Option<&LabelTerms>, String> {
        match &self.migrated {
            Some(migrated) if is_migrated_on(&migrated.plugin, csi_node) => match &migrated.terms {
                Ok(terms) => Ok(terms.as_ref()),
                Err(error) => Err(format!("could not translate pv: {error}")),
            },
            _ => {
                let body = PersistentVolume::of(&self.volume.body);
                Ok(body.and_then(|body| body.node_affinity.as_ref()))
            }
        }
    }
}

/// Whether a node with these labels can access a volume that is not of an in-tree plugin, or whose
/// plugin is not considered.
pub(super) fn is_reached(volume: &PersistentVolume, labels: &Labels) -> bool {
    any_matches(volume.node_affinity.as_ref(), labels)
}

fn any_matches(terms: Option<&LabelTerms>, labels: &Labels) -> bool {
    terms.is_none_or(|terms| terms.any_matches(labels))
}

/// Whether the node's kubelet uses the CSI driver instead of the in-tree plugin.
fn is_migrated_on(plugin: &str, csi_node: Option<&Object>) -> bool {
    let listed = csi_node.and_then(|node| node.annotations.get(annotations::MIGRATED_PLUGINS));
    listed.is_some_and(|plugins| plugins.split(',').any(|migrated| migrated == plugin))
}

/// The volume's affinity with its CSI driver's labels; `None` if it is the same.
fn migrate(volume: &Object) -> Option<Migrated> {
    let body = PersistentVolume::of(&volume.body)?;
    if let Some(Untranslatable { plugin, error }) = &body.untranslatable {
        return Some(Migrated { plugin: Arc::clone(plugin), terms: Err(Arc::clone(error)) });
    }
    let plugin = body.csi.as_ref()?.migrated_from.as_ref()?;
    let (_, driver_key) = ZONE_KEYS.iter().find(|(name, _)| *name == &**plugin)?;
    let terms = translate(body.node_affinity.as_deref(), &volume.labels, driver_key);
    Some(Migrated { plugin: Arc::clone(plugin), terms: Ok(terms) })
}

/// Same as upstream's translation of topologies: the zones of the affinity move to the driver's
/// key; without any, those of the volume's labels are added. A beta region label becomes the region
/// label.
fn translate(terms: Option<&[NodeSelectorTerm]>, labels: &Labels, driver_key: &str) -> Option<LabelTerms> {
    let (zone, region) = zone_and_region_keys(terms.unwrap_or_default(), labels);
    let mut translated: Option<Vec<NodeSelectorTerm>> = terms.map(<[_]>::to_vec);
    if has_values(terms.unwrap_or_default(), zone) {
        rename(translated.iter_mut().flatten(), zone, driver_key);
    } else if let Some(zones) = labels.get(zone).and_then(|label| zones_of(label)) {
        let terms = translated.get_or_insert_default();
        if terms.is_empty() {
            terms.push(NodeSelectorTerm::default());
        }
        let zones = Requirement { key: driver_key.into(), operator: Operator::In, values: zones.into() };
        for term in terms {
            let others = std::mem::take(&mut term.match_expressions).into_vec();
            term.match_expressions = others.into_iter().chain([zones.clone()]).collect();
        }
    }
    if region == BETA_REGION {
        rename(translated.iter_mut().flatten(), BETA_REGION, REGION);
    }
    translated.map(Into::into)
}

/// The generation of label keys that the volume uses. Its affinity takes precedence over its
/// labels, and current keys over beta keys.
fn zone_and_region_keys(terms: &[NodeSelectorTerm], labels: &Labels) -> (&'static str, &'static str) {
    let in_terms = |key| requirements(terms).any(|requirement| &*requirement.key == key);
    let is_beta = !in_terms(ZONE)
        && (in_terms(BETA_ZONE) || (labels.get(ZONE).is_none() && labels.get(BETA_ZONE).is_some()));
    if is_beta { (BETA_ZONE, BETA_REGION) } else { (ZONE, REGION) }
}

fn requirements(terms: &[NodeSelectorTerm]) -> impl Iterator<Item = &Requirement> {
    terms.iter().flat_map(|term| &term.match_expressions)
}

fn has_values(terms: &[NodeSelectorTerm], key: &str) -> bool {
    requirements(terms).any(|requirement| &*requirement.key == key && !requirement.values.is_empty())
}

fn rename<'a>(terms: impl Iterator<Item = &'a mut NodeSelectorTerm>, from: &str, to: &str) {
    for requirement in terms.flat_map(|term| &mut term.match_expressions) {
        if &*requirement.key == from {
            requirement.key = to.into();
        }
    }
}

/// The zones in a label value, sorted; `None` if there are none.
fn zones_of(label: &str) -> Option<Vec<Arc<str>>> {
    let zones: BTreeSet<&str> =
        label.split(ZONE_SEPARATOR).map(str::trim).filter(|zone| !zone.is_empty()).collect();
    (!zones.is_empty()).then(|| zones.into_iter().map(Arc::from).collect())
}
