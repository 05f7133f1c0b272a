//! Metrics of a running scheduler.

use std::sync::Arc;

use supercargo_framework::binding::BindOutcome;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Now, PodInfo};
use supercargo_scheduler::{Effect, Input, NoCalls, Notification, Scheduler, Unobserved};

use super::{ResourceStats, spec, write_queue};
use crate::informers::{Informers, kinds};
use supercargo_client::testing::answering_client;
use supercargo_config::{Catalog, Config};
use supercargo_owner::backlog::Backlog;
use supercargo_owner::gauge::{EventGauges, Gauge};
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::{Mailbox, Message};
use supercargo_telemetry::metrics::{Metrics, Requests, Text};

/// A scheduler whose bindings succeed, and its metrics.
struct TestScheduler {
    scheduler: Scheduler,
    metrics: Arc<Metrics>,
}

impl TestScheduler {
    fn new() -> Self {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let metrics = Metrics::new(&config.features);
        let observer = metrics.observer(Box::new(Unobserved));
        let scheduler = Scheduler::new(scheduler_options(&config)).unwrap().with_observer(observer);
        let mut test = Self { scheduler, metrics };
        for name in ["n1", "n2"] {
            let node = node(name).allocatable("cpu", "4").allocatable("pods", "1000").build();
            test.handle(Input::Node(Notification::Added(Arc::new(node))));
        }
        test
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(Now::default(), input);
    }

    /// Adds a pod, schedules it and binds it.
    fn schedule(&mut self, pod: PodInfo) {
        self.handle(Input::QueuedPod(Notification::Added(Arc::new(pod))));
        self.scheduler.schedule_one(Now::default(), &mut NoCalls);
        for effect in self.scheduler.take_effects() {
            if let Effect::Bind { pod, .. } = effect {
                let (pod, by) = (pod.uid.clone(), "DefaultBinder".into());
                self.handle(Input::Bound { pod, by, outcome: BindOutcome::Bound });
            }
        }
    }

    async fn text(&self) -> String {
        self.metrics.encode().await
    }
}

fn small(name: &str) -> PodInfo {
    pod(name).uid(name).scheduler("supercargo").request("cpu", "1m").build()
}

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|it| it == *line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn metrics_count_attempts_and_extension_points() {
    let mut test = TestScheduler::new();
    for name in ["a", "b", "c"] {
        test.schedule(small(name));
    }
    test.schedule(pod("big").uid("big").scheduler("supercargo").request("cpu", "64").build());
    test.schedule(pod("held").uid("held").scheduler("supercargo").gate("example.com/hold").build());
    let point = |point: &str, status: &str| {
        format!(
            "scheduler_framework_extension_point_duration_seconds_count{{extension_point=\"{point}\",\
             status=\"{status}\",profile=\"supercargo\"}}"
        )
    };
    let evaluated = |plugin: &str, point: &str, count: u32| {
        format!(
            "scheduler_plugin_evaluation_total{{plugin=\"{plugin}\",extension_point=\"{point}\",\
             profile=\"supercargo\"}} {count}"
        )
    };
    let text = test.text().await;
    assert_lines(
        &text,
        &[
            r#"scheduler_schedule_attempts_total{result="scheduled",profile="supercargo"} 3"#,
            r#"scheduler_schedule_attempts_total{result="unschedulable",profile="supercargo"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_count{result="scheduled",profile="supercargo"} 3"#,
            "scheduler_scheduling_algorithm_duration_seconds_count 4",
            "scheduler_pod_scheduling_attempts_sum 3",
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 3"#,
            "scheduler_preemption_attempts_total 1",
            "scheduler_preemption_victims_count 0",
            r#"scheduler_queue_incoming_pods_total{queue="active",event="UnscheduledPodAdd"} 4"#,
            r#"scheduler_queue_incoming_pods_total{queue="unschedulable",event="UnscheduledPodAdd"} 1"#,
            r#"scheduler_queue_incoming_entities_total{queue="active",event="UnscheduledPodAdd",type="pod"} 4"#,
            r#"scheduler_event_handling_duration_seconds_count{event="NodeAdd"} 2"#,
            r#"scheduler_event_handling_duration_seconds_count{event="UnscheduledPodAdd"} 5"#,
            &(point("Sign", "Success") + " 4"),
            &(point("Filter", "Success") + " 4"),
            &(point("Score", "Success") + " 4"),
            &(point("Reserve", "Success") + " 3"),
            &(point("PreBind", "Success") + " 3"),
            &(point("Bind", "Success") + " 3"),
            &(point("PostBind", "Success") + " 3"),
            &(point("PostFilter", "Unschedulable") + " 1"),
            &(point("PreEnqueue", "Success") + " 4"),
            &(point("PreEnqueue", "UnschedulableAndUnresolvable") + " 1"),
            &evaluated("NodeResourcesFit", "Filter", 4),
            &evaluated("NodeResourcesFit", "Score", 3),
            // Skips pods without host ports.
            &evaluated("NodePorts", "Filter", 0),
        ],
    );
}

