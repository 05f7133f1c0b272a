use serde_json::{Value, json};

use super::*;

fn id(api_version: &str, kind: &str) -> TypeId {
    Schema::get().kind(api_version, kind).unwrap()
}

/// Decodes an object of its own kind.
fn decoded(mut object: Value) -> Value {
    let text = |name: &str| object[name].as_str().unwrap().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    assert_eq!(decode(id(&api_version, &kind), &mut object), Ok(Vec::new()));
    object
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
}

fn refusal_of(mut object: Value) -> String {
    decode(id("v1", "Pod"), &mut object).unwrap_err().message("v1", "Pod")
}

/// The real server's error, without the common prefix.
fn refused(object: Value) -> String {
    let text = refusal_of(object);
    text.strip_prefix("Pod in version \"v1\" cannot be handled as a Pod: ").unwrap().to_owned()
}

fn refused_field(spec: Value) -> String {
    let text = refused(pod(spec));
    text.strip_prefix("json: cannot unmarshal ").unwrap().replacen("into Go struct field ", "", 1)
}

#[test]
fn objects_of_the_real_server_are_unchanged() {
    for fixture in crate::proto::fixtures::all() {
        if fixture.json["kind"] != "PodList" && fixture.json["type"].is_null() {
            assert_eq!(decoded(fixture.json.clone()), fixture.json, "{}", fixture.name);
        }
    }
}

#[test]
fn empty_values_are_dropped_and_always_written_fields_added() {
    let sent = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n", "labels": {}, "annotations": {"a": ""}, "finalizers": [], "ownerReferences": null,
            "creationTimestamp": null, "uid": "",
        },
        "status": {
            "capacity": {"cpu": "4000m", "memory": "8192Ki", "pods": 110, "x": null},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00.999Z"}],
            "images": [{"names": ["a"], "sizeBytes": 0}],
        },
    });
    let stored = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "annotations": {"a": ""}},
        "spec": {},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Mi", "pods": "110", "x": "0"},
            "conditions": [{
                "type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z",
                "lastTransitionTime": null,
            }],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "", "architecture": "",
            },
            "images": [{"names": ["a"]}],
        },
    });
    assert_eq!(decoded(sent), stored);
}

#[test]
fn pointers_distinguish_empty_from_unset() {
    let sent = pod(json!({
        "nodeName": "", "hostNetwork": false, "nodeSelector": {}, "priority": 0, "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false, "securityContext": {"supplementalGroups": []},
        "containers": [null, {"name": "m", "env": [{"name": "A", "value": ""}], "command": []}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"sizeLimit": "1024Mi"}}],
        "affinity": {"nodeAffinity": {}},
    }));
    let stored = json!({
        "priority": 0, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "securityContext": {},
        "containers": [{"name": "", "resources": {}}, {"name": "m", "env": [{"name": "A"}], "resources": {}}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"sizeLimit": "1Gi"}}],
        "affinity": {"nodeAffinity": {}},
    });
    let pod = decoded(sent);
    assert_eq!(pod["spec"], stored);
    assert_eq!(pod["status"], json!({}));
}

#[test]
fn required_empty_lists_become_null() {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [],
    });
    assert_eq!(decoded(role)["rules"], Value::Null);
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"});
    let slice = decoded(slice);
    assert!(slice.as_object().unwrap().contains_key("endpoints"));
    assert_eq!(slice["endpoints"], Value::Null);
}

#[test]
fn microseconds_of_leases_are_kept() {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
        "spec": {"holderIdentity": "", "acquireTime": "2020-01-01T00:00:00.123456+02:00", "renewTime": null},
    });
    let stored = json!({"holderIdentity": "", "acquireTime": "2019-12-31T22:00:00.123456Z"});
    assert_eq!(decoded(lease)["spec"], stored);
}

#[test]
fn arbitrary_json_is_kept() {
    let data = json!({"x": [1, {}, 1.5], "y": null, "z": ""});
    let revision =
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 0, "data": data.clone()});
    assert_eq!(decoded(revision)["data"], data);
}

#[test]
fn unknown_fields_are_dropped_and_reported() {
    let mut object = pod(json!({
        "foo": 1, "NodeName": "x",
        "containers": [{"name": "m"}, {"foo bar": 1}],
        "volumes": [{"name": "v", "hostPath": {"path": "/", "foo": 1}}],
    }));
    object["bar"] = 1.into();
    let mut unknown = decode(id("v1", "Pod"), &mut object).unwrap();
    unknown.sort();
    let paths =
        ["bar", "spec.NodeName", "spec.containers[1].foo bar", "spec.foo", "spec.volumes[0].hostPath.foo"];
    assert_eq!(unknown, paths);
    assert_eq!(decoded(object.clone()), object);
}

