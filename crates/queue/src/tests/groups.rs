//! Tests of groups in the queue.

use std::collections::BTreeSet;

use supercargo_framework::PodSpec;
use supercargo_framework::objects::{
    Body, CompositePodGroup, GroupKey, GroupPolicy, GroupSpec, MemberStage, Object, ResourceClaim, resources,
};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource, PodClaimStatus, PodClaimStatuses};
use supercargo_framework::testing::object;

use super::*;
use crate::{GroupLengths, GroupOutcome};

impl TestBed {
    fn with_groups() -> Self {
        Self::new(QueueOptions { groups: true, ..QueueOptions::default() })
    }

    /// Adds a pod as the scheduler does: as a member first.
    fn add_member(&mut self, pod: PodBuilder) {
        let pod = Arc::new(pod.build());
        self.objects.set_member(&pod, Some(MemberStage::Unscheduled));
        self.with(|queue, cx| queue.add(cx, pod, ProfileIndex(0)));
    }

    fn delete_member(&mut self, pod: PodBuilder) {
        let pod = pod.build();
        self.objects.set_member(&pod, None);
        self.with(|queue, cx| queue.delete(cx, &pod.uid));
    }

    /// Adds or updates group `default/g`.
    fn set_group(&mut self, group: GroupSpec) {
        let new = Arc::new(pod_group("g", group));
        let key = GroupKey::of_pods("default/g".into());
        let old = self.objects.insert(Arc::clone(&new));
        let action = if old.is_none() { ActionType::ADD } else { ActionType::UPDATE };
        let event = ClusterEvent::new(EventResource::Other(resources::POD_GROUP), action);
        self.with(|queue, cx| {
            match &old {
                None => queue.group_moved(cx, &key, None),
                Some(_) => queue.group_updated(cx, &key),
            }
            queue.move_all(cx, &event, &Change::Object { old, new: Some(new) }, PreCheck::All);
        });
    }

    /// Adds or updates a group that may have a parent.
    fn set_in_tree(&mut self, object: Object) {
        let key = GroupKey::of(&object).unwrap();
        let forest = self.objects.forest();
        let (moves, earlier) = (forest.moves(&key, Some(&object)), forest.root_of(&key));
        assert!(moves);
        self.objects.insert(Arc::new(object));
        self.with(|queue, cx| queue.group_moved(cx, &key, earlier.as_ref()));
    }

    fn remove_group(&mut self) {
        self.objects.remove(&resources::POD_GROUP, "default/g");
        let key = GroupKey::of_pods("default/g".into());
        self.with(|queue, cx| queue.group_moved(cx, &key, Some(&key)));
    }

    /// Lets time pass.
    fn wait(&mut self, seconds: u64) {
        let later = Duration::from_secs(seconds);
        self.now = Now { wall: self.now.wall.plus(later), monotonic: self.now.monotonic + later };
        self.with(SchedulingQueue::tick);
    }

    fn places(&self, pods: &[&str]) -> Vec<Option<Place>> {
        pods.iter().map(|pod| self.queue.place(&(*pod).into())).collect()
    }

    /// Ends the attempt of a group: these members came back.
    fn end(&mut self, group: QueuedGroup, back: &[&str], outcome: GroupOutcome) {
        for mut member in group.members {
            if back.contains(&&*member.pod.name) {
                member.unschedulable_plugins.insert("NodeResourcesFit".into());
                self.with(|queue, cx| queue.add_unschedulable(cx, member));
            } else {
                self.with(|queue, _| queue.done(member.uid()));
            }
        }
        self.with(|queue, cx| queue.end_group(cx, group.entry, outcome));
    }
}

fn pod_group(name: &str, group: GroupSpec) -> Object {
    object(&resources::POD_GROUP, &format!("default/{name}"), Body::PodGroup(group.into()))
}

fn composite(name: &str, parent: Option<&str>) -> Object {
    let spec = GroupSpec { parent: parent.map(Into::into), ..GroupSpec::default() };
    let body = Body::CompositePodGroup(CompositePodGroup { spec });
    object(&resources::COMPOSITE_POD_GROUP, &format!("default/{name}"), body)
}

