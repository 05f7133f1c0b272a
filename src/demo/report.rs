//! The summary at the end, and commands to try next.

use std::fmt::Write as _;
use std::path::Path;

use super::lines::names;
use super::model::Model;
use super::text::{count, milliseconds, percent, seconds, wrap};

const INDENT: &str = "       ";

/// The summary, wrapped to `columns`.
pub(crate) fn summary(model: &Model, columns: usize) -> String {
    let counts = model.counts();
    let zones: std::collections::BTreeSet<&str> =
        model.nodes().map(|node| node.zone).filter(|zone| !zone.is_empty()).collect();
    let mut text = String::new();
    let on = match zones.len() {
        0 => count(model.nodes().len(), "node"),
        zones => format!("{} in {}", count(model.nodes().len(), "node"), count(zones, "zone")),
    };
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "{} of {} bound, on {on}.", counts.bound, count(counts.arrived, "pod"));
    if let Some((half, slowest)) = model.latencies() {
        let _ = writeln!(
            text,
            "Time to bind at the first attempt: median {}, maximum {}.",
            milliseconds(half),
            milliseconds(slowest)
        );
    }
    let (used, allocatable) = model.total();
    let (cpu, memory) = used.shares(&allocatable);
    let _ = write!(text, "Requested: {} of CPU, {} of memory.", percent(cpu), percent(memory));
    let _ = match model.last_bound() {
        Some(at) => writeln!(text, " Last pod bound after {}.", seconds(at)),
        None => writeln!(text),
    };
    let devices = model.devices();
    if devices.all > 0 {
        let _ = writeln!(text, "Allocated: {} of {}.", devices.allocated, count(devices.all, "device"));
    }
    waiting(model, columns, &mut text);
    rejected(model, columns, &mut text);
    text
}

fn rejected(model: &Model, columns: usize, text: &mut String) {
    if model.rejected().is_empty() {
        return;
    }
    let _ = writeln!(text, "\nRejected:");
    for rejection in model.rejected() {
        for (at, line) in
            wrap(rejection, columns.saturating_sub(INDENT.len()).max(20)).into_iter().enumerate()
        {
            let _ = writeln!(text, "{}{line}", if at == 0 { "    " } else { INDENT });
        }
    }
}

fn waiting(model: &Model, columns: usize, text: &mut String) {
    let counts = model.counts();
    let waiting = counts.waiting + counts.gated + counts.undecided;
    if waiting == 0 {
        return;
    }
    let verb = if waiting == 1 { "waits" } else { "wait" };
    let _ = writeln!(text, "\n{} {verb}:", count(waiting, "pod"));
    let width = columns.saturating_sub(INDENT.len()).max(20);
    for group in model.waiting() {
        let _ = writeln!(text, "{:>5}  {}", group.pods.len(), names(group.pods.iter(), width));
        for line in wrap(group.why, width) {
            let _ = writeln!(text, "{INDENT}{line}");
        }
    }
    if !model.gated().is_empty() {
        let _ = writeln!(text, "{:>5}  {}", counts.gated, names(model.gated().iter(), width));
        let _ =
            writeln!(text, "{INDENT}These pods have scheduling gates, or wait for others of their group.");
    }
    if counts.undecided > 0 {
        let _ = writeln!(text, "{:>5}  not tried yet", counts.undecided);
    }
}

