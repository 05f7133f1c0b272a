mod histories;
mod properties;

use serde_json::{Value, json};
use supercargo_framework::affinity::RawRequirement;
use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::objects::{Body, Namespace, Object, Objects};
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::testing::{
    NodeBuilder, PodBuilder, node, node_added, node_info, node_updated, nodes, object, pod, pod_deleted,
    pod_updated,
};
use supercargo_framework::{Code, Context, CycleState, LabelSelector, Labels, NodeInfo, Nodes, Status};

use super::*;
use crate::testing::{driver, driver_with_args};

/// A selector of one label.
pub(super) fn selector(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
    let values = values.iter().map(|value| Arc::from(*value)).collect();
    let raw = RawRequirement { key: key.into(), operator: operator.into(), values };
    LabelSelector::parse(&Labels::default(), [raw]).unwrap()
}

/// A term for pods labelled `app=<app>` in the pod's own namespace.
pub(super) fn near(app: &str, key: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(selector("app", "In", &[app])),
        topology_key: key.into(),
        namespaces: [].into(),
        namespace_selector: None,
    }
}

/// The same for namespaces that a selector matches.
fn across(namespaces: LabelSelector, app: &str, key: &str) -> PodAffinityTerm {
    PodAffinityTerm { namespace_selector: Some(namespaces), ..near(app, key) }
}

pub(super) trait Affinity: Sized {
    fn affinity(self, change: impl FnOnce(&mut PodAffinity)) -> Self;

    fn together<const N: usize>(self, terms: [PodAffinityTerm; N]) -> Self {
        self.affinity(|affinity| affinity.required_affinity = terms.into())
    }

    fn apart<const N: usize>(self, terms: [PodAffinityTerm; N]) -> Self {
        self.affinity(|affinity| affinity.required_anti_affinity = terms.into())
    }

    fn likes(self, weight: i32, term: PodAffinityTerm) -> Self {
        let preferred = WeightedPodAffinityTerm { weight, term };
        self.affinity(|affinity| affinity.preferred_affinity = [preferred].into())
    }

    fn dislikes(self, weight: i32, term: PodAffinityTerm) -> Self {
        let preferred = WeightedPodAffinityTerm { weight, term };
        self.affinity(|affinity| affinity.preferred_anti_affinity = [preferred].into())
    }
}

impl Affinity for PodBuilder {
    fn affinity(self, change: impl FnOnce(&mut PodAffinity)) -> Self {
        self.with_spec(|spec| change(spec.pod_affinity.get_or_insert_default()))
    }
}

/// A namespace with one label.
pub(super) fn namespace(name: &str, team: &str) -> Object {
    let labels = [("team", team)].into_iter().collect();
    let body = Body::Namespace(Namespace {});
    Object { labels, ..object(&resources::NAMESPACE, name, body) }
}

pub(super) fn objects(list: impl IntoIterator<Item = Object>) -> Objects {
    let mut objects = Objects::default();
    for object in list {
        objects.insert(Arc::new(object));
    }
    objects
}

fn app(name: &str) -> PodBuilder {
    pod(&format!("{name}-pod")).label("app", name)
}

fn host(name: &str, zone: &str) -> NodeBuilder {
    node(name).label("zone", zone).label("host", name)
}

fn short(status: &Status) -> &'static str {
    match (status.code(), &*status.message()) {
        (Code::Success, _) => "ok",
        (Code::UnschedulableAndUnresolvable, "node(s) didn't match pod affinity rules") => "lonely",
        (Code::Unschedulable, "node(s) didn't match pod anti-affinity rules") => "averse",
        (Code::Unschedulable, "node(s) didn't satisfy existing pods anti-affinity rules") => "unwanted",
        other => panic!("{other:?}"),
    }
}

fn verdicts(pod: PodBuilder, cluster: &Nodes, objects: &Objects) -> String {
    let verdicts = driver(NAME).verdicts(&pod.build(), cluster, objects);
    verdicts.iter().map(short).collect::<Vec<_>>().join(" ")
}

/// Zone 1 with nodes a and b, zone 2 with c, and d without labels. A `db` on a, a `web` on c.
fn three_and_one() -> Nodes {
    nodes([
        node_info(host("a", "z1").build(), [app("db").build()]),
        node_info(host("b", "z1").build(), []),
        node_info(host("c", "z2").build(), [app("web").build()]),
        node_info(node("d").build(), []),
    ])
}

