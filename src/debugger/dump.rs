//! Dumps as text, in the format of kube-scheduler.

use std::fmt::Write as _;
use std::sync::Arc;

use supercargo_framework::{PodInfo, Resource};
use supercargo_scheduler::{NodeView, Place, QueueView};

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
    let cpu = if milli_cpu % 1000 == 0 { decimal(milli_cpu / 1000) } else { format!("{milli_cpu}m") };
    let scalar = |(name, amount): &(Arc<str>, i64)| {
        let is_in_bytes = name.starts_with("hugepages-");
        (name.to_string(), *amount, if is_in_bytes { binary(*amount) } else { decimal(*amount) })
    };
    let basic = [
        ("cpu", milli_cpu, cpu),
        ("memory", memory, binary(memory)),
        ("ephemeral-storage", ephemeral_storage, binary(ephemeral_storage)),
        ("pods", allowed_pod_number, decimal(allowed_pod_number)),
    ];
    let basic = basic.map(|(name, amount, text)| (name.to_owned(), amount, text));
    let all = basic.into_iter().chain(amounts.scalars().iter().map(scalar));
    let texts: Vec<String> =
        all.filter(|(_, amount, _)| *amount != 0).map(|(name, _, text)| format!("{name}={text}")).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// The canonical text of a quantity in bytes.
fn binary(amount: i64) -> String {
    scaled(amount, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// The canonical text of a count.
fn decimal(amount: i64) -> String {
    scaled(amount, 1000, ["", "k", "M", "G", "T", "P", "E"])
}

/// The amount with the largest suffix that leaves an integer.
fn scaled(mut amount: i64, base: i64, suffixes: [&str; 7]) -> String {
    let mut scale = 0;
    while amount != 0 && amount % base == 0 && scale + 1 < suffixes.len() {
        amount /= base;
        scale += 1;
    }
    format!("{amount}{}", suffixes[scale])
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
