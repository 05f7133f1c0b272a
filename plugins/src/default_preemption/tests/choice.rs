//! The choice of victims and of the node.

use super::*;

#[test]
fn victims_of_a_node() {
    let cases: Vec<(&str, Vec<PodBuilder>, u32, Vec<&str>)> = vec![
        ("the less important", vec![cpus("low", 2), cpus("mid", 2).priority(1)], 2, vec!["low"]),
        ("the last to start", vec![started(cpus("new", 2), 20), started(cpus("old", 2), 10)], 2, vec!["new"]),
        (
            "not started before started",
            vec![cpus("waits", 2), started(cpus("runs", 2), 10)],
            2,
            vec!["waits"],
        ),
        (
            "the last of those not started",
            vec![cpus("first", 1), cpus("second", 1), cpus("third", 2)],
            1,
            vec!["third"],
        ),
        (
            "of those that started together, the last in order",
            vec![started(cpus("first", 2), 10), started(cpus("second", 2), 10)],
            2,
            vec!["second"],
        ),
        (
            "not a small one that can stay, though it is less important",
            vec![cpus("small", 1), cpus("large", 3).priority(1)],
            3,
            vec!["large"],
        ),
        (
            "all, the most important first",
            vec![cpus("low", 1), cpus("high", 1).priority(2), cpus("mid", 2).priority(1)],
            4,
            vec!["high", "mid", "low"],
        ),
        ("nobody of the same priority", vec![cpus("low", 2), cpus("equal", 2).priority(9)], 2, vec!["low"]),
        ("who terminates already, too", vec![cpus("leaving", 4).terminating()], 4, vec!["leaving"]),
    ];
    for (name, pods, wanted, victims) in cases {
        let answer =
            post_filter(cpus("p", wanted).priority(9), &nodes([four("n", pods)]), &Objects::default());
        assert_eq!(answer.order(), Some(("n", victims)), "{name}");
    }
}

fn web(name: &str, cpu: u32) -> PodBuilder {
    cpus(name, cpu).label("app", "web")
}

#[test]
fn pods_with_budget_violations_are_reprieved_first() {
    let all = |budget: Object| {
        let mut budget = budget;
        if let Body::PodDisruptionBudget(budget) = &mut budget.body {
            budget.selector = Some(LabelSelector::default());
        }
        budget
    };
    let without_selector = || {
        let mut budget = budget("web", 0);
        if let Body::PodDisruptionBudget(budget) = &mut budget.body {
            budget.selector = None;
        }
        budget
    };
    let disrupted = || {
        let mut budget = budget("web", 0);
        if let Body::PodDisruptionBudget(budget) = &mut budget.body {
            budget.disrupted_pods = ["web".into()].into();
        }
        budget
    };
    let elsewhere = || Object { key: "other/budget".into(), ..budget("web", 0) };
    let spared = vec!["free"];
    let not_spared = vec!["web"];
    let cases = [
        ("no budget", vec![], not_spared.clone()),
        ("one that allows nothing", vec![budget("web", 0)], spared.clone()),
        ("one that is overdrawn", vec![budget("web", -1)], spared.clone()),
        ("one that allows one", vec![budget("web", 1)], not_spared.clone()),
        ("one for other pods", vec![budget("db", 0)], not_spared.clone()),
        ("one of another namespace", vec![elsewhere()], not_spared.clone()),
        ("one without a selector", vec![without_selector()], not_spared.clone()),
        ("one with an empty selector", vec![all(budget("web", 0))], not_spared.clone()),
        ("one that has counted the pod already", vec![disrupted()], not_spared),
        (
            "two, one of which allows it",
            vec![budget("web", 1), Object { key: "default/second".into(), ..budget("web", 0) }],
            spared,
        ),
    ];
    for (name, budgets, victims) in cases {
        let cluster = nodes([four("n", [web("web", 2), cpus("free", 2).priority(1)])]);
        let answer = post_filter(cpus("p", 2).priority(9), &cluster, &objects(budgets));
        assert_eq!(answer.order(), Some(("n", victims)), "{name}");
    }
}

#[test]
fn pods_without_labels_match_no_budget() {
    let absent = |key: &str| supercargo_framework::affinity::RawRequirement {
        key: key.into(),
        operator: "DoesNotExist".into(),
        values: Vec::new(),
    };
    let mut budget = budget("web", 0);
    if let Body::PodDisruptionBudget(budget) = &mut budget.body {
        budget.selector = Some(LabelSelector::parse(&Labels::default(), [absent("tier")]).unwrap());
    }
    let cluster = nodes([four("n", [cpus("bare", 2), cpus("labelled", 2).priority(1).label("app", "web")])]);
    let answer = post_filter(cpus("p", 2).priority(9), &cluster, &objects([budget]));
    assert_eq!(answer.order(), Some(("n", vec!["bare"])));
}