#[test]
fn required_affinity_selects_domains_with_matching_pods() {
    let everywhere = || LabelSelector::default();
    let cases = [
        ("near by zone", pod("p").together([near("db", "zone")]), "ok ok lonely lonely"),
        ("near by host", pod("p").together([near("db", "host")]), "ok lonely lonely lonely"),
        (
            "both by one pod",
            pod("p").together([near("db", "zone"), near("db", "host")]),
            "ok lonely lonely lonely",
        ),
        (
            "no single pod matches all terms",
            pod("p").together([near("db", "zone"), near("web", "zone")]),
            "lonely lonely lonely lonely",
        ),
        ("nobody like that", pod("p").together([near("x", "zone")]), "lonely lonely lonely lonely"),
        ("the first of its kind", app("x").together([near("x", "zone")]), "ok ok ok lonely"),
        (
            "not the first of its group: a matching pod exists",
            app("db").together([near("db", "zone")]),
            "ok ok lonely lonely",
        ),
        (
            "the first of its group, but not for all terms",
            app("x").together([near("x", "zone"), near("y", "zone")]),
            "lonely lonely lonely lonely",
        ),
        (
            "in other namespaces, not its own",
            pod("p").namespace("other").together([near("db", "zone")]),
            "lonely lonely lonely lonely",
        ),
        (
            "in every namespace",
            pod("p").namespace("other").together([across(everywhere(), "db", "zone")]),
            "ok ok lonely lonely",
        ),
        (
            "in a named namespace",
            pod("p")
                .namespace("other")
                .together([PodAffinityTerm { namespaces: ["default".into()].into(), ..near("db", "zone") }]),
            "ok ok lonely lonely",
        ),
        (
            "a term without selector",
            pod("p").together([PodAffinityTerm { selector: None, ..near("db", "zone") }]),
            "lonely lonely lonely lonely",
        ),
    ];
    for (name, pod, expected) in cases {
        assert_eq!(verdicts(pod, &three_and_one(), &Objects::default()), expected, "{name}");
    }
}

#[test]
fn required_anti_affinity_excludes_domains_with_matching_pods() {
    let cases = [
        ("away by zone", pod("p").apart([near("db", "zone")]), "averse averse ok ok"),
        ("away by host", pod("p").apart([near("db", "host")]), "averse ok ok ok"),
        (
            "either is enough",
            pod("p").apart([near("db", "host"), near("web", "zone")]),
            "averse ok averse ok",
        ),
        ("itself does not count", app("x").apart([near("x", "zone")]), "ok ok ok ok"),
        (
            "near one and away from another",
            pod("p").together([near("web", "zone")]).apart([near("web", "host")]),
            "lonely lonely averse lonely",
        ),
    ];
    for (name, pod, expected) in cases {
        assert_eq!(verdicts(pod, &three_and_one(), &Objects::default()), expected, "{name}");
    }
}

#[test]
fn existing_anti_affinity_excludes_the_incoming_pod() {
    let guarded = |guard: PodBuilder| {
        nodes([
            node_info(host("a", "z1").build(), [guard.build()]),
            node_info(host("b", "z1").build(), []),
            node_info(host("c", "z2").build(), []),
            node_info(node("d").build(), []),
        ])
    };
    let guard = || pod("guard").apart([near("db", "zone")]);
    let known = || objects([namespace("default", "blue")]);
    let by_team = |operator, teams| {
        pod("guard").namespace("other").apart([across(selector("team", operator, teams), "db", "host")])
    };
    let cases = [
        ("a pod without affinity of its own", app("db"), guard(), "unwanted unwanted ok ok"),
        ("a pod of another sort", app("web"), guard(), "ok ok ok ok"),
        ("a pod of another namespace", app("db").namespace("other"), guard(), "ok ok ok ok"),
        ("its namespace is selected", app("db"), by_team("In", &["blue"]), "unwanted ok ok ok"),
        ("its namespace is not selected", app("db"), by_team("NotIn", &["blue"]), "ok ok ok ok"),
        (
            "an unknown namespace has no labels",
            app("db").namespace("unknown"),
            by_team("NotIn", &["blue"]),
            "unwanted ok ok ok",
        ),
        (
            "its own affinity is checked first",
            app("db")
                .apart([PodAffinityTerm { selector: Some(LabelSelector::default()), ..near("", "host") }]),
            guard(),
            "averse unwanted ok ok",
        ),
    ];
    for (name, pod, guard, expected) in cases {
        assert_eq!(verdicts(pod, &guarded(guard), &known()), expected, "{name}");
    }
}

