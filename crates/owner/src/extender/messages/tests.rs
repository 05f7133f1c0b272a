use supercargo_framework::testing::{node, pod};

use super::*;

fn value(body: Vec<u8>) -> Value {
    serde_json::from_slice(&body).unwrap()
}

fn nodes() -> Vec<Arc<NodeRecord>> {
    let whole = |name: &str| {
        let mut node = node(name).build();
        node.raw = Some(format!(r#"{{"metadata":{{"name":"{name}"}},"whole":true}}"#).into());
        Arc::new(node)
    };
    vec![whole("n1"), whole("n2"), Arc::new(node("n3").label("a", "b").build())]
}

fn whole_pod(name: &str) -> Arc<PodInfo> {
    Arc::new(pod(name).with(|pod| pod.raw = Some(r#"{"spec":{"whole":1}}"#.into())).build())
}

#[test]
fn nodes_are_sent_whole_or_by_name() {
    let pod = whole_pod("p");
    assert_eq!(
        value(nodes_args(&pod, &nodes(), true)),
        json!({ "Pod": { "spec": { "whole": 1 } }, "Nodes": null, "NodeNames": ["n1", "n2", "n3"] })
    );
    let sent = value(nodes_args(&pod, &nodes(), false));
    assert_eq!(sent["NodeNames"], Value::Null);
    let items = sent["Nodes"]["items"].as_array().unwrap();
    assert_eq!(items[0], json!({ "metadata": { "name": "n1" }, "whole": true }));
    assert_eq!(items[2]["metadata"]["name"], "n3");
    assert_eq!(items[2]["metadata"]["labels"]["a"], "b");
}

#[test]
fn candidates_are_sent_with_whole_victims_or_uids() {
    let candidates = [
        Candidate { node: "n1".into(), victims: vec![whole_pod("a"), whole_pod("b")], pdb_violations: 1 },
        Candidate { node: "n\"2".into(), victims: vec![whole_pod("c")], pdb_violations: 0 },
    ];
    let whole = json!({ "spec": { "whole": 1 } });
    assert_eq!(
        value(preemption_args(&whole_pod("p"), &candidates, false)),
        json!({
            "Pod": whole,
            "NodeNameToMetaVictims": null,
            "NodeNameToVictims": {
                "n1": { "Pods": [whole, whole], "NumPDBViolations": 1 },
                "n\"2": { "Pods": [whole], "NumPDBViolations": 0 },
            },
        })
    );
    assert_eq!(
        value(preemption_args(&whole_pod("p"), &candidates, true)),
        json!({
            "Pod": whole,
            "NodeNameToVictims": null,
            "NodeNameToMetaVictims": {
                "n1": { "Pods": [{ "UID": "a" }, { "UID": "b" }], "NumPDBViolations": 1 },
                "n\"2": { "Pods": [{ "UID": "c" }], "NumPDBViolations": 0 },
            },
        })
    );
}

#[test]
fn binding_args_have_the_fields_of_upstream() {
    assert_eq!(
        value(binding_args(&pod("p").build(), "n1")),
        json!({ "PodName": "p", "PodNamespace": "default", "PodUID": "p", "Node": "n1" })
    );
}

fn shown(answer: Result<ExtenderAnswer, String>) -> String {
    match answer {
        Err(error) => format!("error: {error}"),
        Ok(ExtenderAnswer::Filtered { nodes, failed, failed_and_unresolvable }) => {
            format!("{} {failed:?} {failed_and_unresolvable:?}", nodes.join("+"))
        }
        Ok(other) => format!("{other:?}"),
    }
}

#[test]
fn filter_result_is_parsed_like_in_go() {
    let by_name = [
        (r#"{"NodeNames":["n2","n1"]}"#, "n2+n1 [] []"),
        (r#"{"nodenames":["n2"],"Unknown":1} trailing"#, "n2 [] []"),
        (r#"{"NodeNames":null,"Nodes":{"items":[{"metadata":{"name":"n3"}}]}}"#, "n3 [] []"),
        (r#"{"NodeNames":[],"Nodes":{"items":[{"metadata":{"name":"n3"}}]}}"#, " [] []"),
        ("{}", " [] []"),
        ("null", " [] []"),
        (
            r#"{"FailedNodes":{"n2":"b","n1":"a"},"FailedAndUnresolvableNodes":{"n3":null}}"#,
            r#" [("n1", "a"), ("n2", "b")] [("n3", "")]"#,
        ),
        (r#"{"NodeNames":["n1"],"Error":"no"}"#, "error: no"),
        (
            r#"{"NodeNames":["n9"]}"#,
            "error: extender \"http://x\" claims a filtered node \"n9\" which is not found in the input node list",
        ),
        (r#"{"NodeNames":"n1"}"#, "error: invalid answer: NodeNames is no list but a string"),
        (r#"{"NodeNames":[1]}"#, "error: invalid answer: an item of NodeNames is no string but a number"),
        (
            r#"{"FailedNodes":{"n1":{}}}"#,
            "error: invalid answer: a reason in FailedNodes is no string but an object",
        ),
        ("[]", "error: invalid answer: the answer is no object but a list"),
        ("", "error: EOF"),
    ];
    for (body, expected) in by_name {
        assert_eq!(shown(filtered(body.as_bytes(), &nodes(), true, "http://x")), expected, "{body}");
    }
    let whole = [
        (
            r#"{"Nodes":{"items":[{"metadata":{"name":"n3"},"spec":{}},{"metadata":{"name":"n1"}}]}}"#,
            "n3+n1 [] []",
        ),
        (r#"{"NodeNames":["n1"]}"#, " [] []"),
        (r#"{"Nodes":{"items":[{}]}}"#, " [] []"),
    ];
    for (body, expected) in whole {
        assert_eq!(shown(filtered(body.as_bytes(), &nodes(), false, "http://x")), expected, "{body}");
    }
}

#[test]
fn scores_must_be_integers() {
    let cases = [
        (r#"[{"Host":"n1","Score":10},{"host":"n2"}]"#, r#"Prioritized([("n1", 10), ("n2", 0)])"#),
        ("null", "Prioritized([])"),
        (r#"[{"Host":"n1","Score":1.5}]"#, "error: invalid answer: Score is no integer but 1.5"),
        (r#"{"Host":"n1"}"#, "error: invalid answer: the answer is no list but an object"),
    ];
    for (body, expected) in cases {
        assert_eq!(shown(prioritized(body.as_bytes())), expected, "{body}");
    }
}

#[test]
fn preemption_result_has_victims_by_node_and_uid() {
    let body = r#"{"NodeNameToMetaVictims":{
        "n2":{"Pods":[{"UID":"a"},{"UID":"b"}],"NumPDBViolations":1},
        "n1":null
    }}"#;
    let victims = |node: &str, victims: &[&str], pdb_violations| ExtenderVictims {
        node: node.into(),
        victims: victims.iter().map(|uid| (*uid).into()).collect(),
        pdb_violations,
    };
    let expected = ExtenderAnswer::Preempted(vec![victims("n1", &[], 0), victims("n2", &["a", "b"], 1)]);
    assert_eq!(preempted(body.as_bytes()), Ok(expected));
    assert_eq!(preempted(b"{}"), Ok(ExtenderAnswer::Preempted(Vec::new())));
    assert!(preempted(br#"{"NodeNameToMetaVictims":{"n1":{"Pods":["a"]}}}"#).is_err());
}

#[test]
fn bind_fails_if_the_response_has_an_error() {
    assert_eq!(bound(b"{}"), Ok(()));
    assert_eq!(bound(br#"{"Error":""}"#), Ok(()));
    assert_eq!(bound(br#"{"error":"no"}"#), Err("no".to_owned()));
    assert_eq!(bound(b""), Err("EOF".to_owned()));
}
