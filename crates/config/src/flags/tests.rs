//! Parsing of command lines.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches as _};
use supercargo_framework::Feature;

use super::{Flags, ServingOptions, TlsVersion};
use crate::{Catalog, Config, MediaType};

/// The flags of a command line, or the error.
fn parsed(line: &[&str]) -> Result<Flags, String> {
    let command =
        Flags::augment_args(Command::new("supercargo").no_binary_name(true).args_override_self(true));
    let matches = command.try_get_matches_from(line).map_err(|error| error.to_string())?;
    Flags::from_arg_matches(&matches).map_err(|error| error.to_string())
}

fn flags(line: &[&str]) -> Flags {
    parsed(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

fn configuration(line: &[&str]) -> Config {
    flags(line).configuration(&Catalog::in_tree()).unwrap_or_else(|error| panic!("{line:?}: {error:#}"))
}

/// The configuration of a command line with this file.
fn with_file(text: &str, line: &[&str]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    std::fs::write(&path, format!("{head}{text}")).unwrap();
    let path = path.display().to_string();
    let line = [&["--config", &path], line].concat();
    flags(&line).configuration(&Catalog::in_tree()).map_err(|error| format!("{error:#}"))
}

#[test]
fn defaults_without_flags_are_kube_schedulers() {
    let flags = flags(&[]);
    assert_eq!(flags, Flags::default());
    let serving = &flags.serving;
    assert_eq!((serving.bind_address.to_string(), serving.secure_port), ("0.0.0.0".to_owned(), 10259));
    assert_eq!((serving.tls_min_version, serving.disable_http2_serving), (TlsVersion::Tls12, false));
    let (authentication, authorization) = (&flags.authentication, &flags.authorization);
    assert!(authentication.tolerate_lookup_failure && !authentication.skip_lookup);
    assert_eq!(authentication.token_cache_ttl, Duration::from_secs(10));
    assert_eq!(authentication.request_header.username_headers, ["x-remote-user"]);
    assert_eq!(authentication.request_header.group_headers, ["x-remote-group"]);
    assert_eq!(authentication.request_header.extra_header_prefixes, ["x-remote-extra-"]);
    assert_eq!(authorization.always_allow_paths, ["/healthz", "/readyz", "/livez"]);
    assert_eq!(authorization.unauthorized_ttl, Duration::from_secs(10));
    assert_eq!(flags.deprecated.pod_max_in_unschedulable_pods_duration, Duration::from_mins(5));
    assert_eq!(flags.misc.config_reload_period, Duration::from_secs(10));
    assert_eq!((flags.misc.table_memory, flags.misc.timeline_memory), (None, 8 << 20));
    assert_eq!(flags.traces.tracing_endpoint, None);
    assert_eq!(flags.traces.tracing_sampling_rate_per_million, 1_000_000);
}

#[test]
fn flag_values_have_kube_schedulers_syntax() {
    let flags = flags(&[
        "--authentication-skip-lookup",
        "--authentication-tolerate-lookup-failure=F",
        "--authorization-always-allow-paths=/a,/b/*",
        "--authorization-always-allow-paths",
        "/c",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
        "--tls-min-version=VersionTLS13",
        "--secure-port=0",
        "--bind-address=::1",
        "--secure-port",
        "10260",
        "--authentication-token-webhook-cache-ttl=1m30s",
        "--tls-sni-cert-key=a.crt,a.key:example.com,*.example.com",
        "--tls-sni-cert-key",
        "b.crt,b.key",
    ]);
    let pairs: Vec<_> = flags
        .serving
        .tls_sni_cert_key
        .iter()
        .map(|pair| (pair.key.to_str().unwrap(), &*pair.names))
        .collect();
    let names = ["example.com".to_owned(), "*.example.com".to_owned()];
    assert_eq!(pairs, [("a.key", &names[..]), ("b.key", &[])]);
    assert!(flags.authentication.skip_lookup && !flags.authentication.tolerate_lookup_failure);
    assert_eq!(flags.authorization.always_allow_paths, ["/a", "/b/*", "/c"]);
    assert_eq!(flags.serving.tls_cipher_suites.len(), 2);
    assert_eq!(flags.serving.tls_min_version, TlsVersion::Tls13);
    assert_eq!(
        (flags.serving.bind_address.to_string(), flags.serving.secure_port),
        ("::1".to_owned(), 10260)
    );
    assert_eq!(flags.authentication.token_cache_ttl, Duration::from_secs(90));
    assert_eq!(ServingOptions::default().secure_port, 10259);
}

#[test]
fn invalid_flags_are_rejected_with_a_hint() {
    let cases: &[(&[&str], &str)] = &[
        (&["--secure-port=65536"], "65536"),
        (&["--bind-address=localhost"], "invalid IP address"),
        (&["--leader-elect=perhaps"], "must be true or false"),
        (&["--leader-elect-lease-duration=15"], "must be a duration such as 15s"),
        (&["--leader-elect-resource-lock=endpoints"], "leases"),
        (&["--tls-min-version=VersionTLS10"], "must be VersionTLS12 or VersionTLS13"),
        (
            &["--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"],
            "unsupported cipher suite; the supported ones are TLS_ECDHE",
        ),
        (&["--tls-cert-file=a"], "--tls-private-key-file"),
        (&["--tls-sni-cert-key=a.crt"], "must be a certificate and its key"),
        (&["--tls-sni-cert-key=a.crt,a.key,b"], "must be a certificate and its key"),
        (&["--tls-sni-cert-key=a.crt,a.key:"], "must be a certificate and its key"),
        (&["--master=https://me:secret@10.0.0.1"], "must be a URL such as"),
        (&["--tracing-endpoint=https://me:secret@10.0.0.1"], "must be a URL such as"),
        (&["--tracing-sampling-rate-per-million=1000001"], "0..=1000000"),
        (&["--kube-api-content-type=text/plain"], "must be application/vnd.kubernetes.protobuf or"),
        (&["--feature-gates=X"], "give each feature gate as Name=true"),
        (&["--leader-elct"], "--leader-elect"),
        (&["--permit-port-sharings"], "--permit-port-sharing"),
        (&["now"], "unexpected argument 'now'"),
    ];
    for (line, message) in cases {
        let error = parsed(line).expect_err("refused");
        assert!(error.contains(message), "{line:?}: {error}");
    }
}

#[test]
fn leader_election_flags_take_precedence_over_the_file() {
    let file = "leaderElection: {leaderElect: false, leaseDuration: 30s, resourceName: mine}\n";
    let election = |line: &[&str]| with_file(file, line).unwrap().leader_election;
    let of_file = election(&[]);
    assert!(!of_file.leader_elect);
    assert_eq!((of_file.lease_duration, &*of_file.resource_name), (Duration::from_secs(30), "mine"));
    let both = election(&["--leader-elect", "--leader-elect-lease-duration=20s"]);
    assert!(both.leader_elect);
    assert_eq!((both.lease_duration, &*both.resource_name), (Duration::from_secs(20), "mine"));
    assert!(!configuration(&["--leader-elect=false"]).leader_election.leader_elect);
    assert!(configuration(&[]).leader_election.leader_elect, "leader election is on by default");
}

#[test]
fn leader_election_of_flags_and_file_is_validated_together() {
    let of_flag = "--leader-elect-lease-duration (12s) must be longer than renewDeadline (12s)";
    let of_default =
        "--leader-elect-lease-duration (15s) must be longer than --leader-elect-renew-deadline (20s)";
    let of_file = ":3:33: leaderElection.renewDeadline: \
                   renewDeadline (12s) must be longer than 1.2 times --leader-elect-retry-period (10s)";
    let too_short = ":3:33: leaderElection.leaseDuration: \
                     leaseDuration (5s) must be longer than --leader-elect-renew-deadline (20s)";
    let of_lock = ":3:32: leaderElection.resourceLock: must be leases, the only supported lock";
    for (fields, flag, expected) in [
        ("renewDeadline: 12s", "--leader-elect-lease-duration=12s", of_flag),
        ("renewDeadline: 12s", "--leader-elect-renew-deadline=20s", of_default),
        ("renewDeadline: 12s", "--leader-elect-retry-period=10s", of_file),
        ("leaseDuration: 5s", "--leader-elect-renew-deadline=20s", too_short),
        ("resourceLock: endpoints", "--leader-elect-resource-name=mine", of_lock),
        ("leaderElect: false, resourceLock: endpoints", "--leader-elect", "must be leases"),
    ] {
        let error = with_file(&format!("leaderElection: {{{fields}}}\n"), &[flag]).unwrap_err();
        let same = if expected.starts_with("--") { error == expected } else { error.contains(expected) };
        assert!(same, "{fields} {flag}: {error}");
    }
}

#[test]
fn leader_election_flags_repair_the_file() {
    for (fields, flag) in [
        ("leaseDuration: 5s", "--leader-elect-lease-duration=15s"),
        ("leaseDuration: 5s", "--leader-elect-renew-deadline=3s"),
        ("leaseDuration: 5s", "--leader-elect=false"),
        ("resourceLock: endpoints", "--leader-elect-resource-lock=leases"),
        ("resourceLock: endpoints", "--leader-elect=false"),
    ] {
        let file = format!("leaderElection: {{{fields}}}\n");
        with_file(&file, &[flag]).unwrap_or_else(|error| panic!("{flag}: {error}"));
        with_file(&file, &[]).expect_err(flag);
    }
}

#[test]
fn deprecated_flags_apply_only_without_a_file() {
    let line = [
        "--kube-api-qps=20.5",
        "--kube-api-burst=30",
        "--kube-api-content-type=application/json",
        "--profiling=false",
        "--pod-max-in-unschedulable-pods-duration=1m",
        "--table-memory=64Mi",
        "--timeline-memory=0",
    ];
    let config = configuration(&line);
    assert_eq!((config.table_memory, config.timeline_memory), (Some(64 << 20), 0));
    assert_eq!((config.client_connection.qps, config.client_connection.burst), (Some(20.5), Some(30)));
    assert_eq!(config.client_connection.content_type, MediaType::Json);
    assert!(!config.enable_profiling && !config.enable_contention_profiling);
    assert_eq!(config.pod_max_in_unschedulable_pods_duration, Duration::from_mins(1));

    let config = with_file("clientConnection: {burst: 7}\n", &line).unwrap();
    assert_eq!((config.client_connection.qps, config.client_connection.burst), (None, Some(7)));
    assert_eq!(config.client_connection.content_type, MediaType::Protobuf);
    assert!(config.enable_profiling && config.enable_contention_profiling);
    assert_eq!(
        config.pod_max_in_unschedulable_pods_duration,
        Duration::from_mins(1),
        "this flag applies with a file, too"
    );
}

#[test]
fn kubeconfig_flag_applies_if_the_file_sets_none() {
    let kubeconfig =
        |file: &str| with_file(file, &["--kubeconfig=flag"]).unwrap().client_connection.kubeconfig;
    assert_eq!(kubeconfig("clientConnection: {kubeconfig: file}\n"), Some("file".into()));
    assert_eq!(kubeconfig("clientConnection: {kubeconfig: ''}\n"), Some("flag".into()));
    assert_eq!(configuration(&["--kubeconfig=flag"]).client_connection.kubeconfig, Some("flag".into()));
}

#[test]
fn ignored_flags_are_accepted_and_listed() {
    let flags =
        flags(&["--permit-port-sharing", "--vmodule", "a=1", "--disabled-metrics=x,y", "--vmodule=b=2"]);
    assert_eq!(flags.without_effect.given, ["disabled-metrics", "permit-port-sharing", "vmodule"]);
}

#[test]
fn repeated_feature_gates_flags_are_merged() {
    let line = ["--feature-gates=StorageCapacityScoring=false", "--feature-gates=VolumeLimitScaling=false,"];
    let features = flags(&line).features.applied_to(&Catalog::in_tree()).unwrap().features;
    assert!(
        !features.enabled(Feature::StorageCapacityScoring) && !features.enabled(Feature::VolumeLimitScaling)
    );
}

#[test]
fn rejected_server_addresses_are_not_printed() {
    // The value may contain a password, and the error ends up in a log.
    for master in ["https://me:hunter2@10.0.0.1", "hunter2 ", "https://10.0.0.1/?password=hunter2"] {
        let error = parsed(&["--master", master]).expect_err("refused");
        assert!(error.contains("invalid value for '--master <URL>': must be a URL such as"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn reloading_is_off_with_a_period_of_0() {
    let followed =
        |line: &[&str]| flags(line).misc.followed().map(|(path, period)| (path.to_owned(), period));
    assert_eq!(followed(&[]), None);
    assert_eq!(followed(&["--config=a"]), Some(("a".into(), Duration::from_secs(10))));
    assert_eq!(
        followed(&["--config=a", "--config-reload-period=1m"]),
        Some(("a".into(), Duration::from_mins(1)))
    );
    for never in ["0", "0s"] {
        assert_eq!(followed(&["--config=a", &format!("--config-reload-period={never}")]), None);
    }
}

#[test]
fn flagz_lists_every_flag_with_its_effective_value() {
    let flags = flags(&["--secure-port=1", "--authorization-always-allow-paths=/a,/b"]);
    let mut config = configuration(&[]);
    config.leader_election.lease_duration = Duration::from_secs(75);
    let text = flags.flagz(&config);
    let lines: Vec<&str> = text.lines().collect();
    for line in [
        "secure-port=1",
        "authorization-always-allow-paths=/a,/b",
        "authentication-tolerate-lookup-failure=true",
        "cert-dir=",
        "leader-elect=true",
        "leader-elect-lease-duration=1m15s",
        "kube-api-content-type=application/vnd.kubernetes.protobuf",
        "emulated-version=1.37",
        "logging-format=",
    ] {
        assert!(lines.contains(&line), "{line} is not in\n{text}");
    }
    assert!(lines.is_sorted());
    let names: BTreeSet<&str> = lines.iter().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names.len(), lines.len(), "each flag once");
    assert!(!text.contains("vmodule"));
}

#[test]
fn write_config_to_writes_the_completed_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("written.yaml");
    let line = format!("--write-config-to={}", path.display());
    let catalog = Catalog::in_tree();
    let written = flags(&[&line, "--leader-elect=false"]).write_configuration(&catalog).unwrap();
    assert!(written && !flags(&[]).write_configuration(&catalog).unwrap());
    let again = Config::load(&path, &catalog).unwrap();
    assert!(!again.leader_election.leader_elect);
    assert_eq!(again.to_yaml(), std::fs::read_to_string(&path).unwrap());
    let nowhere = flags(&["--write-config-to=/nowhere/x.yaml"]).write_configuration(&catalog).unwrap_err();
    assert!(format!("{nowhere:#}").starts_with("cannot write /nowhere/x.yaml: "), "{nowhere:#}");
}