#[test]
fn namespace_selectors_select_existing_namespaces_by_label() {
    let known =
        objects([namespace("default", "blue"), namespace("other", "red"), namespace("third", "blue")]);
    let term = |operator, teams| across(selector("team", operator, teams), "db", "zone");
    let from = |namespace, term| app("x").namespace(namespace).apart([term]);
    let cases = [
        ("the team's namespaces", from("third", term("In", &["blue"])), "averse averse ok ok"),
        ("another team's", from("third", term("In", &["red"])), "ok ok ok ok"),
        ("its own is not there by itself", from("default", term("In", &["red"])), "ok ok ok ok"),
        ("all but the team's", from("third", term("NotIn", &["blue"])), "ok ok ok ok"),
        ("all but another team's", from("third", term("NotIn", &["red"])), "averse averse ok ok"),
        ("those without a team", from("third", term("DoesNotExist", &[])), "ok ok ok ok"),
    ];
    for (name, pod, expected) in cases {
        assert_eq!(verdicts(pod, &three_and_one(), &known), expected, "{name}");
    }
    let negative = || from("third", term("NotIn", &["red"]));
    let unknown = verdicts(negative(), &three_and_one(), &Objects::default());
    assert_eq!(unknown, "ok ok ok ok", "a namespace that does not exist matches no selector");
    let every = from("third", across(LabelSelector::default(), "db", "zone"));
    let unknown = verdicts(every, &three_and_one(), &Objects::default());
    assert_eq!(unknown, "averse averse ok ok", "except the empty one");
}

#[test]
fn pods_that_no_term_matches_skip() {
    assert!(matches!(driver(NAME).pre_filter(&app("x").build()), PreFilter::Skip));
    let preferring = app("x").likes(1, near("db", "zone")).build();
    assert!(matches!(driver(NAME).pre_filter(&preferring), PreFilter::Skip));
}

#[test]
fn invalid_terms_reject_the_pod() {
    let reason = "requiredAffinityTerms: \"Near\" is not a valid label selector operator";
    let pod = pod("p").affinity(|affinity| affinity.invalid = Some(reason.into())).build();
    let driver = driver(NAME);
    let status = driver.filter(&pod, &node_info(node("a").build(), []));
    assert_eq!(status, Status::unresolvable(format!("parsing pod: {reason}")));
    let status = driver.pre_score(&pod, &three_and_one());
    assert_eq!(status, Status::error(format!("failed to parse pod: {reason}")));
    let hint = driver.hint(EventResource::Node, ActionType::ADD, &pod, &node_added(node("a").build()));
    assert_eq!(hint, Some(Err(reason.to_owned())));
}

/// Normalised scores of the four nodes with additional pods.
fn scores(args: Value, pod: PodBuilder, more: [(usize, PodBuilder); 1]) -> Option<Vec<i64>> {
    let mut infos: Vec<NodeInfo> = three_and_one().iter().map(|(_, info)| info.clone()).collect();
    for (i, more) in more {
        infos[i].add_pod(Arc::new(more.build()));
    }
    let known = objects([namespace("default", "blue")]);
    driver_with_args(NAME, args).scores_in(&pod.build(), &nodes(infos), &known)
}

