//! Extenders.

use std::time::Duration;

use super::{check, errors, valid};

#[test]
fn an_extender_is_read_with_every_field() {
    let text = "
extenders:
- urlPrefix: https://127.0.0.1:8443/scheduler/
  filterVerb: filter
  preemptVerb: preempt
  prioritizeVerb: prioritize
  weight: 5
  bindVerb: bind
  enableHTTPS: true
  tlsConfig:
    serverName: example.com
    certFile: /etc/cert
    keyData: c2VjcmV0
    caData: Y2E=
  httpTimeout: 1m30s
  nodeCacheCapable: true
  managedResources:
  - {name: example.com/gpu, ignoredByScheduler: true}
  - {name: example.com/tpu}
  ignorable: true
- urlPrefix: http://extender
";
    let config = valid(text);
    let [extender, plain] = &config.extenders[..] else { panic!("{config:?}") };
    assert_eq!(extender.url_prefix, "https://127.0.0.1:8443/scheduler");
    let verbs =
        [&extender.filter_verb, &extender.preempt_verb, &extender.prioritize_verb, &extender.bind_verb];
    assert_eq!(verbs.map(|verb| verb.as_deref().unwrap()), ["filter", "preempt", "prioritize", "bind"]);
    assert_eq!((extender.weight, extender.http_timeout), (5, Duration::from_secs(90)));
    assert!(extender.enable_https && extender.node_cache_capable && extender.ignorable);
    let tls = &extender.tls;
    assert_eq!(tls.server_name.as_deref(), Some("example.com"));
    assert_eq!((tls.cert_file.as_deref(), tls.key_data.as_deref()), (Some("/etc/cert"), Some("c2VjcmV0")));
    assert_eq!(tls.ca_data.as_deref(), Some("Y2E="));
    let managed = extender.managed_resources.iter().map(|r| (&*r.name, r.ignored_by_scheduler));
    assert_eq!(managed.collect::<Vec<_>>(), [("example.com/gpu", true), ("example.com/tpu", false)]);
    assert!(!format!("{config:?}").contains("c2VjcmV0"), "keys are not shown");

    assert_eq!(plain.url_prefix, "http://extender");
    assert_eq!(plain.http_timeout, Duration::from_secs(5));
    assert!(plain.filter_verb.is_none() && plain.bind_verb.is_none() && plain.managed_resources.is_empty());
    assert!(!plain.enable_https && !plain.node_cache_capable && !plain.ignorable);
}

#[test]
fn unset_empty_and_zero_values_are_defaults() {
    let text =
        "extenders:\n- {urlPrefix: 'http://x', filterVerb: '', httpTimeout: 0s, tlsConfig: {certFile: ''}}\n";
    let config = valid(text);
    assert_eq!(config.extenders, valid("extenders: [{urlPrefix: 'http://x/'}]\n").extenders);
    assert!(valid("extenders: []\n").extenders.is_empty());
}