#[test]
fn field_validation_controls_unknown_fields() {
    let unknown = ["metadata.y".to_owned(), "foo".to_owned()];
    let act = |text, unknown: &[String]| FieldValidation::parse(text).unwrap().act(unknown, "v1", "Pod");
    assert_eq!(act("Ignore", &unknown), Ok(Vec::new()));
    let warnings = vec![r#"unknown field "metadata.y""#.to_owned(), r#"unknown field "foo""#.to_owned()];
    assert_eq!(act("Warn", &unknown), Ok(warnings));
    assert_eq!(
        act("Strict", &unknown).unwrap_err(),
        r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "metadata.y", unknown field "foo""#
    );
    assert_eq!(act("Strict", &[]), Ok(Vec::new()));
    assert_eq!(FieldValidation::parse("strict"), None);
    assert_eq!(FieldValidation::parse(""), Some(FieldValidation::Warn));
}

#[test]
fn wrong_types_have_the_errors_of_go() {
    assert_eq!(
        refusal_of(pod(json!({"nodeName": 5}))),
        "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field \
         PodSpec.spec.nodeName of type string"
    );
    let container = |field: &str, value: Value| json!({"containers": [{field: value}]});
    let cases = [
        (json!("x"), "string Pod.spec of type v1.PodSpec"),
        (json!([1]), "array Pod.spec of type v1.PodSpec"),
        (json!({"restartPolicy": 5}), "number PodSpec.spec.restartPolicy of type v1.RestartPolicy"),
        (
            json!({"terminationGracePeriodSeconds": "x"}),
            "string PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            json!({"terminationGracePeriodSeconds": 1.5}),
            "number 1.5 PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            json!({"terminationGracePeriodSeconds": 1.0}),
            "number 1.0 PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (json!({"priority": 3_000_000_000u32}), "number 3000000000 PodSpec.spec.priority of type int32"),
        (json!({"priority": true}), "bool PodSpec.spec.priority of type int32"),
        (json!({"hostNetwork": 1.5}), "number PodSpec.spec.hostNetwork of type bool"),
        (json!({"containers": {"a": 1}}), "object PodSpec.spec.containers of type []v1.Container"),
        (json!({"containers": [5]}), "number PodSpec.spec.containers of type v1.Container"),
        (container("name", json!(5)), "number Container.spec.containers.name of type string"),
        (container("command", json!([1])), "number Container.spec.containers.command of type string"),
        (container("command", json!("x")), "string Container.spec.containers.command of type []string"),
        (container("env", json!([{"value": 1}])), "number EnvVar.spec.containers.env.value of type string"),
        (json!({"nodeSelector": [1]}), "array PodSpec.spec.nodeSelector of type map[string]string"),
        (json!({"nodeSelector": {"a": {}}}), "object PodSpec.spec.nodeSelector of type string"),
        (
            container("resources", json!({"requests": "x"})),
            "string ResourceRequirements.spec.containers.resources.requests of type v1.ResourceList",
        ),
        (
            container("livenessProbe", json!({"httpGet": {"port": true}})),
            "bool HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            container("livenessProbe", json!({"httpGet": {"port": 1.5}})),
            "number 1.5 HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            json!({"volumes": [{"hostPath": 5}]}),
            "number Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(refused_field(spec.clone()), expected, "{spec}");
    }
    let metadata = |metadata: Value| {
        let text = refused(json!({"metadata": metadata}));
        text.strip_prefix("json: cannot unmarshal ").map_or(text.clone(), str::to_owned)
    };
    assert_eq!(
        metadata(json!({"uid": 5})),
        "number into Go struct field ObjectMeta.metadata.uid of type types.UID"
    );
    assert_eq!(
        metadata(json!({"creationTimestamp": {}})),
        "object into Go struct field ObjectMeta.metadata.creationTimestamp of type string"
    );
    assert!(metadata(json!({"creationTimestamp": "x"})).starts_with("parsing time \"x\" as"));
}

#[test]
fn invalid_quantities_and_base64_are_rejected() {
    for cpu in [json!("x"), json!({}), json!(true), json!("")] {
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]});
        assert!(refused(pod(spec)).starts_with("quantities must match the regular expression"));
    }
    let mut secret = json!({"data": {"a": "aGk=", "b": "aG*="}});
    let error = decode(id("v1", "Secret"), &mut secret).unwrap_err();
    assert_eq!(error.to_string(), "illegal base64 data at input byte 2");
}

#[test]
fn null_becomes_an_empty_object() {
    let mut object = Value::Null;
    decode(id("v1", "Pod"), &mut object).unwrap();
    assert_eq!(object, json!({"metadata": {}, "spec": {"containers": null}, "status": {}}));
    assert_eq!(object, empty(id("v1", "Pod")));
    let mut text = json!("x");
    assert!(decode(id("v1", "Pod"), &mut text).is_err());
}

mod generated_objects;