fn below(name: &str, parent: &str) -> Object {
    pod_group(name, GroupSpec { parent: Some(parent.into()), ..GroupSpec::default() })
}

fn gang(min_count: i32) -> GroupSpec {
    GroupSpec { policy: GroupPolicy::Gang(min_count), ..GroupSpec::default() }
}

fn member(name: &str) -> PodBuilder {
    pod(name).group("g")
}

fn names(group: &QueuedGroup) -> Vec<&str> {
    group.members.iter().map(|member| &*member.pod.name).collect()
}

#[test]
fn a_gang_waits_for_its_object_and_for_enough_pods() {
    let mut bed = TestBed::with_groups();
    bed.add_member(member("b"));
    assert_eq!(bed.places(&["b"]), [Some(Place::Aside)]);
    bed.set_group(gang(2));
    assert_eq!(bed.places(&["b"]), [Some(Place::Gated)]);
    bed.wait(1);
    bed.add_member(member("a"));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Active); 2]);
    let group = bed.pop_group();
    assert_eq!((&*group.key.key, names(&group)), ("default/g", vec!["b", "a"]), "the oldest first");
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::InFlight); 2]);
    assert!(bed.with(SchedulingQueue::pop).is_none());
}

#[test]
fn a_late_group_runs_pre_enqueue_once_for_each_pod() {
    let mut bed = TestBed::with_groups();
    for number in 0..100 {
        bed.add_member(member(&format!("p{number}")));
    }
    bed.set_group(gang(100));
    assert_eq!(bed.places(&["p0", "p99"]), [Some(Place::Active); 2]);
    assert_eq!(bed.counted.pre_enqueue.get(), 100);
}

#[test]
fn pods_that_come_or_go_one_by_one_do_not_ask_pre_enqueue_about_all() {
    for min_count in [1, 100] {
        let mut bed = TestBed::with_groups();
        bed.set_group(gang(min_count));
        for number in 0..100 {
            bed.add_member(member(&format!("p{number}")));
        }
        assert_eq!(bed.places(&["p0", "p99"]), [Some(Place::Active); 2]);
        let coming = bed.counted.pre_enqueue.take();
        assert!(coming <= 3 * 100 + 1, "{min_count}: {coming}");
        for number in 0..99 {
            bed.delete_member(member(&format!("p{number}")));
        }
        let going = bed.counted.pre_enqueue.take();
        assert!(going <= 3 * 100, "{min_count}: {going}");
        let place = if min_count == 1 { Place::Active } else { Place::Gated };
        assert_eq!(bed.places(&["p99"]), [Some(place)]);
    }
}

#[test]
fn a_group_is_held_by_the_plugin_that_holds_it_now() {
    let mut bed = TestBed::with_groups();
    bed.set_group(gang(3));
    let without_claim = member("a").gate("wait");
    bed.add_member(without_claim.clone());
    bed.add_member(member("b"));
    bed.add_member(member("c"));
    // The gang has its pods. Only the gate of `a` holds it.
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Gated); 3]);
    bed.update(without_claim, member("a").resource_version("2"));
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Active); 3]);
}

#[test]
fn a_group_that_was_tried_asks_pre_enqueue_about_all_again() {
    let mut bed = TestBed::with_groups();
    bed.set_group(gang(2));
    for name in ["a", "b"] {
        bed.add_member(member(name));
    }
    let group = bed.pop_group();
    bed.counted.pre_enqueue.take();
    bed.end(group, &["a", "b"], GroupOutcome::Rejected);
    assert_eq!(bed.counted.pre_enqueue.get(), 2);
}

#[test]
fn a_late_root_runs_pre_enqueue_once_for_each_pod() {
    let mut bed = TestBed::with_groups();
    bed.objects.set_composite_groups(true);
    for number in 0..100 {
        let group = format!("g{}", number % 10);
        bed.add_member(pod(&format!("p{number}")).group(&group));
    }
    for number in 0..10 {
        bed.set_in_tree(below(&format!("g{number}"), "r"));
    }
    assert_eq!(bed.counted.pre_enqueue.get(), 0);
    bed.set_in_tree(composite("r", None));
    assert_eq!(bed.counted.pre_enqueue.get(), 100);
    assert_eq!(bed.pop_group().members.len(), 100);
}

