//! The manifests of a driver's users in `docs/devices.md`, with slices as that driver publishes
//! them.

use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_codec::{ObjectKind, PodKind};
use supercargo_framework::Text;
use supercargo_framework::objects::{Object, resources};
use supercargo_framework::testing::node;

use super::devices::allocation;
use super::test_bed::{TestBed, all_plugins, options};
use crate::{Input, Notification};

const DRIVER: &str = "gpu.nvidia.com";
const GUIDE: &str = include_str!("../../../../docs/devices.md");

/// The documents of the block of YAML below this heading.
fn documents(heading: &str) -> Vec<Value> {
    let (_, section) = GUIDE.split_once(&format!("\n{heading}\n")).expect("the guide has the section");
    let (_, block) = section.split_once("```yaml\n").expect("it has an example");
    let (block, _) = block.split_once("```").expect("the block ends");
    block.split("---\n").map(|document| serde_saphyr::from_str(document).expect("it is YAML")).collect()
}

fn object(resource: &Text, value: &Value) -> Arc<Object> {
    let kind = ObjectKind::of(resource).expect("the kind is known");
    Arc::new(kind.decode(value.to_string().as_bytes()).expect("the object is valid"))
}

/// A GPU as the driver describes it.
fn gpu(number: usize, product: &str, memory: &str) -> Value {
    let text = |text: &str| json!({ "string": text });
    let version = |version: &str| json!({ "version": version });
    let attributes = json!({
        "type": text("gpu"),
        "uuid": text(&format!("GPU-{number}")),
        "productName": text(product),
        "brand": text("Nvidia"),
        "architecture": text("Hopper"),
        "cudaComputeCapability": version("9.0.0"),
        "driverVersion": version("580.65.6"),
        "cudaDriverVersion": version("13.0.0"),
        "resource.kubernetes.io/pciBusID": text(&format!("0000:0{number}:00.0")),
        "resource.kubernetes.io/pcieRoot": text(&format!("pci0000:0{}", number / 2)),
    });
    json!({
        "name": format!("gpu-{number}"),
        "attributes": attributes,
        "capacity": { "memory": { "value": memory } },
    })
}

fn slice(node: &str, devices: &[Value]) -> Arc<Object> {
    let name = format!("{node}-{DRIVER}");
    let pool = json!({ "name": node, "generation": 1, "resourceSliceCount": 1 });
    let spec = json!({ "driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices });
    object(&resources::RESOURCE_SLICE, &json!({ "metadata": { "name": name, "uid": name }, "spec": spec }))
}

#[test]
fn the_example_of_a_driver_gets_gpus_of_one_root() {
    let mut documents = documents("## A real driver");
    let [class, template, pod] = &mut documents[..] else { panic!("three objects") };
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    // A GPU is too small on the first node; the two of the second one have different roots.
    let gpus = |numbers: &[usize], memory: &str| -> Vec<Value> {
        numbers.iter().map(|number| gpu(*number, "NVIDIA H100 80GB HBM3", memory)).collect()
    };
    let slices = [
        slice("small", &gpus(&[0, 1], "46068Mi")),
        slice("apart", &gpus(&[0, 2], "81559Mi")),
        slice("together", &gpus(&[0, 2, 3], "81559Mi")),
    ];
    for name in ["small", "apart", "together"] {
        bed.node(node(name));
    }
    // As the API server and kube-controller-manager do.
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] = "ExactCount".into();
    let claim = json!({
        "metadata": { "name": "claim", "namespace": "default", "uid": "claim", "resourceVersion": "1",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": "p", "controller": true,
            }],
        },
        "spec": template["spec"]["spec"],
    });
    let entry = &pod["spec"]["resourceClaims"][0];
    assert_eq!(entry["resourceClaimTemplateName"], template["metadata"]["name"]);
    let status = json!([{ "name": entry["name"], "resourceClaimName": "claim" }]);
    pod["status"] = json!({ "resourceClaimStatuses": status });
    pod["metadata"]["uid"] = "p".into();
    pod["metadata"]["namespace"] = "default".into();
    let objects = [object(&resources::DEVICE_CLASS, class), object(&resources::RESOURCE_CLAIM, &claim)];
    for object in slices.into_iter().chain(objects) {
        bed.handle(Input::Object(Notification::Added(object)));
    }
    let pod = PodKind::new([""; 0]).decode(pod.to_string().as_bytes()).expect("the pod is valid");
    bed.handle(Input::QueuedPod(Notification::Added(Arc::new(pod))));
    bed.cycle();
    let lines = bed.effect_lines();
    assert_eq!(bed.node_of("p"), Some("together"), "{lines:?}");
    let pending = bed.scheduler.objects().pending("claim").expect("its allocation is pending");
    let results = allocation(pending).map(|allocation| &allocation.results);
    let devices: Vec<&str> = results.into_iter().flatten().map(|result| &*result.device.device).collect();
    assert_eq!(devices, ["gpu-2", "gpu-3"]);
}
