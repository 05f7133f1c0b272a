//! Prefers nodes that already have the pod's images.

use std::sync::Arc;

use supercargo_framework::caching::{Caching, Scope};
use supercargo_framework::plugin::{ExtensionPoints, MAX_NODE_SCORE, ScorePlugin, SignPlugin};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{Context, CycleState, NodeInfo, Nodes, Plugin, PodInfo, SmallMap, Status};

/// The plugin's name.
pub const NAME: &str = "ImageLocality";

const MIB: i64 = 1024 * 1024;
/// The minimum sum that scores, in bytes.
const MIN_BYTES: i64 = 23 * MIB;
/// The maximum sum that scores, in bytes per image of the pod.
const MAX_BYTES_PER_IMAGE: i64 = 1000 * MIB;

#[derive(Default)]
pub(crate) struct ImageLocality;

/// The value of an image on the node: its size, scaled by the share of nodes that have it, so that
/// not all pods go to the first node that pulled it.
fn worth(cx: &Context<'_>, image: &str) -> i64 {
    let Some(state) = cx.image(image) else { return 0 };
    let spread = state.nodes as f64 / cx.node_count() as f64;
    (state.size as f64 * spread) as i64
}

/// The position of the sum between the thresholds. Not a `clamp`: for a pod without images the
/// maximum is below the minimum, and upstream checks the minimum first.
fn score_of(sum: i64, images: usize) -> i64 {
    let max = MAX_BYTES_PER_IMAGE * images as i64;
    let counted = if sum < MIN_BYTES { MIN_BYTES } else { sum.min(max) };
    MAX_NODE_SCORE * (counted - MIN_BYTES) / (max - MIN_BYTES)
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().score(&self).sign(&self).caching(&self)
    }
}

impl ScorePlugin for ImageLocality {
    fn score(&self, cx: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<i64, Status> {
        let (wanted, node) = (&pod.spec.images, node.node());
        let mut sum = 0_i64;
        if wanted.is_scanned() || wanted.len() <= node.images.len() {
            for image in wanted.iter().filter(|image| node.has_image(image)) {
                sum = sum.wrapping_add(worth(cx, image));
            }
        } else {
            for image in node.images.iter() {
                let times = wanted.find_by(|known| known.cmp(&image.name)).count();
                if times > 0 {
                    sum = sum.wrapping_add(worth(cx, &image.name).wrapping_mul(times as i64));
                }
            }
        }
        Ok(score_of(sum, wanted.len()))
    }
}

impl SignPlugin for ImageLocality {
    /// Unlike upstream, signs each image once per container, and image volumes.
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&pod.spec.images);
        Ok(())
    }
}

impl Caching for ImageLocality {
    fn score_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    /// Visits only nodes that have an image: sums first, then scores.
    fn score_columns(
        &self,
        cx: &Context<'_>,
        _: &CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        scores: &mut [i64],
    ) -> bool {
        let images = pod.spec.images.len();
        let nothing = score_of(0, images);
        let is_known = |image: &&Arc<str>| cx.image(image).is_some();
        if !pod.spec.images.iter().any(|image| is_known(&image)) {
            scores.fill(nothing);
            return true;
        }
        scores.fill(0);
        let mut wanted: SmallMap<&str, i64> = SmallMap::default();
        for image in &pod.spec.images {
            *wanted.or_default(&&**image) += 1;
        }
        for (image, times) in &wanted {
            let worth = worth(cx, image).wrapping_mul(*times);
            for index in nodes.with_image(image) {
                let sum = &mut scores[index.0 as usize];
                *sum = sum.wrapping_add(worth);
            }
        }
        for score in scores {
            *score = if *score == 0 { nothing } else { score_of(*score, images) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::context::Read;
    use supercargo_framework::objects::Objects;
    use supercargo_framework::testing::{node, node_info, nodes, pod};

    use super::*;
    use crate::testing::driver;

    #[test]
    fn nodes_score_by_size_and_spread_of_their_images() {
        let plugin = driver(NAME);
        let cluster = nodes([
            node_info(node("a").image("big:1", 1000 * MIB).build(), []),
            node_info(node("b").image("big:1", 900 * MIB).image("small:latest", 20 * MIB).build(), []),
            node_info(node("c").image("own:1", 400 * MIB).build(), []),
            node_info(node("d").build(), []),
        ]);
        let cases = [
            ("no image", pod("p"), [0, 0, 0, 0]),
            ("an unknown image", pod("p").image("other"), [0, 0, 0, 0]),
            (
                "half the cluster has it, in the first reporter's size",
                pod("p").image("big:1"),
                [48, 48, 0, 0],
            ),
            ("a small image is below the threshold", pod("p").image("small"), [0, 0, 0, 0]),
            ("one node in four has it", pod("p").image("own:1"), [0, 0, 7, 0]),
            ("the maximum grows with the images", pod("p").image("big:1").image("absent"), [24, 24, 0, 0]),
            ("an image counts once per container", pod("p").image("big:1").image("big:1"), [49, 49, 0, 0]),
        ];
        for (name, pod, expected) in cases {
            assert_eq!(plugin.scores(&pod.build(), &cluster), expected, "{name}");
        }
    }

    #[test]
    fn only_nodes_with_an_image_read_the_cluster() {
        let cluster = nodes([
            node_info(node("a").image("app:1", 500 * MIB).build(), []),
            node_info(node("b").build(), []),
        ]);
        let (objects, state) = (Objects::default(), CycleState::new());
        let cx = Context::at_rest(&cluster, &objects).tracking();
        let pod = pod("p").image("app:1").build();
        let reads_of = |name: &str| {
            let node = cluster.get(name).expect("the node is there");
            ImageLocality.score(&cx, &state, &pod, node).expect("the score never fails");
            cx.take_reads()
        };
        assert_eq!(reads_of("a"), [Read::Images, Read::NodeCount]);
        assert_eq!(reads_of("b"), []);
    }
}