#[test]
fn preferences_of_incoming_and_existing_pods_add_up() {
    let none = || [(3, pod("none"))];
    let wanted = || pod("x").likes(10, near("new", "zone"));
    let cases = vec![
        ("no preference", app("new"), none(), None),
        ("the pod's likes", app("new").likes(5, near("db", "zone")), none(), Some([100, 100, 0, 0])),
        ("the pod's dislikes", app("new").dislikes(5, near("db", "zone")), none(), Some([0, 0, 100, 100])),
        (
            "both",
            app("new").likes(4, near("db", "zone")).dislikes(1, near("web", "zone")),
            none(),
            Some([100, 100, 0, 20]),
        ),
        ("the likes of others", app("new"), [(2, wanted())], Some([0, 0, 100, 0])),
        (
            "anti-affinity of others",
            app("new"),
            [(2, pod("x").dislikes(10, near("new", "zone")))],
            Some([100, 100, 0, 100]),
        ),
        (
            "required terms of others add to the score",
            app("new"),
            [(2, pod("x").together([near("new", "zone")]))],
            Some([0, 0, 100, 0]),
        ),
        (
            "preferences of both sides",
            app("new").likes(5, near("db", "zone")),
            [(2, wanted())],
            Some([50, 50, 100, 0]),
        ),
        ("nobody to like", app("new").likes(5, near("x", "zone")), none(), None),
        (
            "required anti-affinity of others does not score",
            app("new"),
            [(2, pod("x").apart([near("new", "zone")]))],
            None,
        ),
        (
            "preferences of a namespace",
            app("new"),
            [(2, pod("x").namespace("o").likes(9, across(selector("team", "In", &["blue"]), "new", "host")))],
            Some([0, 0, 100, 0]),
        ),
    ];
    for (name, pod, more, expected) in cases {
        assert_eq!(scores(Value::Null, pod, more), expected.map(Vec::from), "{name}");
    }
}

#[test]
fn arguments_weigh_or_ignore_terms_of_existing_pods() {
    let requiring = || [(2, pod("x").together([near("new", "zone")]))];
    let weight = |weight| json!({"hardPodAffinityWeight": weight});
    let liking = || app("new").likes(5, near("db", "zone"));
    assert_eq!(scores(weight(0), app("new"), requiring()), None);
    assert_eq!(scores(weight(10), liking(), requiring()), Some(vec![50, 50, 100, 0]));
    let ignoring = || json!({"ignorePreferredTermsOfExistingPods": true});
    let wanting = || [(2, pod("x").likes(10, near("new", "zone")))];
    assert_eq!(scores(ignoring(), app("new"), wanting()), None);
    assert_eq!(
        scores(ignoring(), liking(), wanting()),
        Some(vec![50, 50, 100, 0]),
        "a pod with preferences is scored by those of others, too"
    );
}

#[test]
fn equal_raw_scores_normalise_to_zero() {
    let uniform = nodes(["a", "b"].map(|name| node_info(host(name, "z").build(), [app("db").build()])));
    let liking = app("new").likes(5, near("db", "zone")).build();
    let driver = driver(NAME);
    assert_eq!(driver.raw_scores(&liking, &uniform), Some(vec![10, 10]));
    assert_eq!(driver.scores_in(&liking, &uniform, &Objects::default()), Some(vec![0, 0]));
}

