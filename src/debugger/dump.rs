//! Dumps as text, in the format of kube-scheduler.

use std::fmt::Write as _;

use supercargo_framework::resource::names;
use supercargo_framework::{PodInfo, Resource};
use supercargo_scheduler::{NodeView, Place, QueueView};

use supercargo_report::words::quantity;

/// All nodes.
pub(super) fn nodes(views: &[NodeView]) -> String {
    let mut text = String::new();
    for view in views {
        // Writing to a string cannot fail.
        let _ = node(&mut text, view);
    }
    text
}

fn node(text: &mut String, view: &NodeView) -> std::fmt::Result {
    writeln!(text, "\nNode name: {}", view.node.name)?;
    writeln!(text, "Deleted: false")?;
    writeln!(text, "Requested Resources: {}", resource(&view.requested))?;
    writeln!(text, "Allocatable Resources: {}", resource(&view.node.allocatable))?;
    writeln!(text, "Scheduled Pods(number: {}):", view.pods.len())?;
    for on_node in &view.pods {
        writeln!(text, "{}{}", line(&on_node.pod), if on_node.assumed { ", assumed" } else { "" })?;
    }
    if !view.nominated.is_empty() {
        writeln!(text, "Nominated Pods(number: {}):", view.nominated.len())?;
        for pod in &view.nominated {
            writeln!(text, "{}", line(pod))?;
        }
    }
    Ok(())
}

/// Amounts as quantities, as `kubectl describe node` shows them; those that are zero are left out.
fn resource(amounts: &Resource) -> String {
    let Resource { milli_cpu, memory, ephemeral_storage, allowed_pod_number, .. } = *amounts;
    let basic = [
        (names::CPU, milli_cpu),
        (names::MEMORY, memory),
        (names::EPHEMERAL_STORAGE, ephemeral_storage),
        (names::PODS, allowed_pod_number),
    ];
    let scalars = amounts.scalars().iter().map(|(name, amount)| (&**name, *amount));
    let all = basic.into_iter().chain(scalars).filter(|(_, amount)| *amount != 0);
    let texts: Vec<String> = all.map(|(name, amount)| format!("{name}={}", quantity(name, amount))).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// The number of pods in each queue, in upstream's format.
pub(super) fn summary(view: &QueueView) -> String {
    let count = |places: &[Place]| view.waiting.iter().filter(|(place, _)| places.contains(place)).count();
    format!(
        "activeQ:{}; backoffQ:{}; unschedulableEntities:{}",
        count(&[Place::Active]),
        count(&[Place::Backoff]),
        count(&[Place::Unschedulable, Place::Gated])
    )
}

/// A line per queued pod.
pub(super) fn pods(view: &QueueView) -> String {
    let mut text = String::new();
    for (_, entry) in &view.waiting {
        text.push('\n');
        text.push_str(&line(&entry.pod));
    }
    text
}

/// The phase is shown only for pods without a node, which are Pending. The phase of others is not
/// cached.
fn line(pod: &PodInfo) -> String {
    let nominated = pod.status.nominated_node_name.as_deref().unwrap_or_default();
    let phase = if pod.is_assigned() { "" } else { ", phase: Pending" };
    let PodInfo { name, namespace, uid, .. } = pod;
    format!("name: {name}, namespace: {namespace}, uid: {uid}{phase}, nominated node: {nominated}")
}
