//! What would have become of a recorded run with another configuration, as a model says.

use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_scheduler::record::{ModelledPod, ModelledRun, Placement};

use super::{Page, Width, document, page};
use crate::timeline::duration;
use crate::words::count;

/// For people.
pub fn modelled_run(run: &ModelledRun, width: Width) -> String {
    page(width, |page| write(page, run))
}

fn write(page: &mut Page, run: &ModelledRun) -> std::fmt::Result {
    page.wrapped("", &headline(run))?;
    let (elsewhere, waiting) = parts(run);
    if !elsewhere.is_empty() {
        write_titles(page, "POD")?;
        for pod in elsewhere.iter().take(page.rows(elsewhere.len())) {
            page.places(&pod.pod.to_string(), place(pod.recorded.as_ref()), place(pod.modelled.as_ref()))?;
        }
        write_more(page, elsewhere.len(), "pod")?;
    }
    if !waiting.is_empty() {
        write_titles(page, "PENDING FOR")?;
        for pod in waiting.iter().take(page.rows(waiting.len())) {
            let (recorded, modelled) = (waited(pod.recorded.as_ref()), waited(pod.modelled.as_ref()));
            page.places(&pod.pod.to_string(), &recorded, &modelled)?;
        }
        write_more(page, waiting.len(), "pod")?;
    }
    write_totals(page, run)?;
    let Some((step, time)) = run.diverged else { return Ok(()) };
    writeln!(page)?;
    let note = format!("The first difference is in step {step}, at {}.", time.to_rfc3339());
    page.wrapped("", &note)?;
    if run.with_volumes > 0 {
        let pods = count(run.with_volumes, "pod");
        let note = format!("{pods} with volumes: these are bound as recorded.");
        page.wrapped("", &note)?;
    }
    Ok(())
}

fn write_titles(page: &mut Page, first: &str) -> std::fmt::Result {
    writeln!(page)?;
    page.places(first, "AS RECORDED", "MODELLED")
}

fn write_more(page: &mut Page, all: usize, noun: &str) -> std::fmt::Result {
    let Some(more) = page.hidden(all) else { return Ok(()) };
    writeln!(page, "and {}; --output=wide lists all", count(more, &format!("more {noun}")))
}

/// The pods that end elsewhere, and those that only wait for another time.
fn parts(run: &ModelledRun) -> (Vec<&ModelledPod>, Vec<&ModelledPod>) {
    run.outcomes.iter().partition(|pod| pod.is_elsewhere())
}

fn headline(run: &ModelledRun) -> String {
    if run.diverged.is_none() {
        return format!("Modelled: all as recorded, {}", count(run.pods, "pod"));
    }
    let number = |is: fn(&ModelledPod) -> bool| run.outcomes.iter().filter(|pod| is(pod)).count();
    let parts = [
        (number(|it| it.is_elsewhere() && it.recorded.is_some() && it.modelled.is_some()), "on another node"),
        (number(|it| it.recorded.is_none()), "placed only in the model"),
        (number(|it| it.modelled.is_none()), "placed only as recorded"),
        (number(|it| it.wait_difference().0.is_some()), "pending longer"),
        (number(|it| it.wait_difference().1.is_some()), "pending shorter"),
    ];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, what)| format!("{number} {what}")).collect();
    let pods = count(run.pods, "pod");
    if parts.is_empty() {
        format!("Modelled: every pod ends as recorded, of {pods}")
    } else {
        format!("Modelled: of {pods}, {}", parts.join(", "))
    }
}

fn place(placement: Option<&Placement>) -> &str {
    placement.map_or("not placed", |it| &it.node)
}

fn waited(placement: Option<&Placement>) -> String {
    placement.map(|it| duration(it.waited)).unwrap_or_default()
}