#[test]
fn budgets_after_the_first_that_allows_nothing_stay_as_they_are() {
    let mut front = Object { key: "default/a".into(), ..budget("web", 0) };
    if let Body::PodDisruptionBudget(budget) = &mut front.body {
        let tier: Labels = [("tier", "front")].into_iter().collect();
        budget.selector = Some(LabelSelector::parse(&tier, []).unwrap());
    }
    let pods =
        [web("both", 1).label("tier", "front").priority(1), web("one", 1), cpus("free", 1).priority(2)];
    let answer =
        post_filter(cpus("p", 2).priority(9), &nodes([four("n", pods)]), &objects([front, budget("web", 1)]));
    assert_eq!(answer.order(), Some(("n", vec!["one"])));
}

#[test]
fn victims_consume_budgets_in_order_of_importance() {
    let cluster = nodes([four(
        "n",
        [web("low", 1), web("mid", 1).priority(1), web("high", 1).priority(2), cpus("free", 1).priority(3)],
    )]);
    // Two may be evicted: the two most important pods are no violations; the third is, and is
    // reprieved first.
    let answer = post_filter(cpus("p", 3).priority(9), &cluster, &objects([budget("web", 2)]));
    assert_eq!(answer.order(), Some(("n", vec!["free", "high", "mid"])));
}

#[test]
fn a_violated_budget_spares_the_budgets_after_it() {
    let cluster = nodes([four(
        "n",
        [
            web("both", 2).label("tier", "db").priority(2),
            cpus("db", 1).label("tier", "db").priority(1),
            cpus("free", 1).priority(3),
        ],
    )]);
    let of_tier = |key: &str, allowed| {
        let mut budget = Object { key: key.into(), ..budget("web", allowed) };
        if let Body::PodDisruptionBudget(budget) = &mut budget.body {
            budget.selector =
                Some(LabelSelector::parse(&[("tier", "db")].into_iter().collect(), []).unwrap());
        }
        budget
    };
    let victims = |budgets| post_filter(cpus("p", 3).priority(9), &cluster, &objects(budgets)).order;
    let of = |names: [&str; 2]| Some(("n".to_owned(), names.map(str::to_owned).to_vec()));
    // The pod `both` violates the first budget and uses nothing of the second, which then allows
    // `db`.
    assert_eq!(victims([budget("web", 0), of_tier("default/z", 1)]), of(["both", "db"]));
    // Here it uses up the first, so that `db` is protected, too, and is reprieved before `free`.
    assert_eq!(victims([budget("web", 0), of_tier("default/a", 1)]), of(["free", "both"]));
}

#[test]
fn victims_are_ordered_by_importance_whether_protected_or_not() {
    let cluster = nodes([four("n", [cpus("a", 1), web("b", 1), cpus("c", 1), started(web("d", 1), 10)])]);
    let answer = post_filter(cpus("p", 4).priority(9), &cluster, &objects([budget("web", 0)]));
    assert_eq!(answer.order(), Some(("n", vec!["d", "a", "b", "c"])));
}

#[test]
fn the_candidate_with_the_least_harm_is_chosen() {
    let cases: Vec<(&str, [Vec<PodBuilder>; 2])> = vec![
        ("no budget is violated", [vec![web("web", 4)], vec![cpus("free", 4).priority(5)]]),
        (
            "the fewest violations",
            [vec![web("w1", 2), web("w2", 2)], vec![web("w3", 2).priority(5), cpus("free", 2)]],
        ),
        (
            "the least important victim at the top",
            [vec![cpus("a", 4).priority(2)], vec![cpus("b", 2).priority(1), cpus("c", 2).priority(1)]],
        ),
        (
            "the smallest sum",
            [
                vec![cpus("a", 2).priority(2), cpus("b", 2).priority(2)],
                vec![cpus("c", 2).priority(2), cpus("d", 2).priority(1)],
            ],
        ),
        (
            "the fewest victims, though their priorities are negative",
            [vec![cpus("a", 2).priority(-9), cpus("b", 2).priority(-9)], vec![cpus("c", 4).priority(-9)]],
        ),
        ("the victims that started last", [vec![started(cpus("a", 4), 10)], vec![started(cpus("b", 4), 20)]]),
        (
            "the earliest of the most important counts, and not those below",
            [
                vec![started(cpus("a", 2).priority(1), 10), started(cpus("b", 2), 90)],
                vec![started(cpus("c", 2).priority(1), 20), started(cpus("d", 2), 5)],
            ],
        ),
        ("who has not started has started now", [vec![started(cpus("a", 4), 10)], vec![cpus("b", 4)]]),
    ];
    for (name, [other, taken]) in cases {
        for taken_first in [true, false] {
            let (other, taken) = (four("other", other.clone()), four("taken", taken.clone()));
            let cluster = if taken_first { nodes([taken, other]) } else { nodes([other, taken]) };
            let p = cpus("p", 4).priority(9);
            let answer = post_filter(p, &cluster, &objects([budget("web", 0)]));
            assert_eq!(answer.order.unwrap().0, "taken", "{name}");
        }
    }
}
