//! Scores.

use supercargo_framework::plugin::Normalize;
use supercargo_framework::{Context, NodeInfo, PodInfo};

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::{normalized, pod, score, scored};
use super::{alter, plugin, with_spec};
use supercargo_config::PluginSet;

pub(super) fn all() -> Vec<Alteration> {
    [taints(), affinity(), resources(), images()].into_iter().flatten().collect()
}

fn nothing(_: i64) -> i64 {
    0
}

fn weigh(plugins: &mut PluginSet, name: &str, weight: i32) {
    for (_, given) in plugins.score.iter_mut().filter(|(plugin, _)| plugin == name) {
        *given = weight;
    }
}

fn unscored(plugins: &mut PluginSet, name: &str) {
    plugins.score.retain(|(plugin, _)| plugin != name);
}

fn taints() -> Vec<Alteration> {
    const NAME: &str = "TaintToleration";
    vec![
        alter(
            "TaintToleration: scores nothing",
            "nodes with fewer PreferNoSchedule taints score higher (5.4)",
            plugin(NAME, score(nothing)),
            &["scores/prefer-no-schedule"],
        ),
        alter(
            "TaintToleration: not reversed",
            "the most taints score lowest (5.4)",
            plugin(NAME, normalized(Normalize::ByMax { reverse: false })),
            &["scores/prefer-no-schedule"],
        ),
        alter(
            "TaintToleration: weight 1",
            "its weight is 3 (5.1)",
            Change::Plugins(|plugins| weigh(plugins, NAME, 1)),
            &["scores/prefer-no-schedule-outweighs-preference"],
        ),
    ]
}

fn affinity() -> Vec<Alteration> {
    const NAME: &str = "NodeAffinity";
    vec![
        alter(
            "NodeAffinity: not scored",
            "nodes that match preferred terms score higher (5.5)",
            Change::Plugins(|plugins| unscored(plugins, NAME)),
            &["scores/preferred-node-affinity-weight"],
        ),
        alter(
            "NodeAffinity: each term weighs the same",
            "the weights of the terms that match add up (5.5)",
            plugin(NAME, score(|score| score.min(1))),
            &["scores/preferred-node-affinity-adds-up"],
        ),
        alter(
            "NodeAffinity: not normalised",
            "the best node gets 100 (5.5)",
            plugin(NAME, normalized(Normalize::None)),
            &["scores/preferred-node-affinity-against-empty-node"],
        ),
        alter(
            "NodeAffinity: weight 1",
            "its weight is 2 (5.1)",
            Change::Plugins(|plugins| weigh(plugins, NAME, 1)),
            &["scores/preferred-node-affinity-against-image"],
        ),
        alter(
            "NodeAffinity: addedAffinity prefers nothing",
            "addedAffinity adds preferences to all pods (5.5)",
            Change::Built(NAME, |args, _| args.clear()),
            &["node-affinity/added-preference"],
        ),
    ]
}

fn resources() -> Vec<Alteration> {
    const NAME: &str = "NodeResourcesFit";
    const BALANCED: &str = "NodeResourcesBalancedAllocation";
    vec![
        alter(
            "NodeResourcesFit: scores nothing",
            "nodes with less allocated score higher (5.9)",
            plugin(NAME, score(nothing)),
            &["scores/least-allocated"],
        ),
        alter(
            "NodeResourcesFit: reversed",
            "nodes with less allocated score higher (5.9)",
            plugin(NAME, score(|score| 100 - score)),
            &["scores/least-allocated"],
        ),
        alter(
            "NodeResourcesFit: LeastAllocated for all",
            "with MostAllocated nodes with more allocated score higher (5.9)",
            Change::Built(NAME, |args, _| {
                args.remove("scoringStrategy");
            }),
            &["scores/most-allocated"],
        ),
        alter(
            "NodeResourcesFit: not scored",
            "nodes with less allocated score higher, also among many (5.9)",
            Change::Plugins(|plugins| unscored(plugins, NAME)),
            &["scores/twelve-nodes"],
        ),
        alter(
            "NodeResourcesBalancedAllocation: scores nothing",
            "balanced nodes score higher (5.9)",
            plugin(BALANCED, score(nothing)),
            &["scores/balanced-allocation"],
        ),
        alter(
            "NodeResourcesBalancedAllocation: reversed",
            "balanced nodes score higher (5.9)",
            plugin(BALANCED, score(|score| 100 - score)),
            &["scores/balanced-allocation"],
        ),
        alter(
            "NodeResourcesBalancedAllocation: cpu and memory for all",
            "arguments select the balanced resources (5.9)",
            Change::Built(BALANCED, |args, _| args.clear()),
            &["scores/balanced-allocation-device-outweighs"],
        ),
    ]
}

