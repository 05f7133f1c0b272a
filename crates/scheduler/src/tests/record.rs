//! Records and replays.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::objects::{Body, Object, PodDisruptionBudget, resources};
use supercargo_framework::testing::{PodBuilder, node, object, pod};
use supercargo_framework::{LabelSelector, Now, PodInfo, Status, Timestamp};

use super::devices;
use super::test_bed::{TestBed, WALL, all_plugins, options, plugins};
use super::volumes::{claim, class, volume, with_claim};
use crate::record::{self, Comparer, Recorded, RecordedCall, ReplayError, Replayed, StepLog, replay_with};
use crate::{
    Calls, Eviction, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, Input, NoCalls, Notification, Options,
    Scheduler,
};

fn extended() -> Options {
    let extender = ExtenderSpec { name: "x".into(), filters: true, ..ExtenderSpec::default() };
    Options { extenders: vec![extender], ..options(plugins(Vec::new())) }
}

/// Records a new scheduler.
fn recorded(options: Options, log: &mut TextLog) -> Recorded<&mut TextLog> {
    Recorded::new(at(0), Scheduler::new(options).unwrap(), String::new(), log)
}

fn at(seconds: u64) -> Now {
    let monotonic = Duration::from_secs(seconds);
    Now { wall: Timestamp(WALL.0).plus(monotonic), monotonic }
}

/// An extender that keeps the last node.
struct Last;

impl Calls for Last {
    fn ask(&mut self, _: &ExtenderSpec, question: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        match question {
            ExtenderQuestion::Filter { nodes, .. } => Ok(ExtenderAnswer::Filtered {
                nodes: nodes.last().map(|node| Arc::clone(&node.name)).into_iter().collect(),
                failed: Vec::new(),
                failed_and_unresolvable: Vec::new(),
            }),
            _ => Err("it does not".to_owned()),
        }
    }
}

/// The text of a record.
#[derive(Default)]
struct TextLog(Vec<u8>);

impl StepLog for &mut TextLog {
    fn push(&mut self, step: RecordedCall) {
        self.0.extend(step.to_line().unwrap());
    }
}

fn text(log: TextLog) -> String {
    String::from_utf8(log.0).unwrap()
}

/// Replays a record without changes of the configuration.
fn replay(options: Options, record: &str) -> Result<usize, ReplayError> {
    let mut options = Some(options);
    let configure = |text: &str| options.take().ok_or_else(|| text.to_owned());
    let replayed = record::replay(&mut None, record.as_bytes(), configure)?;
    assert!(!replayed.is_cut, "{replayed:?}");
    Ok(replayed.steps)
}

fn record() -> String {
    let mut log = TextLog::default();
    let mut recorded = recorded(extended(), &mut log);
    for name in ["n1", "n2"] {
        let input = Input::Node(Notification::Added(Arc::new(node(name).build())));
        recorded.handle(at(0), input);
    }
    let a: PodInfo = pod("a").request("cpu", "100m").label("x", "y").build();
    recorded.handle(at(1), Input::QueuedPod(Notification::Added(Arc::new(a))));
    let effects = recorded.schedule_one(at(2), &mut Last);
    assert_eq!(format!("{effects:?}"), "[Bind default/a a to n2]");
    recorded.handle(
        at(3),
        Input::Bound { pod: "a".into(), by: "DefaultBinder".into(), outcome: BindOutcome::Bound },
    );
    assert!(!recorded.scheduler().has_work());
    text(log)
}

#[test]
fn a_record_replays_with_the_extenders_answers() {
    let record = record();
    assert_eq!(replay(extended(), &record).unwrap(), 6);
    // The record has the extender's choice; otherwise the first node would be chosen.
    assert!(record.contains("\"Filtered\":{\"nodes\":[\"n2\"]"));
}

