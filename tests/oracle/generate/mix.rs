//! The kinds of constraint in a history, with their frequencies.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use supercargo_plugins::DEFAULT_PLUGINS;

use crate::support::Random;

/// Declares the kinds with their names and the plugin that each needs, if it is optional.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $plugin:literal,)*) => {
        /// A feature of pods, nodes or other objects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(in crate::oracle) enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            const ALL: &[Self] = &[$(Self::$kind),*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The plugin that the kind needs.
            fn plugin(self) -> &'static str {
                match self {
                    $(Self::$kind => $plugin,)*
                }
            }
        }
    };
}

kinds! {
    /// Requests of all sorts.
    Requests "requests" "NodeResourcesFit",
    /// Init containers and sidecars.
    InitContainers "initContainers" "NodeResourcesFit",
    /// Resources of the pod as a whole.
    PodLevel "podLevel" "NodeResourcesFit",
    /// Pod overhead.
    Overhead "overhead" "NodeResourcesFit",
    /// In-place resizes, with the statuses of kubelets.
    Resizes "resizes" "NodeResourcesFit",
    /// Host ports.
    HostPorts "hostPorts" "NodePorts",
    /// `nodeSelector`.
    NodeSelector "nodeSelector" "NodeAffinity",
    /// Required node affinity.
    NodeAffinity "nodeAffinity" "NodeAffinity",
    /// Preferred node affinity.
    PreferredNodes "preferredNodes" "NodeAffinity",
    /// Node affinity by name.
    MatchFields "matchFields" "NodeAffinity",
    /// Taints and tolerations.
    Taints "taints" "TaintToleration",
    /// Nodes that are cordoned.
    Cordons "cordons" "NodeUnschedulable",
    /// Images on nodes.
    Images "images" "ImageLocality",
    /// Scheduling gates.
    Gates "gates" "SchedulingGates",
    /// Priorities.
    Priorities "priorities" "PrioritySort",
    /// Nominated nodes from other writers.
    Nominations "nominations" "PrioritySort",
    /// Pods that are created on a node.
    Placed "placed" "NodeResourcesFit",
    /// Arguments of plugins.
    Arguments "arguments" "NodeResourcesFit",
    /// Feature gates with other values than the default.
    FeatureGates "featureGates" "NodeResourcesFit",
    /// Hard topology spread constraints.
    HardSpread "hardSpread" "PodTopologySpread",
    /// Soft topology spread constraints.
    SoftSpread "softSpread" "PodTopologySpread",
    /// Services and workloads.
    Workloads "workloads" "PodTopologySpread",
    /// Required pod affinity.
    PodAffinity "podAffinity" "InterPodAffinity",
    /// Required pod anti-affinity.
    PodAntiAffinity "podAntiAffinity" "InterPodAffinity",
    /// Preferred pod affinity and anti-affinity.
    PreferredPods "preferredPods" "InterPodAffinity",
    /// Inline volumes.
    InlineVolumes "inlineVolumes" "VolumeRestrictions",
    /// Claims and volumes.
    Claims "claims" "VolumeBinding",
    /// Limits on the number of volumes.
    VolumeLimits "volumeLimits" "NodeVolumeLimits",
    /// Claims for devices.
    Devices "devices" "DynamicResources",
    /// Extended resources that devices provide.
    ExtendedResources "extendedResources" "DynamicResources",
    /// Requests with alternatives.
    Alternatives "alternatives" "DynamicResources",
    /// Devices that several claims share.
    SharedDevices "sharedDevices" "DynamicResources",
    /// Devices that use shared counters.
    DeviceCounters "deviceCounters" "DynamicResources",
    /// Taints of devices, and tolerations.
    DeviceTaints "deviceTaints" "DynamicResources",
    /// Devices with binding conditions.
    DeviceConditions "deviceConditions" "DynamicResources",
    /// Preemption, with PodDisruptionBudgets.
    Preemption "preemption" "DefaultPreemption",
    /// Features that nodes declare.
    Features "features" "NodeDeclaredFeatures",
    /// Extenders that filter, prioritize and take part in preemption.
    Extenders "extenders" "NodeResourcesFit",
    /// A Permit plugin that rejects pods and lets them wait.
    Permit "permit" "NodeResourcesFit",
    /// Groups of pods.
    Groups "groups" "PrioritySort",
    /// Groups that are placed within one domain of a topology.
    GroupTopology "groupTopology" "PrioritySort",
    /// Groups of groups.
    GroupTrees "groupTrees" "PrioritySort",
}

/// The percentage of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::oracle) struct Mix(BTreeMap<Kind, u32>);

impl Mix {
    /// The percentage of one kind.
    pub(super) fn of(&self, kind: Kind) -> u32 {
        self.0.get(&kind).copied().unwrap_or(0)
    }

    /// A random mix of the kinds that supercargo evaluates. Each history has only some, so that
    /// different plugins decide. Some histories are about devices: pods get them only if most other
    /// plugins do not object.
    pub(in crate::oracle) fn random(random: &mut Random) -> Self {
        let available = |kind: &&Kind| DEFAULT_PLUGINS.iter().any(|plugin| plugin.name == kind.plugin());
        let is_about_devices = random.chance(35);
        Self(
            Kind::ALL
                .iter()
                .filter(available)
                .filter_map(|kind| {
                    let (likely, least) = match (is_about_devices, kind) {
                        (true, Kind::Devices) => (100, 50),
                        (true, Kind::Permit | Kind::Preemption) => (50, 30),
                        (true, _) if kind.plugin() == "DynamicResources" => (40, 20),
                        (true, _) => (12, 5),
                        (false, _) => (35, 5),
                    };
                    let (on, percent) = (random.chance(likely), random.between(least, least + 50));
                    on.then(|| (*kind, u32::try_from(percent).unwrap_or(0)))
                })
                .collect(),
        )
    }

    /// Adjusts the mix: `hostPorts=50,taints=0` sets these, `only,hostPorts=50` sets all others to
    /// 0.
    pub(in crate::oracle) fn adjust(&mut self, text: &str) -> Result<()> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            if part == "only" {
                self.0.clear();
                continue;
            }
            let (name, percent) =
                part.split_once('=').with_context(|| format!("{part} is not kind=percent"))?;
            let percent = percent.parse().with_context(|| format!("{percent} is not a number"))?;
            ensure!(percent <= 100, "{percent} is more than all");
            let kind = Kind::ALL.iter().find(|kind| kind.name() == name);
            let names = || Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            self.0.insert(*kind.with_context(|| format!("there is no {name}, but {}", names()))?, percent);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_adjusted_by_name() {
        let mut mix = Mix::random(&mut Random::new(1));
        mix.adjust("hostPorts=12, taints=0").unwrap();
        assert_eq!((mix.of(Kind::HostPorts), mix.of(Kind::Taints)), (12, 0));
        mix.adjust("only,gates=7").unwrap();
        assert_eq!(mix, Mix(BTreeMap::from([(Kind::Gates, 7)])));
        for wrong in ["gates", "gates=x", "gates=101", "gate=1"] {
            assert!(mix.adjust(wrong).is_err(), "{wrong}");
        }
    }
}