fn write_totals(page: &mut Page, run: &ModelledRun) -> std::fmt::Result {
    write_titles(page, "")?;
    for (name, (recorded, modelled)) in
        [("pods placed", run.placed), ("pods evicted", run.evicted), ("nodes with pods", run.used_nodes)]
    {
        page.places(name, &recorded.to_string(), &modelled.to_string())?;
    }
    for usage in &run.usage {
        let average = usage.average.map(|average| ("on average", average));
        for (when, (recorded, modelled)) in average.into_iter().chain([("at the end", usage.last)]) {
            let name = format!("{} requested {when}", usage.resource);
            page.places(&name, &percent(recorded), &percent(modelled))?;
        }
    }
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// For programs.
pub fn modelled_run_json(run: &ModelledRun) -> String {
    let pair = |(recorded, modelled): (usize, usize)| json!({ "recorded": recorded, "modelled": modelled });
    let shares = |(recorded, modelled): (f64, f64)| json!({ "recorded": recorded, "modelled": modelled });
    let usage = run.usage.iter().map(|usage| {
        json!({
            "resource": usage.resource, "average": usage.average.map(shares), "end": shares(usage.last),
        })
    });
    let diverged = run.diverged.map(|(step, time)| json!({ "step": step, "time": time.to_rfc3339() }));
    let fields = json!({
        "modelled": true,
        "steps": run.steps,
        "firstDifference": diverged,
        "pods": run.pods,
        "placed": pair(run.placed),
        "evicted": pair(run.evicted),
        "nodesWithPods": pair(run.used_nodes),
        "podsWithVolumes": run.with_volumes,
        "usage": usage.collect::<Vec<_>>(),
        "differences": run.outcomes.iter().map(pod_json).collect::<Vec<_>>(),
    });
    document("ModelledRun", fields)
}

fn pod_json(ModelledPod { pod, recorded, modelled }: &ModelledPod) -> Value {
    let placement = |placement: &Option<Placement>| {
        placement.as_ref().map(|it| json!({ "node": it.node, "pendingSeconds": it.waited.as_secs_f64() }))
    };
    json!({
        "namespace": pod.namespace, "name": pod.name,
        "recorded": placement(recorded), "modelled": placement(modelled),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use supercargo_framework::Timestamp;
    use supercargo_framework::testing::pod;
    use supercargo_scheduler::record::Usage;

    use super::*;

    fn on(node: &str, seconds: u64) -> Placement {
        Placement { node: node.into(), waited: Duration::from_secs(seconds) }
    }

    fn outcome(name: &str, recorded: Option<Placement>, modelled: Option<Placement>) -> ModelledPod {
        ModelledPod { pod: pod(name).build().key(), recorded, modelled }
    }

    fn run() -> ModelledRun {
        let usage = Usage { resource: "cpu".into(), average: Some((0.5, 0.25)), last: (1.0, 0.125) };
        ModelledRun {
            diverged: Some((7, Timestamp(0))),
            pods: 9,
            placed: (5, 6),
            outcomes: vec![
                outcome("moved", Some(on("a", 1)), Some(on("b", 1))),
                outcome("gained", None, Some(on(&"x".repeat(99), 1))),
                outcome("lost", Some(on("a", 1)), None),
                outcome("late", Some(on("a", 1)), Some(on("a", 90))),
                outcome("early", Some(on("a", 7200)), Some(on("a", 1))),
            ],
            usage: vec![usage],
            with_volumes: 1,
            ..ModelledRun::default()
        }
    }

    #[test]
    fn the_first_line_says_modelled_and_how_much_differs() {
        let first_line =
            |run: &ModelledRun| modelled_run(run, Width::Usual).lines().next().unwrap().to_owned();
        let same = ModelledRun { pods: 3, ..ModelledRun::default() };
        assert_eq!(first_line(&same), "Modelled: all as recorded, 3 pods");
        let alike = ModelledRun { diverged: run().diverged, ..same };
        assert_eq!(first_line(&alike), "Modelled: every pod ends as recorded, of 3 pods");
        let text = modelled_run(&run(), Width::Usual);
        assert!(
            text.starts_with(
                "Modelled: of 9 pods, 1 on another node, 1 placed only in the model, 1 placed\n\
                 only as recorded, 1 pending longer, 1 pending shorter\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn rows_fit_a_terminal() {
        let text = modelled_run(&run(), Width::Usual);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in [
            "default/moved                         a                    b\n",
            "default/lost                          a                    not placed\n",
            "default/late                          1.0s                 1m30s\n",
            "default/early                         2h00m                1.0s\n",
            "pods placed                           5                    6\n",
            "cpu requested at the end              100.0%               12.5%\n",
            "The first difference is in step 7, at 1970-01-01T00:00:00Z.\n",
            "1 pod with volumes",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn programs_read_that_it_is_modelled_and_each_pod() {
        let object: Value = serde_json::from_str(&modelled_run_json(&run())).unwrap();
        assert_eq!((&object["modelled"], &object["pods"]), (&json!(true), &json!(9)));
        assert_eq!(object["firstDifference"]["step"], json!(7));
        let first = &object["differences"][0];
        assert_eq!((&first["recorded"]["node"], &first["modelled"]["node"]), (&json!("a"), &json!("b")));
        assert_eq!(object["usage"][0]["average"]["modelled"], json!(0.25));
    }
}