#[test]
fn matching_pod_changes_wake_the_pod() {
    use ActionType as Action;
    let joining = || pod("p").together([near("db", "zone")]).build();
    let avoiding = || pod("p").apart([near("db", "zone")]).build();
    let there = |name: &str| app(name).node("n");
    let gone = |name: &str| pod_deleted(there(name).build());
    let added = |pod: PodBuilder| Change::Pod { old: None, new: Some(Arc::new(pod.build())) };
    let updated = |old: &str, new: &str| {
        pod_updated(app(old).node("n").uid("x").build(), app(new).node("n").uid("x").build())
    };
    let both = || pod("p").together([near("db", "zone"), near("web", "zone")]).build();
    let neither = || pod("p").apart([near("db", "zone"), near("web", "zone")]).build();
    let label = Action::UPDATE_POD_LABEL;
    let cases = [
        ("one it wants near comes", joining(), Action::ADD, added(there("db")), true),
        ("one that it does not care for comes", joining(), Action::ADD, added(there("web")), false),
        ("one comes that only some terms want", both(), Action::ADD, added(there("db")), false),
        ("one it wants near has no node yet", joining(), Action::ADD, added(app("db")), false),
        ("one it wants near is nominated", joining(), Action::ADD, added(app("db").nominated("n")), true),
        ("one it wants away comes", avoiding(), Action::ADD, added(there("db")), false),
        ("one becomes what it wants near", joining(), label, updated("web", "db"), true),
        ("one is that no more", joining(), label, updated("db", "web"), false),
        ("one stays that", joining(), label, updated("db", "db"), false),
        ("one is no more what it wants away", avoiding(), label, updated("db", "web"), true),
        ("one becomes that", avoiding(), label, updated("web", "db"), false),
        ("one of two terms kept it away, and none does now", neither(), label, updated("db", "x"), true),
        ("another term keeps it away now", neither(), label, updated("db", "web"), false),
        ("one of two terms kept it away, and it goes", neither(), Action::DELETE, gone("web"), true),
        ("neither term kept it away, and it goes", neither(), Action::DELETE, gone("x"), false),
        (
            "one of two terms of the other kept the pod away",
            app("web").build(),
            Action::DELETE,
            pod_deleted(there("x").apart([near("db", "zone"), near("web", "zone")]).build()),
            true,
        ),
        ("one it wants away goes", avoiding(), Action::DELETE, pod_deleted(there("db").build()), true),
        ("one it wants near goes", joining(), Action::DELETE, pod_deleted(there("db").build()), false),
        (
            "one that wanted it away goes",
            app("web").build(),
            Action::DELETE,
            pod_deleted(there("x").apart([near("web", "zone")]).build()),
            true,
        ),
        (
            "one that wanted others away goes",
            app("web").build(),
            Action::DELETE,
            pod_deleted(there("x").apart([near("db", "zone")]).build()),
            false,
        ),
        (
            "one that wanted it away goes, without having had a node",
            app("web").build(),
            Action::DELETE,
            pod_deleted(app("x").apart([near("web", "zone")]).build()),
            false,
        ),
        (
            "namespaces are not read",
            pod("p").together([across(selector("team", "In", &["blue"]), "db", "zone")]).build(),
            Action::ADD,
            added(there("db")),
            false,
        ),
    ];
    for (name, waiting, action, change, queues) in cases {
        let known = objects([namespace("default", "blue")]);
        let hint = driver(NAME).hint_in(&known, EventResource::AssignedPod, action, &waiting, &change);
        assert_eq!(hint, Some(Ok(QueueingHint::queue_if(queues))), "{name}");
    }
    let hint = |resource, action| driver(NAME).hint(resource, action, &joining(), &Change::Unspecified);
    assert!(matches!(hint(EventResource::AssignedPod, Action::ADD), Some(Err(_))));
    assert_eq!(hint(EventResource::TargetPod, label), Some(Ok(QueueingHint::Queue)), "its own labels");
    assert_eq!(hint(EventResource::UnscheduledPod, label), None, "those of a pod without a node");
}

#[test]
fn nodes_with_a_changed_domain_wake_the_pod() {
    use ActionType as Action;
    let joining = || pod("p").together([near("db", "zone")]).build();
    let avoiding = || pod("p").apart([near("db", "zone")]).build();
    let zone = |zone| node("n").label("zone", zone).build();
    let bare = || node("n").label("x", "").build();
    let label = Action::UPDATE_NODE_LABEL;
    let cases = [
        ("near: a new node with the key", joining(), Action::ADD, node_added(zone("z1")), true),
        ("near: a new node without it", joining(), Action::ADD, node_added(bare()), false),
        ("near: the key is new", joining(), label, node_updated(bare(), zone("z1")), true),
        ("near: the key is gone", joining(), label, node_updated(zone("z1"), bare()), false),
        ("near: another domain", joining(), label, node_updated(zone("z1"), zone("z2")), true),
        ("near: the same domain", joining(), label, node_updated(zone("z1"), zone("z1")), false),
        ("away: a new node without the key", avoiding(), Action::ADD, node_added(bare()), true),
        ("away: the key is new", avoiding(), label, node_updated(bare(), zone("z1")), false),
        ("away: the key is gone", avoiding(), label, node_updated(zone("z1"), bare()), true),
        ("away: another domain", avoiding(), label, node_updated(zone("z1"), zone("z2")), true),
        ("no term", pod("p").build(), Action::ADD, node_added(zone("z1")), false),
    ];
    for (name, waiting, action, change, queues) in cases {
        let hint = driver(NAME).hint(EventResource::Node, action, &waiting, &change);
        assert_eq!(hint, Some(Ok(QueueingHint::queue_if(queues))), "{name}");
    }
}