#[test]
fn pods_whose_group_gets_too_deep_leave_the_tree() {
    let mut bed = TestBed::with_groups();
    bed.objects.set_composite_groups(true);
    for (name, parent) in [("r", None), ("a", Some("r")), ("b", Some("a")), ("c", Some("r"))] {
        bed.set_in_tree(composite(name, parent));
    }
    bed.set_in_tree(below("g", "c"));
    bed.set_in_tree(below("h", "r"));
    bed.add_member(pod("p").group("g"));
    bed.add_member(pod("q").group("h"));
    assert_eq!(bed.places(&["p", "q"]), [Some(Place::Active); 2]);
    // Still below `r`, and its PodGroup on the fifth level.
    bed.set_in_tree(composite("c", Some("b")));
    assert_eq!(bed.places(&["p", "q"]), [Some(Place::Aside), Some(Place::Active)]);
    bed.set_in_tree(composite("c", Some("a")));
    assert_eq!(bed.places(&["p", "q"]), [Some(Place::Active); 2]);
    assert_eq!(bed.pop_group().members.len(), 2);
}

#[test]
fn groups_and_their_pods_are_counted_where_they_wait() {
    let mut bed = TestBed::with_groups();
    let lengths = |bed: &TestBed| bed.queue.group_lengths().unwrap();
    bed.add(pod("single"));
    bed.add_member(member("a"));
    assert_eq!(lengths(&bed), GroupLengths { incomplete: 1, ..GroupLengths::default() });
    bed.set_group(gang(2));
    let gated = GroupLengths { groups: [0, 0, 0, 1], pods: [0, 0, 0, 1], ..GroupLengths::default() };
    assert_eq!(lengths(&bed), gated);
    bed.add_member(member("b"));
    let active = GroupLengths { groups: [1, 0, 0, 0], pods: [2, 0, 0, 0], ..GroupLengths::default() };
    assert_eq!(lengths(&bed), active);
    assert_eq!(bed.counted.incoming.borrow().last().unwrap(), "Active by UnscheduledPodAdd*, 2 pods");
    bed.pop();
    let group = bed.pop_group();
    bed.add_member(member("c"));
    assert_eq!(lengths(&bed), GroupLengths { pending: 1, ..GroupLengths::default() });
    bed.end(group, &["a"], GroupOutcome::Rejected);
    let backoff = GroupLengths { groups: [0, 1, 0, 0], pods: [0, 2, 0, 0], ..GroupLengths::default() };
    assert_eq!(lengths(&bed), backoff);
}

#[test]
fn without_the_gate_members_are_queued_alone() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(member("a"));
    assert_eq!(&*bed.pop().pod.name, "a");
    assert_eq!(bed.queue.group_lengths(), None);
}

#[test]
fn members_are_tried_by_priority_attempts_age_and_name() {
    let mut bed = TestBed::with_groups();
    bed.set_group(GroupSpec::default());
    for (name, priority) in [("c", 0), ("b", 0), ("z", 9)] {
        bed.add_member(member(name).priority(priority));
    }
    let group = bed.pop_group();
    assert_eq!(names(&group), ["z", "b", "c"]);
    bed.end(group, &["c"], GroupOutcome::Rejected);
    bed.add_member(member("a"));
    bed.wait(10);
    assert_eq!(names(&bed.pop_group()), ["c", "a"], "c was tried before");
}

#[test]
fn the_priority_of_the_group_orders_it_among_pods() {
    let mut bed = TestBed::with_groups();
    bed.add(pod("single").priority(5));
    bed.set_group(GroupSpec { priority: 4, ..GroupSpec::default() });
    bed.add_member(member("a").priority(100));
    assert_eq!(bed.queue.peek().map(|pod| &*pod.name), Some("single"));
    bed.set_group(GroupSpec { priority: 6, ..GroupSpec::default() });
    assert_eq!(bed.queue.peek().map(|pod| &*pod.name), Some("a"));
}

