//! Properties of victims on any cluster.

use proptest::prelude::*;

use super::*;

/// A pod: CPUs, priority, start time if any, and whether a budget protects it.
type Shape = (u32, i32, Option<i64>, bool);

fn shape() -> impl Strategy<Value = Shape> {
    (0..4_u32, 0..5_i32, prop::option::of(0..4_i64), any::<bool>())
}

fn build(node: usize, i: usize, (cpu, priority, start, protected): &Shape) -> PodBuilder {
    let mut builder = cpus(&format!("{node}-{i}"), *cpu).priority(*priority);
    if *protected {
        builder = builder.label("app", "web");
    }
    match start {
        Some(start) => started(builder, *start),
        None => builder,
    }
}

proptest! {
    #[test]
    fn victims_have_lower_priority_and_are_minimal(
        shapes in prop::collection::vec(prop::collection::vec(shape(), 0..5), 1..5),
        cpu in 1..6_u32,
        priority in 0..5_i32,
        allowed in 0..3_i32,
    ) {
        let infos: Vec<_> = shapes
            .iter()
            .enumerate()
            .map(|(n, pods)| {
                four(&format!("n{n}"), pods.iter().enumerate().map(|(i, shape)| build(n, i, shape)))
            })
            .collect();
        let state = CycleState::new();
        let preemptor = cpus("p", cpu).priority(priority);
        let pod = preemptor.clone().build();
        let cluster = nodes(infos);
        let fits = |node: &NodeInfo| ByCpu.run_filters(&state, &pod, node).is_success();
        prop_assume!(!cluster.iter().any(|(_, node)| fits(node)));
        let answer = post_filter(preemptor.clone(), &cluster, &objects([budget("web", allowed)]));
        let (by_totals, ..) =
            super::totals::with_totals(preemptor, &cluster, &objects([budget("web", allowed)]));
        prop_assert_eq!(&by_totals, &answer, "totals change nothing");

        let without = |node: &NodeInfo, gone: &dyn Fn(&PodInfo) -> bool| {
            let mut node = node.clone();
            let pods = node.pods().to_vec();
            for pod in pods.iter().filter(|pod| gone(pod)) {
                node.remove_pod(&pod.uid);
            }
            node
        };
        let Some((name, victims)) = answer.order() else {
            for (_, node) in cluster.iter() {
                prop_assert!(!fits(&without(node, &|pod| pod.priority < priority)), "{} could do", node.name());
            }
            return Ok(());
        };
        prop_assert!(!victims.is_empty());
        let node = cluster.get(name).unwrap();
        let is_victim = |pod: &PodInfo| victims.contains(&&*pod.name);
        let chosen: Vec<_> = node.pods().iter().filter(|pod| is_victim(pod)).collect();
        prop_assert_eq!(chosen.len(), victims.len());
        prop_assert!(chosen.iter().all(|victim| victim.priority < priority));
        let cleared = without(node, &is_victim);
        prop_assert!(fits(&cleared), "it fits without them");
        for victim in chosen {
            let mut with_one_back = cleared.clone();
            with_one_back.add_pod(Arc::clone(victim));
            prop_assert!(!fits(&with_one_back), "{} need not go", victim.name);
        }
    }
}
