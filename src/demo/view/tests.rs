use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::pod::PodCondition;
use supercargo_framework::testing::{node, pod};

use super::super::model::tests::{claim, slice};
use super::*;

fn filled(nodes: usize, zones: usize, pods: usize) -> Model {
    let mut model = Model::new("supercargo");
    for number in 0..nodes {
        let zone = char::from(b'a' + (number % zones) as u8);
        let node = node(&format!("{zone}-{:02}", number / zones + 1)).zone(&zone.to_string());
        let node = node.allocatable("cpu", "8").allocatable("memory", "32Gi").build();
        model.update_node(Duration::ZERO, &Arc::new(node), true);
    }
    for number in 0..pods {
        let at = Duration::from_millis(40 * number as u64);
        let pod = |name: &str| pod(name).namespace("default").scheduler("supercargo").request("cpu", "500m");
        let name = format!("web-{number:03}");
        model.update_pod(at, &Arc::new(pod(&name).build()));
        let decided = if number % 7 == 3 {
            pod(&name).with(|pod| {
                pod.status.pod_scheduled = Some(PodCondition {
                    status: "False".into(),
                    reason: "Unschedulable".into(),
                    message: format!(
                        "0/{nodes} nodes are available: {} node(s) didn't have free ports for the requested pod \
                         ports, {nodes} Insufficient example.com/gpu.",
                        number % 3
                    )
                    .into(),
                    observed_generation: None,
                    last_transition: None,
                });
            })
        } else {
            let zone = char::from(b'a' + (number % zones) as u8);
            pod(&name).node(&format!("{zone}-{:02}", number % nodes.div_ceil(zones) + 1))
        };
        model.update_pod(at + Duration::from_millis(2), &Arc::new(decided.build()));
    }
    model
}

fn drawn(model: &Model, width: usize, height: usize) -> Canvas {
    let mut canvas = Canvas::new(width, height);
    let header = Header {
        elapsed: Duration::from_millis(4230),
        title: "seed 1, 30 nodes in 3 zones",
        phase: "pods arrive",
        expected: 200,
    };
    draw(&mut canvas, model, &header);
    canvas
}

#[test]
fn everything_fits_on_80_columns() {
    let canvas = drawn(&filled(30, 3, 60), 80, 24);
    let text = canvas.text();
    assert_eq!(
        canvas.row(0),
        format!("{:<61}{}", "supercargo demo  seed 1, 30 nodes in 3 zones", " pods arrive  4.2 s")
    );
    assert!(
        canvas.row(1).starts_with("60 of 200 pods   51 bound   9 waiting   0 gated   0 undecided"),
        "{text}"
    );
    assert!(text.contains("cpu ") && text.contains("memory "), "{text}");
    for number in 1..=10 {
        for zone in ["a", "b", "c"] {
            assert!(text.contains(&format!("{zone}-{number:02} ")), "{zone}-{number:02}:\n{text}");
        }
    }
    assert!(
        text.contains("zone a") && text.contains("why pods wait") && text.contains("decisions"),
        "{text}"
    );
    assert!(text.contains("   3  web-003 …: 0 node(s) didn't have free ports"), "{text}");
    let latest: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("decisions")).skip(1).collect();
    assert!(latest[0].starts_with("   2.4 s  web-059 waits: 2 node(s) didn't have free"), "{text}");
    assert_eq!(latest[1], "   2.3 s  web-058 → b-09  2 ms");
}

#[test]
fn devices_stand_beside_cpu_and_memory() {
    let mut model = filled(30, 3, 60);
    assert!(!drawn(&model, 80, 24).text().contains("devices"), "there are none");
    model.replace_object(None, Some(&slice(16)));
    model.replace_object(None, Some(&claim(12, false)));
    let canvas = drawn(&model, 80, 24);
    assert!(canvas.row(2).starts_with("cpu ") && canvas.row(2).ends_with(" 12 of 16"), "{}", canvas.text());
    model.replace_object(None, Some(&claim(4, false)));
    let canvas = drawn(&model, 80, 24);
    let place = canvas.row(2).find("devices").expect("it is there");
    let column = canvas.row(2)[..place].chars().count();
    assert_eq!(canvas.style(column, 2), Style::Red, "none is left");
}

#[test]
fn small_terminal_shows_counts_and_truncates_nodes() {
    let canvas = drawn(&filled(30, 3, 60), 40, 10);
    let text = canvas.text();
    assert!(text.contains("60 of 200 pods   51 bound   9 waiting"), "{text}");
    assert!(text.contains("… 25 more") && !text.contains("zone"), "want truncated nodes:\n{text}");
    assert!(text.contains(" → "), "{text}");
}

#[test]
fn large_terminal_shows_full_reasons_beside_decisions() {
    let canvas = drawn(&filled(30, 3, 60), 200, 60);
    let text = canvas.text();
    let titles = text.lines().find(|line| line.starts_with("why pods wait")).unwrap();
    assert!(titles.contains("decisions"), "{text}");
    assert_eq!(
        text.matches("example.com/gpu. ").count() + text.matches("example.com/gpu.\n").count(),
        3,
        "{text}"
    );
    assert!(!text.contains("more reasons"), "{text}");
    assert!(text.lines().filter(|line| line.contains(" → ")).count() > 10, "{text}");
}

#[test]
fn full_nodes_are_red_and_cordoned_nodes_dim() {
    let mut model = Model::new("supercargo");
    for name in ["full", "off"] {
        let node = node(name).allocatable("cpu", "1");
        let node = if name == "off" { node.unschedulable() } else { node };
        model.update_node(Duration::ZERO, &Arc::new(node.build()), true);
    }
    let pod = pod("p").namespace("default").scheduler("supercargo").request("cpu", "1").node("full").build();
    model.update_pod(Duration::ZERO, &Arc::new(pod));
    let canvas = drawn(&model, 80, 24);
    let row = |name: &str| (0..24).find(|y| canvas.row(*y).starts_with(name)).unwrap();
    assert_eq!((canvas.style(0, row("full ")), canvas.style(5, row("full "))), (Style::Plain, Style::Red));
    assert_eq!((canvas.style(0, row("off ")), canvas.style(5, row("off "))), (Style::Dim, Style::Green));
}

#[test]
fn empty_model_can_be_drawn() {
    let text = drawn(&Model::new("supercargo"), 80, 24).text();
    assert!(text.contains("0 of 200 pods") && text.contains("no pod waits"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn picture_has_the_size_of_any_terminal(
        width in 0_usize..220, height in 0_usize..70, nodes in 0_usize..80, zones in 1_usize..6, pods in 0_usize..40,
    ) {
        let canvas = drawn(&filled(nodes, zones, if nodes == 0 { 0 } else { pods }), width, height);
        prop_assert_eq!((canvas.width(), canvas.height()), (width, height));
    }
}