#[test]
fn a_gang_that_loses_a_pod_waits_again() {
    let mut bed = TestBed::with_groups();
    bed.set_group(gang(2));
    bed.add_member(member("a"));
    bed.add_member(member("b"));
    bed.delete_member(member("a"));
    assert_eq!(bed.places(&["a", "b"]), [None, Some(Place::Gated)]);
    bed.delete_member(member("b"));
    assert_eq!(bed.queue.lengths(), [0; 5]);
}

#[test]
fn one_gated_member_gates_the_group() {
    let mut bed = TestBed::with_groups();
    bed.set_group(GroupSpec::default());
    bed.add_member(member("a"));
    bed.add_member(member("b").gate("wait"));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Gated); 2]);
    bed.update(member("b").gate("wait"), member("b").resource_version("2"));
    assert_eq!(names(&bed.pop_group()), ["a", "b"]);
}

#[test]
fn only_a_lower_min_count_wakes_a_gang() {
    let mut bed = TestBed::with_groups();
    bed.set_group(gang(3));
    bed.add_member(member("a"));
    for (min_count, expected) in [(4, Place::Gated), (2, Place::Gated), (1, Place::Active)] {
        bed.set_group(gang(min_count));
        assert_eq!(bed.places(&["a"]), [Some(expected)], "{min_count}");
    }
}

#[test]
fn members_of_a_deleted_group_wait_for_another() {
    let mut bed = TestBed::with_groups();
    bed.set_group(GroupSpec::default());
    bed.add_member(member("a"));
    bed.remove_group();
    assert_eq!((bed.places(&["a"]), bed.queue.has_poppable()), (vec![Some(Place::Aside)], false));
    bed.set_group(GroupSpec::default());
    let group = bed.pop_group();
    bed.remove_group();
    bed.end(group, &["a"], GroupOutcome::Rejected);
    assert_eq!(bed.places(&["a"]), [Some(Place::Aside)]);
}

#[test]
fn a_rejected_group_waits_longer_the_more_pods_it_has() {
    let mut bed = TestBed::with_groups();
    bed.set_group(GroupSpec::default());
    let pods: Vec<_> = (0..16).map(|i| format!("p{i:02}")).collect();
    let back: Vec<_> = pods.iter().map(|pod| &**pod).collect();
    for pod in &pods {
        bed.add_member(member(pod));
    }
    for backoff in [1, 2, 4, 8, 16, 32, 40, 40] {
        let group = bed.pop_group();
        bed.end(group, &back, GroupOutcome::Rejected);
        assert!(!bed.queue.has_poppable(), "a group is never popped early");
        bed.node_event(ActionType::ADD);
        bed.wait(backoff - 1);
        assert_eq!(bed.places(&back[..1]), [Some(Place::Backoff)], "after {} s", backoff - 1);
        bed.wait(2);
        assert_eq!(bed.places(&back[..1]), [Some(Place::Active)], "after {} s", backoff + 1);
    }
}

#[test]
fn the_rest_of_a_group_keeps_its_turn() {
    let mut bed = TestBed::with_groups();
    bed.set_group(GroupSpec::default());
    bed.add_member(member("a"));
    bed.add_member(member("b"));
    bed.wait(1);
    bed.add(pod("single"));
    let group = bed.pop_group();
    bed.wait(1);
    bed.end(group, &["b"], GroupOutcome::Scheduled);
    assert_eq!(names(&bed.pop_group()), ["b"], "before the single pod");
}

#[test]
fn the_pods_that_came_during_an_attempt_take_a_new_turn() {
    let mut bed = TestBed::with_groups();
    bed.set_group(GroupSpec::default());
    bed.add_member(member("a"));
    bed.wait(1);
    bed.add(pod("single"));
    let group = bed.pop_group();
    bed.wait(1);
    bed.add_member(member("b"));
    assert_eq!(bed.places(&["b"]), [Some(Place::Aside)]);
    bed.end(group, &[], GroupOutcome::Scheduled);
    assert_eq!(&*bed.pop().pod.name, "single");
    assert_eq!(names(&bed.pop_group()), ["b"]);
}

