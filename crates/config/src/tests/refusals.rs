//! Rejected files: positions and messages.

use super::{check, errors, errors_of};

#[test]
fn other_versions_and_kinds_are_rejected() {
    let cases = [
        (
            "neither",
            "profiles: []\n",
            "c.yaml:1:1: apiVersion: is missing; write apiVersion: kubescheduler.config.k8s.io/v1\n\
             c.yaml:1:1: kind: is missing; write kind: KubeSchedulerConfiguration",
        ),
        (
            "an old version, whose other fields are not looked at",
            "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\nparallelism: x\n",
            "c.yaml:1:13: apiVersion: v1beta3 was removed from kube-scheduler; write kubescheduler.config.k8s.io/v1",
        ),
        (
            "another kind",
            "kind: Pod\napiVersion: kubescheduler.config.k8s.io/v1\n",
            "c.yaml:1:7: kind: must be KubeSchedulerConfiguration, is \"Pod\"",
        ),
        (
            "a kind that is no string",
            "kind: [Pod]\napiVersion: kubescheduler.config.k8s.io/v1\n",
            "c.yaml:1:7: kind: must be a string, is a list",
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(errors_of(text), expected, "{name}");
    }
}

#[test]
fn unknown_fields_are_rejected_at_each_level() {
    check(&[
        ("top", "Profiles: []\n", "c.yaml:4:1: Profiles: unknown field; did you mean \"profiles\"?"),
        (
            "nothing near",
            "x: 1\n",
            "c.yaml:4:1: x: unknown field; the fields here are apiVersion, kind, parallelism, leaderElection, clientConnection, enableProfiling, enableContentionProfiling, percentageOfNodesToScore, podInitialBackoffSeconds, podMaxBackoffSeconds, profiles, extenders, delayCacheUntilActive",
        ),
        (
            "leaderElection",
            "leaderElection:\n  leaderElected: false\n",
            "c.yaml:5:3: leaderElection.leaderElected: unknown field; did you mean \"leaderElect\"?",
        ),
        (
            "clientConnection",
            "clientConnection: {kubeConfg: a}\n",
            "c.yaml:4:20: clientConnection.kubeConfg: unknown field; did you mean \"kubeconfig\"?",
        ),
        (
            "profile",
            "profiles:\n- schedulername: a\n  plugin: {}\n",
            "c.yaml:5:3: profiles[0].schedulername: unknown field; did you mean \"schedulerName\"?\nc.yaml:6:3: profiles[0].plugin: unknown field; did you mean \"plugins\"?",
        ),
        (
            "plugins",
            "profiles:\n- plugins:\n    filters: {}\n",
            "c.yaml:6:5: profiles[0].plugins.filters: unknown field; did you mean \"filter\"?",
        ),
        (
            "point",
            "profiles:\n- plugins:\n    bind:\n      enable: []\n",
            "c.yaml:7:7: profiles[0].plugins.bind.enable: unknown field; did you mean \"enabled\"?",
        ),
        (
            "enabled plugin",
            "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: ImageLocality\n        wieght: 1\n",
            "c.yaml:9:9: profiles[0].plugins.score.enabled[0].wieght: unknown field; did you mean \"weight\"?",
        ),
        (
            "pluginConfig",
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    arg: {}\n",
            "c.yaml:7:5: profiles[0].pluginConfig[0].arg: unknown field; did you mean \"args\"?",
        ),
        (
            "a key of many lines",
            "\"a\\nb\": 1\nkinds: 1\n",
            "c.yaml:4:1: a\\nb: unknown field; the fields here are apiVersion, kind, parallelism, leaderElection, clientConnection, enableProfiling, enableContentionProfiling, percentageOfNodesToScore, podInitialBackoffSeconds, podMaxBackoffSeconds, profiles, extenders, delayCacheUntilActive\nc.yaml:5:1: kinds: unknown field; did you mean \"kind\"?",
        ),
    ]);
}

#[test]
fn duplicate_fields_are_rejected_at_each_level() {
    check(&[
        (
            "top",
            "parallelism: 1\nparallelism: 2\n",
            "c.yaml:5:1: parallelism: duplicate field, first set at 4:1; keep one of them",
        ),
        (
            "inside",
            "profiles:\n- plugins:\n    bind: {}\n    score: {}\n    bind: {}\n",
            "c.yaml:8:5: profiles[0].plugins.bind: duplicate field, first set at 6:5; keep one of them",
        ),
        (
            "args",
            "profiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args: {a: 1, \"a\": 2}\n",
            "c.yaml:7:18: profiles[0].pluginConfig[0].args.a: duplicate field, first set at 7:12; keep one of them",
        ),
    ]);
}

#[test]
fn values_of_the_wrong_type_are_rejected() {
    check(&[
        (
            "string for integer",
            "parallelism: many\n",
            "c.yaml:4:14: parallelism: must be an integer, is the string \"many\"",
        ),
        (
            "quoted integer",
            "parallelism: \"4\"\n",
            "c.yaml:4:14: parallelism: must be an integer, is the string \"4\"",
        ),
        ("fraction", "parallelism: 1.5\n", "c.yaml:4:14: parallelism: must be an integer, is the number 1.5"),
        (
            "64 bits",
            "parallelism: 4294967296\n",
            "c.yaml:4:14: parallelism: must be an integer of 32 bits, is the number 4294967296",
        ),
        (
            "large float",
            "podMaxBackoffSeconds: 1e300\n",
            "c.yaml:4:23: podMaxBackoffSeconds: must be an integer, is the number 1e+300",
        ),
        (
            "float of 64 bits",
            "clientConnection: {qps: 1e300}\n",
            "c.yaml:4:25: clientConnection.qps: must be a number of 32 bits, is the number 1e+300",
        ),
        (
            "boolean for string",
            "profiles: [{schedulerName: no}]\n",
            "c.yaml:4:28: profiles[0].schedulerName: must be a string (put it in quotes), is the boolean false",
        ),
        (
            "number for string",
            "profiles:\n- schedulerName: 5\n- schedulerName: b\n",
            "c.yaml:5:18: profiles[0].schedulerName: must be a string (put it in quotes), is the number 5",
        ),
        (
            "string for boolean",
            "enableProfiling: \"true\"\n",
            "c.yaml:4:18: enableProfiling: must be true or false, is the string \"true\"",
        ),
        ("mapping for list", "profiles: {}\n", "c.yaml:4:11: profiles: must be a list, is a mapping"),
        (
            "list for mapping",
            "profiles:\n- plugins:\n  - bind\n",
            "c.yaml:5:3: profiles[0].plugins: must be a mapping, is a list",
        ),
        (
            "string for plugin",
            "profiles: [{plugins: {bind: {enabled: [DefaultBinder]}}}]\n",
            "c.yaml:4:40: profiles[0].plugins.bind.enabled[0]: must be a mapping, is the string \"DefaultBinder\"",
        ),
        ("null for profile", "profiles:\n-\n", "c.yaml:5:2: profiles[0]: must be a mapping, is null"),
        (
            "weight",
            "profiles: [{plugins: {score: {enabled: [{name: ImageLocality, weight: heavy}]}}}]\n",
            "c.yaml:4:71: profiles[0].plugins.score.enabled[0].weight: must be an integer, is the string \"heavy\"",
        ),
        (
            "args",
            "profiles: [{pluginConfig: [{name: NodeAffinity, args: [1]}]}]\n",
            "c.yaml:4:55: profiles[0].pluginConfig[0].args: must be a mapping, is a list",
        ),
        (
            "a long string",
            "parallelism: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee\n",
            "c.yaml:4:14: parallelism: must be an integer, is the string \"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd\"…",
        ),
    ]);
}

#[test]
fn invalid_values_are_rejected() {
    check(&[
        ("parallelism", "parallelism: 0\n", "c.yaml:4:14: parallelism: must be greater than 0, is 0"),
        (
            "percentage",
            "percentageOfNodesToScore: 101\n",
            "c.yaml:4:27: percentageOfNodesToScore: must be from 0 to 100, is 101",
        ),
        (
            "percentage of a profile",
            "profiles: [{percentageOfNodesToScore: -1}]\n",
            "c.yaml:4:39: profiles[0].percentageOfNodesToScore: must be from 0 to 100, is -1",
        ),
        (
            "no backoff",
            "podInitialBackoffSeconds: 0\n",
            "c.yaml:4:27: podInitialBackoffSeconds: must be from 1 to 9223372036 seconds, is 0",
        ),
        (
            "max below initial",
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4\n",
            "c.yaml:5:23: podMaxBackoffSeconds: podMaxBackoffSeconds (4) must not be less than podInitialBackoffSeconds (5)",
        ),
        (
            "default max below initial",
            "podInitialBackoffSeconds: 11\n",
            "c.yaml:4:27: podInitialBackoffSeconds: podMaxBackoffSeconds (10) must not be less than podInitialBackoffSeconds (11)",
        ),
        (
            "burst",
            "clientConnection: {burst: -1}\n",
            "c.yaml:4:27: clientConnection.burst: must not be negative, is -1",
        ),
        (
            "content type",
            "clientConnection: {contentType: application/cbor}\n",
            "c.yaml:4:33: clientConnection.contentType: must be application/vnd.kubernetes.protobuf or application/json, is \"application/cbor\"",
        ),
        (
            "accepted content type",
            "clientConnection: {acceptContentTypes: 'application/json,text/plain'}\n",
            "c.yaml:4:40: clientConnection.acceptContentTypes: must be application/vnd.kubernetes.protobuf or application/json, is \"text/plain\"",
        ),
        (
            "lease",
            "leaderElection: {leaseDuration: 15}\n",
            "c.yaml:4:33: leaderElection.leaseDuration: must be a string (put it in quotes), is the number 15",
        ),
        (
            "renewal",
            "leaderElection: {renewDeadline: 15 s}\n",
            "c.yaml:4:33: leaderElection.renewDeadline: must be a duration such as 15s or 1m30s",
        ),
        (
            "lock",
            "leaderElection: {resourceLock: endpoints}\n",
            "c.yaml:4:32: leaderElection.resourceLock: must be leases, the only supported lock",
        ),
        (
            "a lease that ends before it is renewed",
            "leaderElection:\n  renewDeadline: 15s\n",
            "c.yaml:5:18: leaderElection.renewDeadline: leaseDuration (15s) must be longer than renewDeadline (15s)",
        ),
        (
            "a lease that is too short",
            "leaderElection: {leaseDuration: 1m, renewDeadline: 1m0.5s}\n",
            "c.yaml:4:33: leaderElection.leaseDuration: leaseDuration (1m0s) must be longer than renewDeadline (1m0.5s)",
        ),
        (
            "one try at renewal",
            "leaderElection: {retryPeriod: 8.4s}\n",
            "c.yaml:4:31: leaderElection.retryPeriod: renewDeadline (10s) must be longer than 1.2 times retryPeriod (8.4s)",
        ),
        (
            "leader elect",
            "leaderElection: {leaderElect: maybe}\n",
            "c.yaml:4:31: leaderElection.leaderElect: must be true or false, is the string \"maybe\"",
        ),
        (
            "empty name",
            "profiles: [{schedulerName: ''}]\n",
            "c.yaml:4:28: profiles[0].schedulerName: must not be empty",
        ),
    ]);
}

#[test]
fn profiles_must_differ_in_name_and_agree_on_the_queue_sort() {
    check(&[
        (
            "no name",
            "profiles:\n- schedulerName: a\n- plugins: {}\n",
            "c.yaml:6:3: profiles[1].schedulerName: is missing; with several profiles each needs its own",
        ),
        (
            "the same name",
            "profiles:\n- schedulerName: a\n- schedulerName: a\n",
            "c.yaml:6:18: profiles[1].schedulerName: the profile at 5:18 is named \"a\" too; rename one",
        ),
        (
            "another sort",
            "profiles:\n- schedulerName: a\n- schedulerName: b\n  plugins:\n    queueSort: {disabled: [{name: '*'}], enabled: [{name: OtherSort}]}\n",
            "c.yaml:8:16: profiles[1].plugins.queueSort: OtherSort is not the queue sort of the first profile, PrioritySort; all share one queue",
        ),
        (
            "other arguments",
            "profiles:\n- schedulerName: a\n  plugins: &sort {queueSort: {disabled: [{name: '*'}], enabled: [{name: OtherSort}]}}\n- schedulerName: b\n  plugins: *sort\n  pluginConfig: [{name: OtherSort, args: {x: 1}}]\n",
            "c.yaml:9:25: profiles[1].pluginConfig[0].name: OtherSort must have the same arguments in every profile; all share one queue",
        ),
    ]);
}

#[test]
fn all_errors_are_reported_together_in_file_order() {
    let text = "
parallelism: -1
profiles:
- schedulerName: a
  plugins:
    queueSort: {disabled: [{name: '*'}]}
- schedulerName: a
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {resources: [{name: cpu, weight: 0}]}}
percentageOfNodesToScore: 200
extenders: [{}]
extra: 1
parallelism: 3
";
    let errors = errors(text);
    let positions: Vec<&str> = errors.lines().filter_map(|line| line.split(": ").next()).collect();
    let expected = [
        "c.yaml:5:14",
        "c.yaml:9:16",
        "c.yaml:10:18",
        "c.yaml:13:62",
        "c.yaml:14:27",
        "c.yaml:15:13",
        "c.yaml:16:1",
        "c.yaml:17:1",
    ];
    assert_eq!(positions, expected, "{errors}");
}
