//! Pods in namespaces with limit ranges.

use super::*;

#[test]
fn limit_ranges_have_the_recorded_outcomes() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("limited.json")).expect("cases");
    let mut wrong: Vec<String> = Vec::new();
    for case in &cases {
        let range = json!({
            "metadata": {"name": "l", "namespace": "default"}, "spec": {"limits": case["limits"]},
        });
        let objects = Objects::system().with("", "limitranges", range);
        let mut pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": case["spec"]});
        let found = match create(&mut pod, &objects) {
            Ok(()) => {
                json!([201, pod["spec"], pod["metadata"].get("annotations"), pod["status"]["qosClass"]])
            }
            Err(status) => json!([status.code.as_u16(), status.message]),
        };
        let expected = match case.get("message") {
            None => json!([case["code"], case["created"], case["annotations"], case["class"]]),
            Some(message) => json!([case["code"], message]),
        };
        if found != expected {
            wrong.push(format!("\n{}\n  here: {found}\n  real: {expected}\n", case["case"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn limit_ranges_of_other_namespaces_are_ignored() {
    let range = json!({
        "metadata": {"name": "l", "namespace": "other"},
        "spec": {"limits": [{"type": "Container", "min": {"cpu": "1"}}]},
    });
    let objects = Objects::system().with("", "limitranges", range);
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(create(&mut pod, &objects), Ok(()));
}