#[test]
fn signatures_have_terms_and_labels_that_terms_match() {
    assert_eq!(from_args(&Value::Null, &Features::default()).unwrap().reads(), ["Namespace"]);
    let driver = driver(NAME);
    let none = Objects::default();
    let holding = |other: PodBuilder| nodes([node_info(node("n").build(), [other.build()])]);
    let try_sign = |pod: PodBuilder, cluster: &Nodes| {
        let mut signer = Signer::default();
        driver.sign_in(&pod.build(), cluster, &none, &mut signer).map(|()| signer.finish())
    };
    let sign = |pod, cluster: &Nodes| try_sign(pod, cluster).expect("the plugin signs");
    let bare = Nodes::default();
    assert_eq!(sign(app("a"), &bare), sign(app("a").uid("other").priority(3), &bare));
    assert_ne!(sign(app("a"), &bare), sign(app("a").namespace("other"), &bare));
    assert_eq!(sign(app("a"), &bare), sign(app("b"), &bare), "no term distinguishes them");
    for other in [
        pod("q").together([near("x", "zone")]),
        pod("q").apart([near("x", "zone")]),
        pod("q").likes(1, near("x", "zone")),
        pod("q").dislikes(1, near("x", "zone")),
    ] {
        let cluster = holding(other);
        assert_ne!(sign(app("a"), &cluster), sign(app("b"), &cluster), "a term can");
        assert_eq!(sign(app("a").label("id", "1"), &cluster), sign(app("a").label("id", "2"), &cluster));
        assert_eq!(sign(pod("p").label("id", "1"), &cluster), sign(pod("p"), &cluster));
    }
    let likes = |pod: PodBuilder, weight| pod.likes(weight, near("db", "zone"));
    assert_eq!(sign(likes(app("a"), 1), &bare), sign(likes(app("a"), 1), &bare));
    assert_ne!(sign(likes(app("a"), 1), &bare), sign(likes(app("a"), 2), &bare));
    assert_ne!(
        sign(likes(app("a"), 1), &bare),
        sign(likes(app("b"), 1), &bare),
        "its own term distinguishes them"
    );
    assert_eq!(try_sign(app("a").affinity(|own| own.invalid = Some("bad".into())), &bare), Err(Unsignable));
}

#[test]
fn signatures_change_with_the_epoch_of_keys() {
    let (driver, none) = (driver(NAME), Objects::default());
    let mut cluster = nodes([node_info(node("n").build(), [])]);
    let sign = |cluster: &Nodes| {
        let mut signer = Signer::default();
        driver.sign_in(&app("a").build(), cluster, &none, &mut signer).map(|()| signer.finish())
    };
    let (before, index) = (sign(&cluster), cluster.order()[0]);
    // An older state may lack labels whose keys were added meanwhile and are unused now.
    for i in 0..2000 {
        let term = PodAffinityTerm {
            selector: Some(selector(&format!("key-{i}"), "Exists", &[])),
            ..near("x", "zone")
        };
        let other = Arc::new(pod("q").apart([term]).build());
        cluster.update(index, |info| info.add_pod(other));
        cluster.update(index, |info| info.remove_pod(&"q".into()));
    }
    assert_ne!(sign(&cluster), before);
}

#[test]
fn filter_and_score_without_state_fail() {
    let points = from_args(&Value::Null, &Features::default()).unwrap().extension_points();
    let (cluster, none) = (Nodes::default(), Objects::default());
    let cx = Context::at_rest(&cluster, &none);
    let (state, pod, info) = (CycleState::new(), app("a").build(), node_info(node("n").build(), []));
    let status = points.filter.map(|filter| filter.filter(&cx, &state, &pod, &info));
    let message = "error reading \"PreFilterInterPodAffinity\" from cycleState: not found";
    assert_eq!(status, Some(Status::error(message)));
    let score = points.score.map(|score| score.score(&cx, &state, &pod, &info));
    let message = "failed to read \"PreScoreInterPodAffinity\" from cycleState: not found";
    assert_eq!(score, Some(Err(Status::error(message))));
}
