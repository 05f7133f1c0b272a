//! `/metrics/resources`: requests and limits of pods.

use supercargo_framework::PodInfo;
use supercargo_framework::resource::Resource;

use super::spec::{POD_LIMIT, POD_REQUEST, Spec};
use super::text::Text;

/// Writes the requests and limits of these pods; zero amounts are omitted.
pub(super) fn write<'a>(text: &mut Text, pods: impl IntoIterator<Item = &'a PodInfo> + Clone) {
    write_family(text, &POD_REQUEST, pods.clone(), |pod| Some(&pod.requests().resource));
    write_family(text, &POD_LIMIT, pods, |pod| pod.spec.limits.as_deref());
}

fn write_family<'a>(
    text: &mut Text,
    spec: &Spec,
    pods: impl IntoIterator<Item = &'a PodInfo>,
    amounts: impl Fn(&'a PodInfo) -> Option<&'a Resource>,
) {
    text.family(spec);
    for pod in pods {
        let Some(amounts) = amounts(pod) else { continue };
        let priority = pod.priority.to_string();
        let node = pod.node_name.as_deref().unwrap_or_default();
        each_amount(amounts, |resource, unit, amount| {
            let scheduler = &*pod.spec.scheduler_name;
            let labels = [&*pod.namespace, &*pod.name, node, scheduler, &*priority, resource, unit];
            text.sample(spec, &labels, amount);
        });
    }
}

fn each_amount(resource: &Resource, mut tell: impl FnMut(&str, &str, f64)) {
    let mut one = |name: &str, unit: &str, amount: i64, scale: f64| {
        if amount != 0 {
            tell(name, unit, amount as f64 / scale);
        }
    };
    one("cpu", "cores", resource.get("cpu"), 1000.0);
    one("memory", "bytes", resource.get("memory"), 1.0);
    one("ephemeral-storage", "bytes", resource.get("ephemeral-storage"), 1.0);
    for (name, amount) in resource.scalars() {
        one(name, unit_of(name), *amount, 1.0);
    }
}

/// The unit of resources other than CPU, memory and storage.
fn unit_of(name: &str) -> &'static str {
    if name.starts_with("hugepages-") {
        "bytes"
    } else if name.starts_with("attachable-volumes-") || name.contains('/') {
        "integer"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    #[test]
    fn amounts_are_in_upstreams_units() {
        let pods = [
            pod("a")
                .request("cpu", "1500m")
                .request("example.com/gpu", "2")
                .request("hugepages-2Mi", "4Mi")
                .limit("cpu", "2")
                .build(),
            pod("asks-for-nothing").build(),
        ];
        let mut text = Text::default();
        write(&mut text, &pods);
        let text = text.finish();
        let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series.len(), 4, "{text}");
        for (family, resource, unit, amount) in [
            ("request", "cpu", "cores", "1.5"),
            ("request", "example.com/gpu", "integer", "2"),
            ("request", "hugepages-2Mi", "bytes", "4194304"),
            ("limit", "cpu", "cores", "2"),
        ] {
            let beginning = format!("kube_pod_resource_{family}{{");
            let end = format!("resource=\"{resource}\",unit=\"{unit}\"}} {amount}");
            let is_it = |line: &&str| line.starts_with(&beginning) && line.ends_with(&end);
            assert!(series.iter().any(is_it), "{beginning}…{end}\n{text}");
        }
    }
}