#[test]
fn activating_a_member_activates_its_group() {
    let mut bed = TestBed::with_groups();
    bed.set_group(GroupSpec::default());
    bed.add_member(member("a"));
    bed.add_member(member("b"));
    let group = bed.pop_group();
    bed.end(group, &["a", "b"], GroupOutcome::Failed);
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Backoff); 2]);
    bed.with(|queue, cx| queue.activate(cx, &Arc::new(member("b").build())));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Active); 2]);
}

/// The event of a new pod that waits for a node.
fn new_pod(bed: &mut TestBed, group: &str) {
    let change = Change::Pod { old: None, new: Some(Arc::new(pod("new").group(group).build())) };
    let event = ClusterEvent::new(EventResource::UnscheduledPod, ActionType::ADD);
    bed.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
}

/// Groups `g0` to `g9`: their pods were rejected, and then one of three was deleted.
fn gangs_that_lost_a_pod() -> TestBed {
    let mut bed = TestBed::with_groups();
    bed.now.wall = Timestamp(0);
    for number in 0..10 {
        let group = format!("g{number}");
        bed.set_in_tree(pod_group(&group, gang(3)));
        let pods: Vec<_> = ["a", "b", "c"].iter().map(|pod| format!("{group}-{pod}")).collect();
        let of_group = |name: &String| pod(name).group(&group);
        for name in &pods {
            bed.add_member(of_group(name));
        }
        let popped = bed.pop_group();
        let back: Vec<_> = pods.iter().map(|pod| &**pod).collect();
        bed.end(popped, &back, GroupOutcome::Rejected);
        bed.wait(10);
        bed.delete_member(of_group(&pods[2]));
        assert_eq!(bed.places(&back), [Some(Place::Gated), Some(Place::Gated), None]);
    }
    bed.counted.hints.set(0);
    bed
}

#[test]
fn an_event_asks_hints_about_the_groups_that_it_names() {
    let mut bed = gangs_that_lost_a_pod();
    new_pod(&mut bed, "other");
    assert_eq!(bed.counted.hints.get(), 0);
    new_pod(&mut bed, "g7");
    assert_eq!(bed.counted.hints.get(), 1, "a pod of g7");
    bed.counted.hints.set(0);
    bed.node_event(ActionType::ADD);
    assert_eq!(bed.counted.hints.get(), 0, "the gang plugin holds them, and does not care");
}

/// Adds claims to what else the pod has.
fn with_claims(spec: &mut PodSpec, claims: Box<[PodClaim]>) {
    spec.rare.get_or_insert_default().resource_claims = claims;
}

/// A pod with a claim of a template, which may have been generated, and another claim.
fn of_claims(group: &str, number: u32, generated: Option<&str>) -> PodBuilder {
    let source = PodClaimSource::Template("t".into());
    let other = PodClaimSource::Claim(format!("other{number}").into());
    let entries = [("c", source), ("d", other)].map(|(name, source)| PodClaim { name: name.into(), source });
    let pod = pod(&format!("p{number}")).group(group).with_spec(|spec| with_claims(spec, Box::new(entries)));
    pod.with(|pod: &mut PodInfo| {
        let status = generated.map(|claim| PodClaimStatus { name: "c".into(), claim: Some(claim.into()) });
        let generated = status.into_iter().collect();
        let statuses = PodClaimStatuses { generated, ..PodClaimStatuses::default() };
        pod.status.claims = Some(Box::new(statuses));
    })
}

/// Tells the queue of a new claim.
fn new_claim(bed: &mut TestBed, claim: &str) {
    let body = Body::ResourceClaim(ResourceClaim::default());
    let new = Arc::new(object(&resources::RESOURCE_CLAIM, &format!("default/{claim}"), body));
    bed.objects.insert(Arc::clone(&new));
    let event = ClusterEvent::new(EventResource::Other(resources::RESOURCE_CLAIM), ActionType::ADD);
    let change = Change::Object { old: None, new: Some(new) };
    bed.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
}

