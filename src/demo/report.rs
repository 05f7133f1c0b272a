//! What came of it: the summary at the end, and what to try next.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::lines::names;
use super::model::Model;
use super::text::{count, milliseconds, percent, seconds, wrap};

const INDENT: &str = "       ";

/// The summary, in lines of so many columns.
pub(crate) fn summary(model: &Model, elapsed: Duration, columns: usize) -> String {
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
            "From arrival to binding without a wait: {} for half of them, at most {}.",
            milliseconds(half),
            milliseconds(slowest)
        );
    }
    let (used, allocatable) = model.total();
    let (cpu, memory) = used.shares(&allocatable);
    let _ = writeln!(
        text,
        "Requested: {} of the cpu, {} of the memory. It took {}.",
        percent(cpu),
        percent(memory),
        seconds(model.last_bound().unwrap_or(elapsed))
    );
    waiting(model, columns, &mut text);
    refused(model, columns, &mut text);
    text
}

fn refused(model: &Model, columns: usize, text: &mut String) {
    if model.refused().is_empty() {
        return;
    }
    let _ = writeln!(text, "\nRefused:");
    for refusal in model.refused() {
        for (at, line) in wrap(refusal, columns.saturating_sub(INDENT.len()).max(20)).into_iter().enumerate()
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
        let _ = writeln!(text, "{INDENT}They have scheduling gates.");
    }
    if counts.undecided > 0 {
        let _ = writeln!(text, "{:>5}  not tried yet", counts.undecided);
    }
}

/// What to try while it stays up.
pub(crate) fn invitation(kubeconfig: &Path, scheduler: &str, a_waiting_pod: Option<&str>) -> String {
    let describe = match a_waiting_pod.map(|pod| pod.split_once('/').ok_or(pod)) {
        None => String::new(),
        Some(Ok((namespace, name))) => format!("  kubectl describe pod {name} -n {namespace}\n"),
        Some(Err(name)) => format!("  kubectl describe pod {name}\n"),
    };
    format!(
        "Still up; Ctrl-C ends it. In another terminal:\n\n  export KUBECONFIG={}\n  kubectl get nodes\n  \
         kubectl get pods -A -o wide\n{describe}  kubectl get events -A\n  kubectl run hello --image=hello \\\n    \
         --overrides='{{\"spec\":{{\"schedulerName\":\"{scheduler}\"}}}}'\n\n\
         A pod that does not name {scheduler} so stays Pending: there is no other scheduler.\n",
        kubeconfig.display()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use supercargo_framework::pod::PodCondition;
    use supercargo_framework::testing::{node, pod};

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
    fn the_summary_says_what_was_bound_and_why_the_rest_waits() {
        let expected = "\
1 of 4 pods bound, on 2 nodes in 2 zones.
From arrival to binding without a wait: 4 ms for half of them, at most 4 ms.
Requested: 25 % of the cpu, 0 % of the memory. It took 0.1 s.

3 pods wait:
    2  big-1, big-2
       0/2 nodes are available: 2 Insufficient cpu.
    1  held
       They have scheduling gates.
";
        assert_eq!(summary(&model(), Duration::from_secs(9), 80), expected);
        assert_eq!(
            summary(&Model::new("x"), Duration::from_secs(9), 80),
            "0 of 0 pods bound, on 0 nodes.\nRequested: 0 % of the cpu, 0 % of the memory. It took 9.0 s.\n"
        );
    }

    #[test]
    fn what_was_refused_is_said_at_the_end() {
        let mut model = Model::new("x");
        model.refuse(Duration::ZERO, "a.yaml:1:1: pod a: the API server says: no".to_owned());
        let text = summary(&model, Duration::ZERO, 40);
        let expected = "\nRefused:\n    a.yaml:1:1: pod a: the API server\n       says: no\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn reasons_are_as_wide_as_the_terminal() {
        let text = summary(&model(), Duration::ZERO, 40);
        assert!(text.contains("       0/2 nodes are available: 2\n       Insufficient cpu.\n"), "{text}");
    }

    #[test]
    fn the_invitation_can_be_pasted() {
        let text = invitation(Path::new("/tmp/x/kubeconfig"), "supercargo", Some("giant-1"));
        assert!(text.contains("  export KUBECONFIG=/tmp/x/kubeconfig\n"), "{text}");
        assert!(text.contains("  kubectl describe pod giant-1\n"), "{text}");
        let text = invitation(Path::new("/tmp/x/kubeconfig"), "supercargo", Some("shop/web-1"));
        assert!(text.contains("  kubectl describe pod web-1 -n shop\n"), "{text}");
        assert!(text.contains(r#"--overrides='{"spec":{"schedulerName":"supercargo"}}'"#), "{text}");
    }
}