#[test]
fn queues_are_counted_in_pods_and_in_entities() {
    let mut test = TestScheduler::new();
    test.schedule(pod("big").uid("big").scheduler("supercargo").request("cpu", "64").build());
    test.schedule(pod("held").uid("held").scheduler("supercargo").gate("example.com/hold").build());
    let mut text = Text::default();
    write_queue(&mut text, &test.scheduler.stats());
    assert_lines(
        &text.finish(),
        &[
            r#"scheduler_pending_pods{queue="unschedulable"} 1"#,
            r#"scheduler_pending_pods{queue="gated"} 1"#,
            r#"scheduler_pending_pods{queue="incomplete"} 0"#,
            r#"scheduler_pending_pods{queue="pending"} 0"#,
            r#"scheduler_queued_entities{queue="active",type="pod"} 0"#,
            r#"scheduler_queued_entities{queue="unschedulable",type="pod"} 1"#,
            r#"scheduler_queued_entities{queue="gated",type="pod"} 1"#,
        ],
    );
}

#[tokio::test]
async fn plugins_are_timed_in_about_10_percent_of_cycles() {
    let mut test = TestScheduler::new();
    for n in 0..1000 {
        test.schedule(small(&format!("p{n}")));
    }
    let text = test.text().await;
    let count = |point: &str| -> u64 {
        let beginning = "scheduler_plugin_execution_duration_seconds_count{plugin=\"";
        let plugin = if point == "Bind" { "DefaultBinder" } else { "NodeResourcesFit" };
        let series = format!("{beginning}{plugin}\",extension_point=\"{point}\",status=\"Success\"}} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&series)?.parse().ok())
            .unwrap_or_else(|| panic!("{text}"))
    };
    for point in ["Filter", "Bind"] {
        assert!((50..200).contains(&count(point)), "{point}: {}", count(point));
    }
}

/// Makes the metrics collect through this mailbox.
fn collect_through(metrics: &Metrics, mailbox: Mailbox) {
    let informers =
        Informers::new("in memory", answering_client(Vec::new()).0, &mailbox, kinds(true)).unwrap();
    metrics.set_collector(Arc::new(ResourceStats {
        informers: informers.stats(),
        requests: Requests::to("server"),
        clients: Vec::new(),
        backlog: Backlog::new(mailbox.clone()),
        events_lost: Arc::default(),
        events: EventGauges::default(),
        status_writes: Gauge::default(),
        mailbox,
    }));
}

#[tokio::test(start_paused = true)]
async fn scrape_times_out_on_a_hung_scheduler_and_has_other_metrics() {
    let metrics = Metrics::new(&Config::default_with(&Catalog::in_tree()).unwrap().features);
    // No owner reads the messages.
    let (mailbox, _messages) = Mailbox::new();
    collect_through(&metrics, mailbox);
    let text = metrics.encode().await;
    assert_lines(&text, &["supercargo_binding_backlog 0", "supercargo_config_generation 1"]);
    assert!(text.contains("\nsupercargo_mailbox_delay_seconds 5"), "{text}");
    assert!(!text.contains("scheduler_pending_pods{"), "{text}");
}

#[tokio::test]
async fn scrape_includes_counts_up_to_the_answer_of_the_scheduler() {
    let test = TestScheduler::new();
    let (mailbox, messages) = Mailbox::new();
    collect_through(&test.metrics, mailbox);
    let counter = test.metrics.trace_spans_dropped("queue_full");
    let scheduler = test.scheduler;
    let answering = std::thread::spawn(move || {
        let Ok(Message::Ask(question)) = messages.recv() else { panic!("want a question") };
        counter.increment();
        question(&scheduler);
    });
    let text = test.metrics.encode().await;
    answering.join().unwrap();
    let counted = "supercargo_trace_spans_dropped_total{reason=\"queue_full\"} 1";
    assert_lines(&text, &[counted, "scheduler_cache_size{type=\"nodes\"} 2"]);
}

#[tokio::test]
async fn metrics_of_leadership_and_reloads_follow_their_state() {
    let config = Config::default_with(&Catalog::in_tree()).unwrap();
    let metrics = Metrics::new(&config.features);
    let text = metrics.encode().await;
    assert!(!text.contains("leader_election_master_status") && metrics.resources().await.is_empty());
    assert_lines(
        &text,
        &[
            "supercargo_config_generation 1",
            "supercargo_config_reload_failures_total 0",
            "supercargo_config_last_reload_successful 1",
            r#"supercargo_cache_mismatches_total{kind="node"} 0"#,
            r#"supercargo_lost_races_total{kind="pod"} 0"#,
        ],
    );
    metrics.leads("supercargo", false);
    metrics.config_reloaded();
    metrics.config_refused();
    metrics.config_successful(false);
    metrics.cache_mismatch("pod");
    assert_lines(
        &metrics.encode().await,
        &[
            r#"leader_election_master_status{name="supercargo"} 0"#,
            "supercargo_config_generation 2",
            "supercargo_config_reload_failures_total 1",
            "supercargo_config_last_reload_successful 0",
            r#"supercargo_cache_mismatches_total{kind="pod"} 1"#,
            r#"kubernetes_feature_enabled{name="SchedulerPopFromBackoffQ",stage="BETA"} 1"#,
        ],
    );
}

#[test]
fn informer_latency_histogram_has_the_buckets_of_the_informers() {
    assert_eq!(
        spec::INFORMER_LAG.kind,
        spec::MetricKind::Histogram(spec::Buckets::Given(&kube_informers::LATENCY_BUCKETS))
    );
}
