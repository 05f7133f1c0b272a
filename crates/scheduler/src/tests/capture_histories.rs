//! Captures of random histories with claims for devices and with groups.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::objects::{Body, Object, resources};
use supercargo_framework::testing::{node, object, pod};
use supercargo_framework::{Features, NodeRecord, Now, PodInfo, Status, Uid};

use super::devices;
use super::groups::{gang, group_options_with};
use super::redaction::Captures;
use super::test_bed::WALL;
use crate::record::restore;
use crate::{Effect, Fork, Input, NoCalls, Notification, Options, Scheduler, Why};

/// A step of a history. Numbers select among what exists.
#[derive(Clone, Debug)]
enum Step {
    Node {
        number: usize,
        cpu: usize,
    },
    DeleteNode(usize),
    Slice {
        node: usize,
        devices: usize,
    },
    Group {
        number: usize,
        min_count: i32,
    },
    Claim {
        number: usize,
        version: usize,
    },
    Pod {
        cpu: usize,
        group: Option<usize>,
        claim: Option<usize>,
        priority: i32,
    },
    DeletePod(usize),
    Cycle,
    /// All requests are answered, and the informer shows it.
    Answer,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let few = || 0..3_usize;
    prop_oneof![
        2 => (few(), 1..8_usize).prop_map(|(number, cpu)| Step::Node { number, cpu }),
        1 => few().prop_map(Step::DeleteNode),
        2 => (few(), 0..4_usize).prop_map(|(node, devices)| Step::Slice { node, devices }),
        2 => (few(), 1..4_i32).prop_map(|(number, min_count)| Step::Group { number, min_count }),
        2 => (few(), few()).prop_map(|(number, version)| Step::Claim { number, version }),
        9 => (1..4_usize, prop::option::of(few()), prop::option::weighted(0.4, few()), 0..2_i32)
            .prop_map(|(cpu, group, claim, priority)| Step::Pod { cpu, group, claim, priority }),
        2 => (0..30_usize).prop_map(Step::DeletePod),
        9 => Just(Step::Cycle),
        4 => Just(Step::Answer),
        2 => (0..20_000_u64).prop_map(Step::Pass),
    ]
}

fn some_options() -> Options {
    group_options_with(Features::default(), |_| true)
}

/// A scheduler with its cluster.
struct Story {
    scheduler: Scheduler,
    now: Now,
    pods: BTreeMap<Uid, Arc<PodInfo>>,
    nodes: BTreeMap<usize, Arc<NodeRecord>>,
    effects: Vec<Effect>,
    versions: usize,
}

impl Story {
    fn after(steps: &[Step]) -> Self {
        let now = Now { wall: WALL, monotonic: Duration::ZERO };
        let scheduler = Scheduler::new(some_options()).unwrap();
        let (pods, nodes, effects) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut story = Self { scheduler, now, pods, nodes, effects, versions: 0 };
        story.set(devices::class(true));
        for number in 0..2 {
            story.make(&Step::Node { number, cpu: 6 });
            story.make(&Step::Slice { node: number, devices: 2 });
            story.make(&Step::Group { number, min_count: 2 });
        }
        for step in steps {
            story.make(step);
        }
        story
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
        self.effects.extend(self.scheduler.take_effects());
    }

    fn set(&mut self, new: Object) {
        self.versions += 1;
        let resource_version = self.versions.to_string().into();
        let new = Arc::new(Object { resource_version, ..new });
        let known = self.scheduler.objects().from_api(&new.resource, &new.key).cloned();
        self.handle(Input::Object(match known {
            Some(old) => Notification::Updated { old, new },
            None => Notification::Added(new),
        }));
    }

    fn make(&mut self, step: &Step) {
        match *step {
            Step::Node { number, cpu } => {
                let new = node(&format!("n{number}")).allocatable("cpu", &cpu.to_string());
                let new = Arc::new(new.zone(["a", "b"][number % 2]).build());
                let old = self.nodes.insert(number, Arc::clone(&new));
                self.handle(Input::Node(match old {
                    Some(old) => Notification::Updated { old, new },
                    None => Notification::Added(new),
                }));
            }
            Step::DeleteNode(number) => {
                if let Some(node) = self.nodes.remove(&number) {
                    self.handle(Input::Node(Notification::Deleted(node)));
                }
            }
            Step::Slice { node, devices } => self.set(devices::slice(node, devices)),
            Step::Group { number, min_count } => {
                let body = Body::PodGroup(gang(min_count).into());
                self.set(object(&resources::POD_GROUP, &format!("default/g{number}"), body));
            }
            Step::Claim { number, version } => {
                let key = format!("default/claim{number}");
                if self.scheduler.objects().from_api(&resources::RESOURCE_CLAIM, &key).is_none() {
                    self.set(devices::claim(number, version, None));
                }
            }
            Step::Pod { cpu, group, claim, priority } => self.create(cpu, group, claim, priority),
            Step::DeletePod(which) => {
                if let Some(pod) = self.pods.values().nth(which % self.pods.len().max(1)).cloned() {
                    self.pods.remove(&pod.uid);
                    let gone = Notification::Deleted(Arc::clone(&pod));
                    let is_assigned = pod.is_assigned();
                    self.handle(if is_assigned { Input::AssignedPod(gone) } else { Input::QueuedPod(gone) });
                }
            }
            Step::Cycle => {
                self.scheduler.schedule_one(self.now, &mut NoCalls);
                self.effects.extend(self.scheduler.take_effects());
            }
            Step::Answer => self.answer(),
            Step::Pass(millis) => {
                let time = Duration::from_millis(millis);
                self.now = Now { wall: self.now.wall.plus(time), monotonic: self.now.monotonic + time };
                self.handle(Input::Tick);
            }
        }
    }

