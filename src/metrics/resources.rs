//! `/metrics/resources`: what each pod asks for.

use supercargo_framework::PodInfo;
use supercargo_framework::resource::Resource;

use super::spec::POD_REQUEST;
use super::text::Text;

/// Writes what these pods ask for; amounts of 0 are left out.
pub(super) fn write<'a>(text: &mut Text, pods: impl IntoIterator<Item = &'a PodInfo>) {
    text.family(&POD_REQUEST);
    for pod in pods {
        let priority = pod.priority.to_string();
        let node = pod.node_name.as_deref().unwrap_or_default();
        each_amount(&pod.requests().resource, |resource, unit, amount| {
            let scheduler = &*pod.spec.scheduler_name;
            let labels = [&*pod.namespace, &*pod.name, node, scheduler, &*priority, resource, unit];
            text.sample(&POD_REQUEST, &labels, amount);
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

/// The unit of a resource that is neither CPU nor memory nor storage.
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
    fn amounts_have_upstreams_units() {
        let pods = [
            pod("a")
                .request("cpu", "1500m")
                .request("example.com/gpu", "2")
                .request("hugepages-2Mi", "4Mi")
                .build(),
            pod("asks-for-nothing").build(),
        ];
        let mut text = Text::default();
        write(&mut text, &pods);
        let text = text.finish();
        let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series.len(), 3, "{text}");
        for (resource, unit, amount) in [
            ("cpu", "cores", "1.5"),
            ("example.com/gpu", "integer", "2"),
            ("hugepages-2Mi", "bytes", "4194304"),
        ] {
            let end = format!("resource=\"{resource}\",unit=\"{unit}\"}} {amount}");
            assert!(series.iter().any(|line| line.ends_with(&end)), "{end}\n{text}");
        }
    }
}