#[test]
fn a_difference_is_reported_with_its_line() {
    let cases = [
        ("other effects", ("Bind default/a a to n2", "Bind default/a a to n1"), 5),
        ("other inputs", ("\"Filtered\":{\"nodes\":[\"n2\"]", "\"Filtered\":{\"nodes\":[\"n1\"]"), 5),
    ];
    for (name, (from, to), expected) in cases {
        let tampered = record().replace(from, to);
        match replay(extended(), &tampered) {
            Err(ReplayError::Differs { line, .. }) => assert_eq!(line, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let broken = record().replace("\"now\"", "\"then\"");
    match replay(extended(), &broken) {
        Err(ReplayError::Read { line, .. }) => assert_eq!(line, 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn record_that_ends_at_any_byte_replays_up_to_its_last_complete_line() {
    let record = record();
    for length in 0..=record.len() {
        let part = &record.as_bytes()[..length];
        let replayed = record::replay(&mut None, part, |_| Ok(extended())).unwrap();
        let rest = part.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        // A line is complete before its line break.
        let is_cut = !rest.is_empty() && record.as_bytes().get(length) != Some(&b'\n');
        let steps = part.split(|byte| *byte == b'\n').count() - 1 + usize::from(!rest.is_empty() && !is_cut);
        assert_eq!(replayed, Replayed { steps, is_cut }, "{length} bytes");
    }
}

#[test]
fn an_answer_missing_in_the_record_is_an_extender_error() {
    let without = record().replace(
        "[{\"Ok\":{\"Filtered\":{\"nodes\":[\"n2\"],\"failed\":[],\"failed_and_unresolvable\":[]}}}]",
        "[]",
    );
    match replay(extended(), &without) {
        Err(ReplayError::Differs { line, replayed, .. }) => {
            assert_eq!(line, 5);
            assert!(replayed[0].contains("the record has no answer of extender x"), "{replayed:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// A recorded scheduler with every in-tree plugin.
struct Run<'a> {
    recorded: Recorded<&'a mut TextLog>,
    seconds: u64,
}

impl Run<'_> {
    fn now(&mut self) -> Now {
        self.seconds += 1;
        at(self.seconds)
    }

    fn tell(&mut self, input: Input) -> String {
        let now = self.now();
        format!("{:?}", self.recorded.handle(now, input))
    }

    fn object(&mut self, old: Option<Object>, new: Object) {
        let new = Arc::new(new);
        self.tell(Input::Object(match old.map(Arc::new) {
            Some(old) => Notification::Updated { old, new },
            None => Notification::Added(new),
        }));
    }

    fn cycle(&mut self) -> String {
        let now = self.now();
        format!("{:?}", self.recorded.schedule_one(now, &mut NoCalls))
    }

    fn pod(&mut self, pod: PodBuilder) -> String {
        self.tell(Input::QueuedPod(Notification::Added(Arc::new(pod.build()))));
        self.cycle()
    }

    /// The pod is bound, and the informer reports it.
    fn bound(&mut self, pod: PodBuilder) {
        let uid = pod.clone().build().uid;
        self.tell(Input::Bound { pod: uid, by: "DefaultBinder".into(), outcome: BindOutcome::Bound });
        let assigned = pod.clone().resource_version("2").node("n1").build();
        self.tell(Input::AssignedPod(Notification::Added(Arc::new(assigned))));
        self.tell(Input::QueuedPod(Notification::Deleted(Arc::new(pod.build()))));
    }
}

fn everything() -> Options {
    options(all_plugins(Vec::new()))
}

fn budget() -> Object {
    let labels = pod("low").label("app", "low").build().labels;
    let selector = LabelSelector::parse(&labels, []).unwrap();
    let budget =
        PodDisruptionBudget { selector: Some(selector), disruptions_allowed: 1, ..Default::default() };
    object(&resources::POD_DISRUPTION_BUDGET, "default/low", Body::PodDisruptionBudget(budget))
}

/// A volume is bound for `a`, and `high` preempts `low`.
fn record_of_everything() -> String {
    let mut log = TextLog::default();
    let mut run = Run { recorded: recorded(everything(), &mut log), seconds: 0 };
    run.tell(Input::Node(Notification::Added(Arc::new(node("n1").allocatable("cpu", "4").build()))));
    for object in [class(), volume("1", None), claim("a", "1", ""), budget()] {
        run.object(None, object);
    }
    let a = || with_claim("a", "a").request("cpu", "1");
    assert!(run.pod(a()).contains("StartPreBind default/a a on n1"));
    run.object(Some(volume("1", None)), volume("2", Some("a")));
    run.object(Some(claim("a", "1", "")), claim("a", "3", "v"));
    assert_eq!(
        run.tell(Input::PreBound { pod: "a".into(), status: Status::success() }),
        "[Bind default/a a to n1]"
    );
    run.bound(a());
    let low = || pod("low").label("app", "low").request("cpu", "3");
    assert_eq!(run.pod(low()), "[Bind default/low low to n1]");
    run.bound(low());
    assert!(run.pod(pod("high").priority(7).request("cpu", "3")).starts_with("[Evict 1 "));
    let answer = run.tell(Input::Evicted { preemption: 1, outcomes: vec![Eviction::Deleted] });
    assert!(answer.contains("Preempted"), "{answer}");
    let gone = Arc::new(low().resource_version("2").node("n1").build());
    run.tell(Input::AssignedPod(Notification::Deleted(gone)));
    assert_eq!(run.cycle(), "[Bind default/high high to n1]");
    text(log)
}

#[test]
fn a_record_with_volumes_objects_and_preemption_replays() {
    let record = record_of_everything();
    let steps = replay(everything(), &record).unwrap();
    assert_eq!(steps, record.lines().count());
    for line in record.lines() {
        let step: RecordedCall = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&step).unwrap(), line, "reading returns what was written");
    }
}

/// `a` and `b` have devices, and no claim is written yet, when `c` is tried. The binding of `b`
/// fails, and it gets its devices again.
fn record_of_claims_in_flight() -> String {
    let mut log = TextLog::default();
    let mut run = Run { recorded: recorded(everything(), &mut log), seconds: 0 };
    run.tell(Input::Node(Notification::Added(Arc::new(node("n1").build()))));
    run.object(None, devices::class(true));
    run.object(None, devices::slice(1, 3));
    let claim = |name: &str, count| devices::claim_named(name, count, 1, None);
    let claims = [claim("a", 1), claim("b", 2), claim("c", 1)];
    claims.clone().into_iter().for_each(|claim| run.object(None, claim));
    let claiming = |name: &str| devices::claiming_named(pod(name), name);
    assert!(run.pod(claiming("a")).contains("StartPreBind default/a a on n1"));
    assert!(run.pod(claiming("b")).contains("StartPreBind default/b b on n1"));
    assert_eq!(run.recorded.scheduler().objects().list_pending().count(), 2);
    let refused = run.pod(claiming("c"));
    assert!(refused.contains("1 cannot allocate all claims"), "{refused}");
    let of_a = Arc::clone(run.recorded.scheduler().objects().pending("a").unwrap());
    let written = devices::written(&of_a, 2, WALL).unwrap();
    run.tell(Input::Written(Arc::new(written.clone())));
    let pre_bound = |pod: &str, status| Input::PreBound { pod: pod.into(), status };
    assert!(run.tell(pre_bound("b", Status::error("no"))).contains("FailedScheduling"));
    assert_eq!(run.tell(pre_bound("a", Status::success())), "[Bind default/a a to n1]");
    // After its backoff.
    let next = (0..9).map(|_| run.tell(Input::Tick) + &run.cycle()).find(|effects| effects != "[][]");
    assert!(next.as_ref().is_some_and(|it| it.contains("StartPreBind default/b b on n1")), "{next:?}");
    let [of_a, ..] = claims;
    run.object(Some(of_a), written);
    run.bound(claiming("a"));
    text(log)
}

#[test]
fn a_record_with_claims_in_flight_replays() {
    let record = record_of_claims_in_flight();
    assert_eq!(replay(everything(), &record).unwrap(), record.lines().count());
    // As another configuration does.
    let mut comparer = Comparer::new(everything()).unwrap();
    let mut before = |scheduler: &mut Scheduler, call: &RecordedCall| comparer.before(scheduler, call);
    replay_with(&mut None, record.as_bytes(), |_| Ok(everything()), &mut before).unwrap();
    let comparison = comparer.comparison;
    assert_eq!(comparison.differing(), 0, "{:?}", comparison.differences);
}

#[test]
fn replays_depend_on_claims_in_flight() {
    let record = record_of_claims_in_flight();
    assert!(record.contains("\"Exact\":2"), "{record}");
    match replay(everything(), &record.replace("\"Exact\":2", "\"Exact\":1")) {
        Err(ReplayError::Differs { recorded, replayed, .. }) => {
            assert!(recorded.concat().contains("1 cannot allocate all claims"), "{recorded:?}");
            assert!(replayed.concat().contains("StartPreBind default/c"), "{replayed:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replay_agrees_under_another_hash_seed() {
    let record = record_of_everything();
    let options = Options { hash_seed: 7, ..everything() };
    assert_eq!(replay(options, &record).unwrap(), record.lines().count());
}

#[test]
fn maps_of_pods_hash_with_the_seed() {
    let orders = |hash_seed| {
        let mut bed = TestBed::of(Options { hash_seed, ..options(all_plugins(Vec::new())) });
        for i in 0..32 {
            bed.pod(pod(&format!("p{i}")));
            bed.pod(pod(&format!("other{i}")).scheduler("another"));
        }
        let Scheduler { pending, unclaimed_pods, .. } = &bed.scheduler;
        [pending, unclaimed_pods].map(|map| map.keys().cloned().collect::<Vec<_>>())
    };
    let [one, another] = [orders(1), orders(2)];
    for (one, another) in one.iter().zip(&another) {
        assert_eq!(one.len(), 32);
        assert_ne!(one, another, "strangers choose the names");
    }
}

#[test]
fn replays_depend_on_recorded_objects_and_answers() {
    let cases = [
        ("another volume", "\"capacity\":10", "\"capacity\":1", "StartPreBind"),
        ("another answer", "\"outcomes\":[\"Deleted\"]", "\"outcomes\":[\"Gone\"]", "Preempted"),
        ("another end of PreBind", "\"code\":\"Success\"", "\"code\":\"Error\"", "Bind default/a"),
    ];
    for (name, from, to, missing) in cases {
        let record = record_of_everything();
        assert!(record.contains(from), "{name}: {record}");
        match replay(everything(), &record.replace(from, to)) {
            Err(ReplayError::Differs { recorded, replayed, .. }) => {
                assert!(recorded.concat().contains(missing), "{name}: {recorded:?}");
                assert!(!replayed.concat().contains(missing), "{name}: {replayed:?}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_change_of_the_configuration_replays() {
    let serving = |name: &str| {
        let mut options = options(plugins(Vec::new()));
        options.profiles[0].scheduler_name = name.to_owned();
        options
    };
    let mut log = TextLog::default();
    let scheduler = Scheduler::new(serving("first")).unwrap();
    let mut recorded = Recorded::new(at(0), scheduler, "first".to_owned(), &mut log);
    recorded.handle(at(0), Input::Node(Notification::Added(Arc::new(node("n1").build()))));
    let waiting: PodInfo = pod("a").scheduler("second").build();
    recorded.handle(at(1), Input::QueuedPod(Notification::Added(Arc::new(waiting))));
    recorded.reconfigure(at(2), serving("second"), "second".to_owned()).unwrap();
    let effects = recorded.schedule_one(at(3), &mut NoCalls);
    assert_eq!(format!("{effects:?}"), "[Bind default/a a to n1]");
    let none = Options { profiles: Vec::new(), ..serving("second") };
    recorded.reconfigure(at(4), none, "none".to_owned()).unwrap_err();

    let record = text(log);
    let steps = record::replay(&mut None, record.as_bytes(), |text| Ok(serving(text))).unwrap().steps;
    assert_eq!(steps, 5);
    match replay(serving("first"), &record) {
        Err(ReplayError::Configuration { line: 4, problem }) => assert_eq!(problem, "second"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_is_no_begin_of_a_record_is_the_wrong_one() {
    let record = record();
    let begin = record.lines().next().unwrap();
    let rest = &record[begin.len() + 1..];
    let capture = begin.replace("Record", "Capture");
    for (file, problem) in [
        (rest.to_owned(), "neither a capture nor the first file of a record"),
        (format!("{record}{record}"), "line 7: another record or capture begins"),
        (format!("{capture}\n{rest}"), "ask questions with --from"),
    ] {
        let error = replay(extended(), &file).unwrap_err();
        assert!(error.is_wrong_file() && error.to_string().contains(problem), "{error}");
    }
    // The next file continues.
    let mut scheduler = None;
    for part in [begin, rest] {
        record::replay(&mut scheduler, part.as_bytes(), |_| Ok(extended())).unwrap();
    }
    assert!(scheduler.is_some());
}

#[test]
fn times_of_a_file_that_would_overflow_are_refused() {
    let line = record().lines().next().unwrap().to_owned();
    let with = |pointer: &str, number: u64| {
        let mut line: Value = serde_json::from_str(&line).unwrap();
        *line.pointer_mut(pointer).unwrap() = json!(number);
        replay(extended(), &format!("{line}\n"))
    };
    for (pointer, number) in [("/now/wall", i64::MAX as u64), ("/now/monotonic/secs", u64::MAX)] {
        let error = with(pointer, number).unwrap_err();
        assert!(matches!(error, ReplayError::Time { line: 1 }), "{error}");
        assert_eq!(with(pointer, 1_000_000_000).unwrap(), 1);
    }
}