/// Commands to try while the cluster keeps running.
pub(crate) fn next_steps(kubeconfig: &Path, scheduler: &str, a_waiting_pod: Option<&str>) -> String {
    let describe = match a_waiting_pod.map(|pod| pod.split_once('/').ok_or(pod)) {
        None => String::new(),
        Some(Ok((namespace, name))) => format!("  kubectl describe pod {name} -n {namespace}\n"),
        Some(Err(name)) => format!("  kubectl describe pod {name}\n"),
    };
    format!(
        "The cluster keeps running; press Ctrl-C to stop it. In another terminal:\n\n  export KUBECONFIG={}\n  kubectl get nodes\n  \
         kubectl get pods -A -o wide\n  kubectl get resourceslices,resourceclaims -A\n{describe}  kubectl get events -A\n  kubectl run hello --image=hello \\\n    \
         --overrides='{{\"spec\":{{\"schedulerName\":\"{scheduler}\"}}}}'\n\n\
         Pods without schedulerName {scheduler} stay Pending: there is no other scheduler.\n",
        kubeconfig.display()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use supercargo_framework::pod::PodCondition;
    use supercargo_framework::testing::{node, pod};

    use super::super::model::tests::{claim, slice};
    use super::*;

    fn model() -> Model {
        let mut model = Model::new("supercargo");
        let ours = |name: &str| pod(name).namespace("default").scheduler("supercargo").request("cpu", "1");
        for zone in ["a", "b"] {
            let node = node(zone).zone(zone).allocatable("cpu", "2").allocatable("memory", "2Gi").build();
            model.update_node(Duration::ZERO, &Arc::new(node), true);
        }
        model.update_pod(Duration::from_millis(100), &Arc::new(ours("p").build()));
        model.update_pod(Duration::from_millis(104), &Arc::new(ours("p").node("a").build()));
        for name in ["big-1", "big-2"] {
            let big = ours(name).with(|pod| {
                pod.status.pod_scheduled = Some(PodCondition {
                    status: "False".into(),
                    reason: "Unschedulable".into(),
                    message: "0/2 nodes are available: 2 Insufficient cpu.".into(),
                    observed_generation: None,
                    last_transition: None,
                });
            });
            model.update_pod(Duration::from_millis(200), &Arc::new(big.build()));
        }
        model.update_pod(Duration::from_millis(300), &Arc::new(ours("held").gate("hold").build()));
        model
    }

    #[test]
    fn summary_has_bound_pods_and_reasons_of_waiting_ones() {
        let expected = "\
1 of 4 pods bound, on 2 nodes in 2 zones.
Time to bind at the first attempt: median 4 ms, maximum 4 ms.
Requested: 25 % of CPU, 0 % of memory. Last pod bound after 0.1 s.

3 pods wait:
    2  big-1, big-2
       0/2 nodes are available: 2 Insufficient cpu.
    1  held
       These pods have scheduling gates, or wait for others of their group.
";
        assert_eq!(summary(&model(), 80), expected);
        assert_eq!(
            summary(&Model::new("x"), 80),
            "0 of 0 pods bound, on 0 nodes.\nRequested: 0 % of CPU, 0 % of memory.\n"
        );
    }

    #[test]
    fn summary_counts_devices_if_there_are_some() {
        let mut model = model();
        assert!(!summary(&model, 80).contains("device"));
        model.replace_object(None, Some(&slice(16)));
        model.replace_object(None, Some(&claim(15, false)));
        assert!(
            summary(&model, 80).contains("0.1 s.\nAllocated: 15 of 16 devices.\n"),
            "{}",
            summary(&model, 80)
        );
    }

    #[test]
    fn summary_ends_with_rejected_objects() {
        let mut model = Model::new("x");
        model.reject(Duration::ZERO, "a.yaml:1:1: cannot create pod a: no".to_owned());
        let text = summary(&model, 40);
        let expected = "\nRejected:\n    a.yaml:1:1: cannot create pod a:\n       no\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn reasons_are_wrapped_to_the_terminal_width() {
        let text = summary(&model(), 40);
        assert!(text.contains("       0/2 nodes are available: 2\n       Insufficient cpu.\n"), "{text}");
    }

    #[test]
    fn commands_can_be_pasted() {
        let text = next_steps(Path::new("/tmp/x/kubeconfig"), "supercargo", Some("giant-1"));
        assert!(text.contains("  export KUBECONFIG=/tmp/x/kubeconfig\n"), "{text}");
        assert!(text.contains("  kubectl describe pod giant-1\n"), "{text}");
        let text = next_steps(Path::new("/tmp/x/kubeconfig"), "supercargo", Some("shop/web-1"));
        assert!(text.contains("  kubectl describe pod web-1 -n shop\n"), "{text}");
        assert!(text.contains(r#"--overrides='{"spec":{"schedulerName":"supercargo"}}'"#), "{text}");
    }
}
