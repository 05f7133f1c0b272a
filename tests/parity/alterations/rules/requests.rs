//! The status of a pod that is resized.

use supercargo_framework::Feature;

use super::super::alteration::{Alteration, Change};
use super::{alter, switch_off};

pub(super) fn all() -> Vec<Alteration> {
    vec![
        alter(
            "requests: the status of containers ignored",
            "what the kubelet has allocated or actuated counts (1.4)",
            Change::Config(|config| switch_off(&mut config.features, Feature::InPlacePodVerticalScaling)),
            &["pod-requests/actuated-counts-until-it-shrinks"],
        ),
        alter(
            "requests: the status of the pod ignored",
            "the kubelet's sums of the pod count (1.5)",
            Change::Config(|config| {
                switch_off(&mut config.features, Feature::InPlacePodLevelResourcesVerticalScaling);
            }),
            &["pod-requests/pod-level-status-is-the-sum"],
        ),
    ]
}
