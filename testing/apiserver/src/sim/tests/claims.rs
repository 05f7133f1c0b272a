//! Resource claims and the slices of a simulated driver.

use super::*;
use crate::sim::{DEVICE_DRIVER, SIMULATE_DEVICES, SIMULATE_LOST_DEVICES, SIMULATE_SPECIAL_DEVICES};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn spec() -> Value {
    json!({"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpu"}}]}})
}

fn template_of_claims() -> Value {
    let metadata = json!({"labels": {"app": "x"}, "annotations": {"a": "b"}});
    json!({"metadata": {"name": "gpu"}, "spec": {"metadata": metadata, "spec": spec()}})
}

/// A pod with a claim `first` by template and a claim `second` by name.
fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "app:1"}], "terminationGracePeriodSeconds": 0,
        "resourceClaims": [
            {"name": "second", "resourceClaimName": "shared"}, {"name": "first", "resourceClaimTemplateName": "gpu"},
        ],
    }})
}

impl World {
    /// The generated claim of a pod, once it is there.
    async fn generated(&self, pod: &str) -> String {
        let pod =
            self.until(PODS, pod, |pod| !list(&pod["status"], "resourceClaimStatuses").is_empty()).await;
        let [status] = list(&pod["status"], "resourceClaimStatuses") else { panic!("{pod}") };
        assert_eq!(status["name"], "first");
        text(status, "resourceClaimName").to_owned()
    }

    /// Allocates a claim and reserves it for a pod, as a scheduler does.
    async fn allocate(&self, claim: &str, pod: &Value) {
        let path = format!("{CLAIMS}/{claim}");
        self.patch(&path, json!({"metadata": {"finalizers": [FINALIZER]}})).await;
        let result = json!({"request": "one", "driver": DEVICE_DRIVER, "pool": "n0", "device": "gpu-0"});
        let metadata = &pod["metadata"];
        let status = json!({
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}],
            "devices": [{"driver": DEVICE_DRIVER, "pool": "n0", "device": "gpu-0"}],
        });
        self.patch(&format!("{path}/status"), json!({"status": status})).await;
    }
}

fn is_free(claim: &Value) -> bool {
    let metadata = &claim["metadata"];
    claim["status"].get("allocation").is_none() && list(metadata, "finalizers").is_empty()
}

#[tokio::test(start_paused = true)]
async fn claims_are_created_from_templates_and_named_in_the_status() {
    let world = World::new();
    let created = world.client.create(PODS, &pod("p")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(world.list(CLAIMS).await.is_empty(), "there is no template yet");
    world.client.create(TEMPLATES, &template_of_claims()).await;
    let name = world.generated("p").await;
    assert!(name.starts_with("p-first-") && name.len() == "p-first-".len() + 5, "{name}");
    let claim = world.client.get(&format!("{CLAIMS}/{name}")).await.1;
    let metadata = &claim["metadata"];
    assert_eq!(metadata["annotations"], json!({"a": "b", "resource.kubernetes.io/pod-claim-name": "first"}));
    assert_eq!(metadata["labels"], json!({"app": "x"}));
    let [owner] = list(metadata, "ownerReferences") else { panic!("{metadata}") };
    assert_eq!((&owner["uid"], &owner["controller"]), (&created["metadata"]["uid"], &json!(true)));
    assert_eq!(claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], "gpu");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.list(CLAIMS).await.len(), 1, "one is enough");
}

#[tokio::test(start_paused = true)]
async fn long_names_of_claims_are_cut_in_proportion() {
    let world = World::new();
    world.client.create(TEMPLATES, &template_of_claims()).await;
    let name = "p".repeat(120);
    world.client.create(PODS, &pod(&name)).await;
    let claim = world.generated(&name).await;
    // 57 characters stand for `<pod>-first-`, and the server adds five.
    assert_eq!(claim[..claim.len() - 5], format!("{}-fi", "p".repeat(120 * 57 / 127)));
}

#[tokio::test(start_paused = true)]
async fn claims_of_deleted_pods_are_freed_and_generated_ones_deleted() {
    let world = World::new();
    world.node("n0").await;
    world.client.create(TEMPLATES, &template_of_claims()).await;
    world.client.create(CLAIMS, &json!({"metadata": {"name": "shared"}, "spec": spec()})).await;
    let created = world.client.create(PODS, &pod("p")).await;
    let generated = world.generated("p").await;
    for claim in [&generated, "shared"] {
        world.allocate(claim, &created).await;
    }
    world.bind("p", "n0").await;
    world.until_phase("p", "Running").await;
    world.delete(&format!("{PODS}/p")).await;
    world.until_gone(CLAIMS, &generated).await;
    let shared = world.until(CLAIMS, "shared", is_free).await;
    assert_eq!(shared["status"], json!({}), "the devices' status goes, too");
}

