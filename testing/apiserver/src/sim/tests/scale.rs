//! Many nodes and pods.

use super::*;

#[tokio::test(start_paused = true)]
async fn thousands_of_pods_are_simulated_cheaply() {
    const NODE_COUNT: usize = 500;
    const POD_COUNT: usize = 2_000;
    const DELETED: usize = 200;
    let world = World::new();
    for node in 0..NODE_COUNT {
        world.node(&format!("n{node}")).await;
    }
    for pod in 0..POD_COUNT {
        let (name, node) = (format!("p{pod}"), format!("n{}", pod % NODE_COUNT));
        let container = json!({"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}});
        world.client.create(PODS, &pod).await;
    }
    let mut events = world.client.watch(&format!("{PODS}?watch=true")).await;
    let mut running = rustc_hash::FxHashMap::default();
    while running.len() < POD_COUNT {
        let event = events.next().await.unwrap();
        let status = &event["object"]["status"];
        if status["phase"] == "Running" {
            let address = status["podIP"].as_str().unwrap().to_owned();
            running.insert(address, event["object"]["metadata"]["name"].clone());
        }
    }
    for pod in 0..DELETED {
        world.client.ok(Method::DELETE, &format!("{PODS}/p{pod}"), &Value::Null).await;
    }
    let mut left = DELETED;
    while left > 0 {
        left -= usize::from(events.next().await.unwrap()["type"] == "DELETED");
    }
}