#[test]
fn an_event_asks_hints_about_the_groups_whose_pods_name_the_claim() {
    let of_claim = |number, generated: Option<&str>| of_claims(&format!("g{number}"), number, generated);
    let mut bed = TestBed::with_groups();
    for number in 0..10 {
        bed.set_in_tree(pod_group(&format!("g{number}"), GroupSpec::default()));
        bed.add_member(of_claim(number, None));
    }
    for number in 0..10 {
        let claim = format!("claim{number}");
        bed.update(of_claim(number, None), of_claim(number, Some(&claim)).resource_version("2"));
    }
    assert_eq!(bed.places(&["p0", "p9"]), [Some(Place::Gated); 2]);
    for (claim, asked) in [("unknown", 0), ("claim7", 1), ("other7", 1)] {
        bed.counted.hints.set(0);
        new_claim(&mut bed, claim);
        assert_eq!(bed.counted.hints.get(), asked, "{claim}");
    }
}

#[test]
fn claims_that_come_one_by_one_do_not_ask_about_all_pods_of_a_gang() {
    const PODS: u32 = 50;
    let mut bed = TestBed::with_groups();
    bed.set_group(gang(PODS as i32));
    for number in 0..PODS {
        let source = PodClaimSource::Claim(format!("claim{number}").into());
        let claim = PodClaim { name: "c".into(), source };
        let pod = member(&format!("p{number}"));
        bed.add_member(pod.with_spec(|spec| with_claims(spec, Box::new([claim]))));
    }
    bed.counted.hints.set(0);
    bed.counted.pre_enqueue.set(0);
    for number in 0..PODS {
        assert_eq!(bed.places(&["p0"]), [Some(Place::Gated)], "{number}");
        new_claim(&mut bed, &format!("claim{number}"));
    }
    assert_eq!(bed.places(&["p0"]), [Some(Place::Active)]);
    let (hints, asked) = (bed.counted.hints.get(), bed.counted.pre_enqueue.get());
    assert!(hints <= PODS as usize && asked <= 4 * PODS as usize, "{hints} hints, {asked} of PreEnqueue");
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    Delete(usize),
    SetGroup(i32),
    RemoveGroup,
    /// Pops, and ends the attempt at once: these members come back.
    Attempt(BTreeSet<usize>, u8),
    Wait(u64),
    Event,
}

fn step() -> impl Strategy<Value = Step> {
    let back = proptest::collection::btree_set(0..4_usize, 0..4);
    prop_oneof![
        4 => (0..4_usize).prop_map(Step::Add),
        2 => (0..4_usize).prop_map(Step::Delete),
        2 => (0..4_i32).prop_map(Step::SetGroup),
        1 => Just(Step::RemoveGroup),
        3 => (back, 0..3_u8).prop_map(|(back, outcome)| Step::Attempt(back, outcome)),
        2 => (0..20_u64).prop_map(Step::Wait),
        1 => Just(Step::Event),
    ]
}