#[tokio::test(start_paused = true)]
async fn claims_of_finished_pods_are_freed() {
    let world = World::new();
    world.node("n0").await;
    world.client.create(TEMPLATES, &template_of_claims()).await;
    let mut done = pod("p");
    done["spec"]["restartPolicy"] = json!("Never");
    done["metadata"]["annotations"] = json!({"supercargo.dev/simulate": "complete"});
    world.client.create(CLAIMS, &json!({"metadata": {"name": "shared"}, "spec": spec()})).await;
    let created = world.client.create(PODS, &done).await;
    let generated = world.generated("p").await;
    for claim in [&generated, "shared"] {
        world.allocate(claim, &created).await;
    }
    world.bind("p", "n0").await;
    world.until_phase("p", "Succeeded").await;
    world.until_gone(CLAIMS, &generated).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_use_keeps_its_allocation_until_its_pod_is_gone() {
    let world = World::new();
    world.client.create(CLAIMS, &json!({"metadata": {"name": "shared"}, "spec": spec()})).await;
    world.client.create(TEMPLATES, &template_of_claims()).await;
    let created = world.client.create(PODS, &pod("p")).await;
    world.allocate("shared", &created).await;
    world.delete(&format!("{CLAIMS}/shared")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let claim = world.client.get(&format!("{CLAIMS}/shared")).await.1;
    assert!(claim["status"].get("allocation").is_some(), "{claim}");
    world.delete(&format!("{PODS}/p")).await;
    world.until_gone(CLAIMS, "shared").await;
}

#[tokio::test(start_paused = true)]
async fn allocated_claims_are_reserved_for_pods_created_with_a_node() {
    let world = World::new();
    world.node("n0").await;
    world.client.create(CLAIMS, &json!({"metadata": {"name": "shared"}, "spec": spec()})).await;
    world.client.create(TEMPLATES, &template_of_claims()).await;
    let holder = world.client.create(PODS, &pod("holder")).await;
    world.allocate("shared", &holder).await;
    let mut placed = pod("p");
    placed["spec"]["nodeName"] = json!("n0");
    world.client.create(PODS, &placed).await;
    let of_both = |claim: &Value| {
        let consumers = list(&claim["status"], "reservedFor");
        consumers.iter().map(|consumer| text(consumer, "name").to_owned()).collect::<Vec<_>>()
            == ["holder", "p"]
    };
    world.until(CLAIMS, "shared", of_both).await;
}

#[tokio::test(start_paused = true)]
async fn devices_of_nodes_are_published_and_withdrawn() {
    let world = World::new();
    let slice = "n0-gpu.supercargo.dev";
    world.node("n0").await;
    let devices = |count: &str| json!({"metadata": {"annotations": {SIMULATE_DEVICES: count}}});
    world.patch(&format!("{NODES}/n0"), devices("2")).await;
    let published = world.until(SLICES, slice, |_| true).await;
    assert_eq!(
        (&published["spec"]["nodeName"], &published["spec"]["driver"]),
        (&json!("n0"), &json!(DEVICE_DRIVER))
    );
    assert_eq!(list(&published["spec"], "devices").len(), 2);
    world.patch(&format!("{NODES}/n0"), devices("3")).await;
    let changed = world.until(SLICES, slice, |slice| list(&slice["spec"], "devices").len() == 3).await;
    assert_eq!(changed["spec"]["pool"]["generation"], 2);
    world.delete(&format!("{NODES}/n0")).await;
    world.until_gone(SLICES, slice).await;
}

#[tokio::test(start_paused = true)]
async fn pools_have_as_many_slices_as_needed_of_one_generation() {
    let world = World::new();
    world.node("n0").await;
    let annotate = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let first = "n0-gpu.supercargo.dev";
    let pools = |slices: &[Value]| -> Vec<(i64, i64, usize)> {
        let number = |slice: &Value, field: &str| slice["spec"]["pool"][field].as_i64().unwrap();
        let of = |slice: &Value| {
            (
                number(slice, "generation"),
                number(slice, "resourceSliceCount"),
                list(&slice["spec"], "devices").len(),
            )
        };
        slices.iter().map(of).collect()
    };
    world.patch(&format!("{NODES}/n0"), annotate(json!({SIMULATE_DEVICES: "10"}))).await;
    world.until(SLICES, "n0-gpu.supercargo.dev-1", |_| true).await;
    assert_eq!(pools(&world.list(SLICES).await), [(1, 2, 8), (1, 2, 2)]);
    world
        .client
        .ok(Method::GET, "/apis/resource.k8s.io/v1/deviceclasses/gpu.supercargo.dev", &Value::Null)
        .await;
    // Lost devices.
    world.patch(&format!("{NODES}/n0"), annotate(json!({SIMULATE_LOST_DEVICES: "0, 9"}))).await;
    world.until(SLICES, first, |slice| list(&slice["spec"], "devices").len() == 7).await;
    assert_eq!(pools(&world.list(SLICES).await), [(2, 2, 7), (2, 2, 1)]);
    // Another change of the node publishes nothing.
    world.patch(&format!("{NODES}/n0"), json!({"metadata": {"labels": {"a": "b"}}})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(pools(&world.list(SLICES).await), [(2, 2, 7), (2, 2, 1)]);
    // They return, fewer slices are left, and at last none.
    let fewer = annotate(json!({SIMULATE_DEVICES: "3", SIMULATE_LOST_DEVICES: null}));
    world.patch(&format!("{NODES}/n0"), fewer).await;
    world.until_gone(SLICES, "n0-gpu.supercargo.dev-1").await;
    assert_eq!(pools(&world.list(SLICES).await), [(3, 1, 3)]);
    world.patch(&format!("{NODES}/n0"), annotate(json!({SIMULATE_DEVICES: null}))).await;
    world.until_gone(SLICES, first).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_starts_once_its_claims_are_reserved_for_it() {
    let world = World::new();
    world.node("n0").await;
    world.client.create(TEMPLATES, &template_of_claims()).await;
    world.client.create(CLAIMS, &json!({"metadata": {"name": "shared"}, "spec": spec()})).await;
    let created = world.client.create(PODS, &pod("p")).await;
    let generated = world.generated("p").await;
    world.allocate(&generated, &created).await;
    world.bind("p", "n0").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let waiting = world.client.get(&format!("{PODS}/p")).await.1;
    assert_eq!(waiting["status"]["phase"], "Pending", "the other claim has no device");
    world.allocate("shared", &created).await;
    world.until_phase("p", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn special_devices_have_a_pool_of_their_own() {
    let world = World::new();
    world.node("n0").await;
    let annotate = |value: &str| json!({"metadata": {"annotations": {SIMULATE_SPECIAL_DEVICES: value}}});
    world.patch(&format!("{NODES}/n0"), annotate("ready")).await;
    world.until(SLICES, "n0-special-gpu.supercargo.dev-1", |_| true).await;
    let slices = world.list(SLICES).await;
    let [devices, counters] = &slices[..] else { panic!("{slices:?}") };
    for slice in [devices, counters] {
        let pool = json!({"name": "n0-special", "generation": 1, "resourceSliceCount": 2});
        assert_eq!(slice["spec"]["pool"], pool);
    }
    assert_eq!(counters["spec"]["sharedCounters"][0]["counters"]["memory"]["value"], "40Gi");
    let fields = ["consumesCounters", "allowMultipleAllocations", "taints", "bindingConditions"];
    for field in fields {
        let has_it = |device: &Value| device.get(field).is_some();
        assert!(list(&devices["spec"], "devices").iter().any(has_it), "{field}");
    }
    world.patch(&format!("{NODES}/n0"), annotate("")).await;
    world.until_gone(SLICES, "n0-special-gpu.supercargo.dev").await;
}

#[tokio::test(start_paused = true)]
async fn devices_that_must_be_prepared_get_ready_or_fail() {
    let world = World::new();
    world.node("n0").await;
    for (annotation, condition) in [("ready", "Ready"), ("failing", "Failed")] {
        let annotations = json!({"metadata": {"annotations": {SIMULATE_SPECIAL_DEVICES: annotation}}});
        world.patch(&format!("{NODES}/n0"), annotations).await;
        let claim =
            world.client.create(CLAIMS, &json!({"metadata": {"name": annotation}, "spec": spec()})).await;
        let name = text(&claim["metadata"], "name");
        let result = json!({
            "request": "one", "driver": DEVICE_DRIVER, "pool": "n0-special", "device": "slow",
            "bindingConditions": ["Ready"], "bindingFailureConditions": ["Failed"],
        });
        let status = json!({"allocation": {"devices": {"results": [result]}}});
        world.patch(&format!("{CLAIMS}/{name}/status"), json!({"status": status})).await;
        let reported = world.until(CLAIMS, name, |claim| !list(&claim["status"], "devices").is_empty()).await;
        let reported = &reported["status"]["devices"][0];
        assert_eq!(
            (&reported["device"], &reported["conditions"][0]["type"]),
            (&json!("slow"), &json!(condition))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_starts_once_the_claim_for_its_extended_resources_is_reserved() {
    let world = World::new();
    world.node("n0").await;
    let mut plain = pod("p");
    plain["spec"]["resourceClaims"] = Value::Null;
    let created = world.client.create(PODS, &plain).await;
    let mapping = json!({"containerName": "main", "resourceName": "example.com/gpu", "requestName": "one"});
    let status = json!({"resourceClaimName": "extended", "requestMappings": [mapping]});
    let path = format!("{PODS}/p/status");
    world.patch(&path, json!({"status": {"extendedResourceClaimStatus": status}})).await;
    world.bind("p", "n0").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let waiting = world.client.get(&format!("{PODS}/p")).await.1;
    assert_eq!(waiting["status"]["phase"], "Pending", "there is no such claim");
    world.client.create(CLAIMS, &json!({"metadata": {"name": "extended"}, "spec": spec()})).await;
    world.allocate("extended", &created).await;
    world.until_phase("p", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_pod_was_gone_before_it_is_deleted() {
    let world = World::new();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "gone", "controller": true});
    let claim = json!({"metadata": {"name": "late", "ownerReferences": [owner]}, "spec": spec()});
    world.client.create(CLAIMS, &claim).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.list(CLAIMS).await.is_empty());
}