/// The score of a node's images, from 0 at the minimum to 100 at the maximum per image, in MiB.
fn images_between(cx: &Context<'_>, pod: &PodInfo, node: &NodeInfo, (min, max): (f64, f64)) -> i64 {
    const MIB: f64 = 1024.0 * 1024.0;
    let present = pod.spec.images.iter().filter(|image| node.node().has_image(image));
    let known = present.filter_map(|image| cx.image(image));
    let worth: f64 =
        known.map(|image| image.size as f64 * image.nodes as f64 / cx.node_count() as f64 / MIB).sum();
    let max = max * pod.spec.images.len() as f64;
    (100.0 * (worth.clamp(min, max) - min) / (max - min)) as i64
}

fn images() -> Vec<Alteration> {
    const NAME: &str = "ImageLocality";
    vec![
        alter(
            "ImageLocality: scores nothing",
            "nodes with the images score higher (5.17)",
            plugin(NAME, score(nothing)),
            &["scores/image-locality"],
        ),
        alter(
            "ImageLocality: reversed",
            "nodes with the images score higher (5.17)",
            plugin(NAME, score(|score| 100 - score)),
            &["scores/image-locality"],
        ),
        alter(
            "ImageLocality: no minimum",
            "less than 23 MiB of images score nothing (5.17)",
            plugin(NAME, scored(|cx, pod, node| images_between(cx, pod, node, (0.0, 1000.0)))),
            &["scores/image-locality-below-minimum"],
        ),
        alter(
            "ImageLocality: a lower maximum",
            "larger images score higher, up to 1000 MiB (5.17)",
            plugin(NAME, scored(|cx, pod, node| images_between(cx, pod, node, (23.0, 500.0)))),
            &["scores/image-locality-half-of-maximum"],
        ),
        alter(
            "ImageLocality: a higher maximum",
            "1000 MiB of images score the maximum (5.17)",
            plugin(NAME, scored(|cx, pod, node| images_between(cx, pod, node, (23.0, 2000.0)))),
            &["scores/image-locality-maximum"],
        ),
        alter(
            "ImageLocality: one maximum for all",
            "the maximum is for each image of the pod (5.17)",
            plugin(
                NAME,
                scored(|cx, pod, node| {
                    let one = 1000.0 / pod.spec.images.len() as f64;
                    images_between(cx, pod, node, (23.0, one))
                }),
            ),
            &["scores/image-locality-divided-by-containers"],
        ),
        alter(
            "ImageLocality: the maximum is for one image less",
            "init containers, containers and image volumes divide the score (5.17)",
            plugin(
                NAME,
                scored(|cx, pod, node| {
                    let count = pod.spec.images.len() as f64;
                    images_between(cx, pod, node, (23.0, 1000.0 * (count - 1.0) / count))
                }),
            ),
            &["scores/image-locality-init-container-and-image-volume"],
        ),
        alter(
            "ImageLocality: the second use of an image counts nothing",
            "an image that a container and a volume use counts twice (5.17)",
            plugin(
                NAME,
                scored(|cx, pod, node| {
                    let (mut one, count) = (pod.clone(), pod.spec.images.len() as f64);
                    with_spec(&mut one, |spec| spec.images = spec.images.iter().take(1).cloned().collect());
                    images_between(cx, &one, node, (23.0, 1000.0 * count))
                }),
            ),
            &["scores/image-locality-image-of-container-and-volume"],
        ),
        alter(
            "ImageLocality: only the first image",
            "the images of all containers and image volumes count (5.17)",
            plugin(
                NAME,
                pod(|pod| {
                    let first = pod.spec.images.iter().next().cloned();
                    with_spec(pod, |spec| spec.images = first.into_iter().collect());
                }),
            ),
            &[
                "scores/image-locality-image-volume-adds-up",
                "scores/image-locality-absent-image-volume-divides",
            ],
        ),
    ]
}