    fn create(&mut self, cpu: usize, group: Option<usize>, claim: Option<usize>, priority: i32) {
        self.versions += 1;
        let name = format!("p{}", self.versions);
        // The search for victims begins at a hash of the UID.
        let uid = format!("00000000-0000-4000-8000-{:012}", self.versions);
        let mut pod = pod(&name).uid(&uid).request("cpu", &cpu.to_string());
        pod = match claim {
            Some(claim) => devices::claiming(pod, claim),
            None => pod,
        };
        pod = match group {
            // All pods of a group have one priority.
            Some(group) => pod.with_spec(|spec| {
                spec.rare.get_or_insert_default().group = Some(format!("g{group}").into());
            }),
            None => pod.priority(priority),
        };
        let pod = Arc::new(pod.build());
        self.pods.insert(pod.uid.clone(), Arc::clone(&pod));
        self.handle(Input::QueuedPod(Notification::Added(pod)));
    }

    fn answer(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::StartPreBind { pod, .. } => {
                    self.write_claims();
                    let status = Status::success().by("DynamicResources");
                    self.handle(Input::PreBound { pod: pod.uid.clone(), status });
                }
                Effect::Bind { pod, node, .. } => {
                    let Some(old) = self.pods.get(&pod.uid).cloned() else { continue };
                    let new = PodInfo { node_name: Some(node), ..PodInfo::clone(&old) };
                    let new = Arc::new(new);
                    self.pods.insert(new.uid.clone(), Arc::clone(&new));
                    let (pod, by) = (new.uid.clone(), "DefaultBinder".into());
                    self.handle(Input::Bound { pod, by, outcome: BindOutcome::Bound });
                    self.handle(Input::AssignedPod(Notification::Added(new)));
                    self.handle(Input::QueuedPod(Notification::Deleted(old)));
                }
                _ => {}
            }
        }
    }

    /// PreBind writes all claims whose devices are chosen.
    fn write_claims(&mut self) {
        let pending: Vec<_> = self.scheduler.objects().list_pending().cloned().collect();
        for claim in pending {
            self.versions += 1;
            let Some(written) = devices::written(&claim, self.versions, self.now.wall) else { continue };
            let known = self.scheduler.objects().from_api(&written.resource, &written.key).cloned();
            let Some(old) = known else { continue };
            self.handle(Input::Object(Notification::Updated { old, new: Arc::new(written) }));
        }
    }

    fn fork(&self) -> Fork {
        self.scheduler.fork(self.now, some_options()).unwrap()
    }
}

fn reopened(capture: &str) -> Fork {
    let mut scheduler = None;
    let read = restore(&mut scheduler, capture.as_bytes(), |_| Ok(some_options()), None).unwrap();
    scheduler.unwrap().fork(read.now, some_options()).unwrap()
}

/// The answer. What it says of a group with several members is left out: a capture does not have
/// the order in which they are tried.
fn why(fork: &mut Fork, pod: &Arc<PodInfo>) -> String {
    let mut why = fork.why_there(pod);
    if let Ok(Why { group, .. }) = &mut why {
        group.take_if(|group| group.waiting > 1);
    }
    format!("{why:?}")
}

/// What both say about each pod.
fn compare(mut here: Fork, mut there: Fork) -> Result<usize, TestCaseError> {
    let pending = here.pending();
    for pod in &pending {
        let known = there.pod(&pod.key()).cloned();
        let known = known.ok_or_else(|| TestCaseError::fail(format!("{} is not there", pod.key())))?;
        let answers = (why(&mut here, pod), why(&mut there, &known));
        prop_assert_eq!(answers.0, answers.1, "about {}", pod.key());
        if pod.spec.resource_claims().is_empty() {
            let fork = |fork: &Fork| fork.fork(some_options()).unwrap();
            let counts = (fork(&here).fits(pod, 5), fork(&there).fits(&known, 5));
            prop_assert_eq!(format!("{:?}", counts.0), format!("{:?}", counts.1), "of {}", pod.key());
        }
    }
    Ok(pending.len())
}

#[test]
fn a_capture_of_claims_and_groups_answers_and_decides_as_its_origin() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let (pods, bound, claims) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let add = |cell: &Cell<usize>, more: usize| cell.set(cell.get() + more);
    let histories = prop::collection::vec(step(), 5..90);
    let run = TestRunner::new(config).run(&histories, |steps| {
        let story = Story::after(&steps);
        let captures = Captures::of(&mut story.fork(), &[]).unwrap();
        let again = Captures::of(&mut reopened(&captures.plain), &[]).unwrap();
        prop_assert_eq!(&again.plain, &captures.plain);
        add(&pods, compare(story.fork(), reopened(&captures.plain))?);
        add(&claims, story.scheduler.objects().list_pending().count());
        let [plain, redacted] = captures.decisions(some_options);
        add(&bound, plain.iter().filter(|line| line.starts_with("binds ")).count());
        prop_assert_eq!(plain, redacted);
        Ok(())
    });
    run.unwrap();
    let all = [&pods, &bound, &claims].map(Cell::get);
    assert!(all.into_iter().all(|count| count > 0), "pending, bound, claims in flight: {all:?}");
}