proptest! {
    #[test]
    fn no_member_is_lost_or_in_two_places(steps in proptest::collection::vec(step(), 1..40)) {
        let mut bed = TestBed::with_groups();
        let mut known = BTreeSet::new();
        let all = ["p0", "p1", "p2", "p3"];
        for step in steps {
            match step {
                Step::Add(i) => if known.insert(all[i]) { bed.add_member(member(all[i])) },
                Step::Delete(i) => if known.remove(all[i]) { bed.delete_member(member(all[i])) },
                Step::SetGroup(0) => bed.set_group(GroupSpec::default()),
                Step::SetGroup(min_count) => bed.set_group(gang(min_count)),
                Step::RemoveGroup => bed.remove_group(),
                Step::Attempt(back, outcome) => if let Some(Popped::Group(group)) = bed.with(SchedulingQueue::pop) {
                    let tried: Vec<_> = group.members.iter().map(|member| Arc::clone(&member.pod.name)).collect();
                    let back: Vec<_> = back.into_iter().map(|i| all[i]).collect();
                    let outcome = [GroupOutcome::Scheduled, GroupOutcome::Rejected, GroupOutcome::Failed]
                        [usize::from(outcome)];
                    bed.end(group, &back, outcome);
                    known.retain(|name| !tried.iter().any(|tried| **tried == **name) || back.contains(name));
                },
                Step::Wait(seconds) => bed.wait(seconds),
                Step::Event => bed.node_event(ActionType::ADD),
            }
            for name in all {
                prop_assert_eq!(bed.queue.place(&name.into()).is_some(), known.contains(name), "{}", name);
            }
            let queued: BTreeSet<_> = bed.queue.entries().map(|entry| entry.pod.name.to_string()).collect();
            prop_assert_eq!(bed.queue.entries().count(), known.len());
            prop_assert!(known.iter().all(|name| queued.contains(*name)));
        }
        // Its members are queued anew.
        bed.remove_group();
        bed.set_group(GroupSpec::default());
        if !known.is_empty() {
            prop_assert_eq!(bed.pop_group().members.len(), known.len());
        }
    }
}

#[test]
fn a_new_pod_asks_hints_about_its_own_gang_only() {
    let mut bed = TestBed::with_groups();
    for number in 0..100 {
        let name = format!("g{number}");
        bed.objects.insert(Arc::new(pod_group(&name, gang(3))));
        for i in 0..2 {
            bed.add_member(pod(&format!("{name}-{i}")).group(&name));
        }
    }
    let announce = |bed: &mut TestBed, pod: PodBuilder| {
        let pod = Arc::new(pod.build());
        bed.counted.hints.set(0);
        let change = Change::Pod { old: None, new: Some(Arc::clone(&pod)) };
        let event = ClusterEvent::new(EventResource::UnscheduledPod, ActionType::ADD);
        bed.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::Others));
        bed.counted.hints.get()
    };
    assert_eq!(announce(&mut bed, pod("single")), 0);
    assert_eq!(announce(&mut bed, pod("other").group("unknown")), 0);
    let third = || pod("third").group("g7");
    bed.add_member(third());
    assert!(announce(&mut bed, third()) <= 3);
    assert_eq!(bed.places(&["g7-0", "g7-1", "third"]), [Some(Place::Active); 3]);
    assert_eq!(bed.places(&["g8-0"]), [Some(Place::Gated)]);
}

#[test]
fn a_group_with_a_pod_of_a_stall_is_delayed_and_then_last() {
    for pod_comes_first in [true, false] {
        let mut bed = TestBed::with_groups();
        let stalled = || marked("a").group("g").priority(9);
        if pod_comes_first {
            bed.add_member(stalled());
            bed.set_group(gang(2));
        } else {
            bed.set_group(gang(2));
            bed.add_member(stalled());
        }
        bed.add_member(member("b"));
        assert_eq!(bed.places(&["a", "b"]), [Some(Place::Backoff); 2]);
        assert!(!bed.queue.has_poppable(), "not popped early");
        bed.wait(5 * 60 + 2);
        bed.add(pod("single"));
        assert_eq!(bed.places(&["a", "b"]), [Some(Place::Active); 2]);
        assert_eq!(&*bed.pop().pod.name, "single");
        assert_eq!(bed.queue.peek().map(|pod| &*pod.name), Some("a"), "the member that is tried first");
        let group = bed.pop_group();
        assert_eq!(names(&group), ["a", "b"]);
        bed.end(group, &["a", "b"], GroupOutcome::Rejected);
        bed.wait(30);
        bed.add(pod("next"));
        assert_eq!(bed.pop_group().members.len(), 2, "an attempt that ends clears the mark");
    }
}

#[test]
fn a_waiting_group_is_delayed_when_the_leader_marks_a_member() {
    let mut bed = TestBed::with_groups();
    bed.set_group(gang(2));
    bed.add_member(member("a"));
    bed.add_member(member("b"));
    bed.update(member("b"), marked("b").group("g").resource_version("2"));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Backoff); 2]);
    bed.wait(60);
    assert!(!bed.queue.has_poppable());
}