#[test]
fn invalid_extenders_are_rejected_at_their_position() {
    check(&[
        ("no prefix", "extenders:\n- {}\n", "c.yaml:5:3: extenders[0].urlPrefix: is missing"),
        (
            "another scheme",
            "extenders:\n- urlPrefix: ftp://x\n",
            "c.yaml:5:14: extenders[0].urlPrefix: must begin with http:// or https://",
        ),
        (
            "a password",
            "extenders:\n- urlPrefix: http://me:secret@x\n",
            "c.yaml:5:14: extenders[0].urlPrefix: must not have a user or a password in it",
        ),
        (
            "a verb that is none",
            "extenders:\n- {urlPrefix: 'http://x', filterVerb: 'a b'}\n",
            "c.yaml:5:39: extenders[0].filterVerb: must be a path in a URL, is \"a b\"",
        ),
        (
            "no weight",
            "extenders:\n- {urlPrefix: 'http://x', prioritizeVerb: p}\n",
            "c.yaml:5:43: extenders[0].prioritizeVerb: an extender with a prioritizeVerb must have a positive weight \
             applied to it, has 0",
        ),
        (
            "a negative weight",
            "extenders:\n- {urlPrefix: 'http://x', prioritizeVerb: p, weight: -1}\n",
            "c.yaml:5:54: extenders[0].weight: an extender with a prioritizeVerb must have a positive weight applied to it, \
             has -1",
        ),
        (
            "two that bind",
            "extenders:\n- {urlPrefix: 'http://x', bindVerb: b}\n- {urlPrefix: 'http://y', bindVerb: b}\n",
            "c.yaml:6:37: extenders[1].bindVerb: only one extender can implement bind, and the one at 5:37 does",
        ),
        (
            "a time-out without a unit",
            "extenders:\n- {urlPrefix: 'http://x', httpTimeout: '5'}\n",
            "c.yaml:5:40: extenders[0].httpTimeout: must be a duration such as 5s or 1m30s",
        ),
        (
            "a number as a time-out",
            "extenders:\n- {urlPrefix: 'http://x', httpTimeout: 5}\n",
            "c.yaml:5:40: extenders[0].httpTimeout: must be a string (put it in quotes), is the number 5",
        ),
        (
            "a resource of Kubernetes' own",
            "extenders:\n- urlPrefix: http://x\n  managedResources: [{name: cpu}]\n",
            "c.yaml:6:29: extenders[0].managedResources[0].name: is an invalid extended resource name: \"cpu\"; use a name such \
             as example.com/gpu",
        ),
        (
            "a resource twice",
            "extenders:\n- urlPrefix: http://x\n  managedResources: [{name: a.b/c}]\n- urlPrefix: http://y\n  \
             managedResources: [{name: a.b/c}]\n",
            "c.yaml:8:29: extenders[1].managedResources[0].name: duplicate extender managed resource name \"a.b/c\", first used \
             at 6:29",
        ),
        (
            "a certificate without a key",
            "extenders:\n- urlPrefix: http://x\n  tlsConfig: {certFile: c}\n",
            "c.yaml:6:14: extenders[0].tlsConfig: a certificate and its key must be given together",
        ),
        (
            "no check, and what to check against",
            "extenders:\n- urlPrefix: http://x\n  tlsConfig: {caFile: c, insecure: true}\n",
            "c.yaml:6:14: extenders[0].tlsConfig: specifying a root certificates file with the insecure flag is not \
             allowed",
        ),
        (
            "data that is none",
            "extenders:\n- urlPrefix: http://x\n  tlsConfig: {caData: 'a*b='}\n",
            "c.yaml:6:23: extenders[0].tlsConfig.caData: must be base64",
        ),
        (
            "an unknown field",
            "extenders:\n- {urlPrefix: 'http://x', filterVerbs: f}\n",
            "c.yaml:5:27: extenders[0].filterVerbs: unknown field; did you mean \"filterVerb\"?",
        ),
    ]);
    assert!(errors("extenders: {}\n").contains("extenders: must be a list"));
}

#[test]
fn resources_ignored_by_the_scheduler_are_ignored_in_every_profile() {
    let text = "
extenders:
- urlPrefix: http://x
  managedResources:
  - {name: example.com/b, ignoredByScheduler: true}
  - {name: example.com/seen, ignoredByScheduler: false}
- urlPrefix: http://y
  managedResources: [{name: example.com/a, ignoredByScheduler: true}]
profiles:
- schedulerName: one
- schedulerName: two
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [example.com/mine], scoringStrategy: {resources: [{name: cpu, weight: 2}]}}
";
    let config = valid(text);
    for profile in &config.profiles {
        let args = &profile.args["NodeResourcesFit"];
        assert_eq!(args["ignoredResources"], serde_json::json!(["example.com/b", "example.com/a"]));
    }
    assert_eq!(config.profiles[1].args["NodeResourcesFit"]["scoringStrategy"]["resources"][0]["weight"], 2);
    let none = valid("extenders: [{urlPrefix: 'http://x', managedResources: [{name: a.b/c}]}]\n");
    assert!(none.profiles[0].args.is_empty());
}
