//! Every view of the demo's page, by mouse and by keyboard, as it changes.

use serde_json::Value;

use super::bed::Door;
use super::browser::Browser;

/// WebDriver's code points.
const TAB: char = '\u{e004}';
const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const RIGHT: char = '\u{e014}';
const DOWN: char = '\u{e015}';

/// The name of a view, its fragment, and a part of its sentence.
const VIEWS: [(&str, &str, &str); 13] = [
    ("overview", "#/overview", "30 nodes hold 194 pods; 6 pods wait"),
    ("memory", "#/overview?by=memory", "30 nodes hold 194 pods; 6 pods wait"),
    ("pending", "#/pending", "6 pods of 6 workloads are pending, for 4 reasons"),
    ("pod", "#/pod/default/giant-1", "default/giant-1 is pending: it fits on none of 30 nodes"),
    ("placed", "#/pod/default/web-02", "default/web-02 is on node"),
    ("decisions", "#/decisions", "The last 200 decisions"),
    ("groups", "#/groups", "group"),
    ("devices", "#/devices", "have devices; "),
    ("node", "#/node/b-01", "b-01 (zone b, pool general) holds"),
    ("what-if", "#/what-if?fail=b-01&copy=default%2Fworker-01%3D12", "get a node"),
    ("compared", "#/what-if?drain=a-02&beside=fail%3Db-01&beside=fail%3Dc-01", "worse off"),
    ("capacity", "#/capacity?by=topology.kubernetes.io%2Fzone", "cannot fail without a pod down"),
    ("health", "#/health", "The scheduler answers; 6 pods in its queue"),
];

#[test]
fn each_view_shows_and_follows_the_cluster() {
    let Some(browser) = Browser::start() else { return };
    let demo = Door::open(&["demo", "--ui", "--speed=8"]);
    browser.look((1280, 800), "light");
    browser.open(&demo.link);
    // Pods arrive while it is open.
    browser.wait_for("h1", "30 nodes hold 194 pods");
    assert_eq!(browser.run("return location.href"), demo.page());
    let show = |(view, fragment, sentence): (&str, &str, &str)| {
        browser.open(&format!("{}{fragment}", demo.page()));
        browser.wait_for("h1", sentence);
        browser.check_reflow(view);
    };
    for (size, scheme) in
        [((1440, 900), "light"), ((1024, 768), "dark"), ((360, 740), "light"), ((360, 740), "dark")]
    {
        browser.look(size, scheme);
        for view in VIEWS {
            show(view);
            browser.check(view.0);
        }
    }
    // 400 % of 1,280 pixels.
    browser.look((320, 256), "light");
    VIEWS.into_iter().for_each(show);
    browser.media(&[("forced-colors", "active")]);
    browser.open(&format!("{}#/overview", demo.page()));
    browser.wait_for("h1", "30 nodes");
    assert_eq!(browser.console(), [] as [String; 0]);
    // The browser warns of reading many pixels.
    browser.check_forced_colours();
    browser.check_tiles();
    // Of the files, nothing comes from elsewhere.
    let origins =
        "return [...new Set(performance.getEntriesByType('resource').map((it) => new URL(it.name).origin))]";
    assert_eq!(browser.run(origins).as_array().unwrap().len(), 1);
}

#[test]
fn a_keyboard_is_enough() {
    let Some(browser) = Browser::start() else { return };
    let demo = Door::open(&["demo", "--ui", "--speed=8"]);
    browser.look((1280, 800), "light");
    browser.open(&demo.link);
    browser.wait_for("h1", "30 nodes hold 194 pods");
    let focused =
        || browser.run("const it = document.activeElement; return it.id || it.className || it.tagName");

    let press = |selector: &str| {
        browser.tab_to(&format!("document.querySelector('{selector}')"));
        browser.keys(&ENTER.to_string());
    };

    // The focus goes through all of it, is visible everywhere, and is nowhere caught.
    let mut stops = Vec::new();
    for _ in 0..60 {
        browser.keys(&TAB.to_string());
        let stop = browser.run(
            "const it = document.activeElement; if (it === document.body) return null;
             const style = getComputedStyle(it);
             return [it.tagName, it.textContent.slice(0, 20), style.outlineStyle !== 'none']",
        );
        if stop.is_null() {
            break;
        }
        assert_eq!(stop[2], true, "the focus is invisible: {stop}");
        stops.push(stop[0].as_str().unwrap().to_owned());
    }
    for tag in ["A", "BUTTON", "INPUT", "CANVAS", "SUMMARY"] {
        assert!(stops.iter().any(|stop| stop == tag), "{tag} is not in {stops:?}");
    }
    assert!(stops.len() < 60, "{stops:?}");

    // Search.
    browser.find();
    assert_eq!(browser.run("return document.activeElement.type"), "search");
    browser.keys("giant");
    browser.wait_for("#found", "default/giant-1");
    browser.keys(&format!("{DOWN}{ENTER}"));
    browser.wait_for("h1", "default/giant-1 is pending");
    assert_eq!(focused(), "main");
    browser.wait_for(".fixes", "request cpu");
    browser.wait_for(".facts", "Unschedulable");
    browser.wait_for(".as-of", "As of ");
    browser.find();
    browser.keys("giant");
    browser.wait_for("#search [role=status]", "1 result");
    // Enter opens nothing that was found for another text, or that is hidden.
    browser.keys(&format!("x{ENTER}"));
    browser.wait_for("#found", "No pods or nodes match");
    browser.keys(&format!("{ESCAPE}{ENTER}"));
    assert_eq!(browser.run("return document.getElementById('found').hidden"), true);
    assert_eq!(browser.run("return location.hash"), "#/pod/default/giant-1");

    // A tile.
    browser.open(&format!("{}#/overview", demo.page()));
    browser.wait_for("h1", "30 nodes");
    browser.tab_to("document.querySelectorAll('canvas')[2]");
    browser.wait_for(".readout", "a-01");
    browser.keys(&RIGHT.to_string());
    browser.wait_for(".readout", "a-02");
    browser.keys(&ENTER.to_string());
    browser.wait_for("h1", "a-02 (zone a, pool general) holds");

    // What if by its link, and one more change by the form.
    press(".actions a");
    browser.wait_for("h1", "worse off");
    browser.wait_for(".chips", "Drain a-02");
    browser.tab_to("document.querySelector('input[name=target]')");
    browser.keys(&format!("a-03{ENTER}"));
    browser.wait_for(".chips", "Drain a-03");
    browser.wait_for("table", "a-03");
    press(".chips a");
    let chips = || browser.run("return document.querySelectorAll('.chips li').length");
    browser.wait_for("h1", "worse off");
    assert_eq!(chips(), 1);

    // Another verb by keyboard, and two runs beside each other.
    press(".actions a");
    browser.wait_for("h1", "Choose what changes");
    browser.tab_to("document.querySelector('input[name=verb]')");
    browser.keys(&RIGHT.to_string());
    browser.tab_to("document.querySelector('input[name=target]')");
    browser.keys(&format!("b-01{ENTER}"));
    browser.wait_for(".chips", "Fail b-01");
    browser.wait_for("table", "Runs beside each other");
    browser.wait_for("tbody tr:nth-child(1)", "worse off");
    browser.wait_for("tbody tr:nth-child(2)", "worse off");
    press("tbody tr:nth-child(2) .actions a");
    browser.wait_for(".chips", "Drain a-03");
    browser.wait_for("tbody tr:nth-child(2)", "Fail b-014");
    press("tbody tr:nth-child(2) .actions a:last-child");
    browser.wait_for(".actions", "Keep this run");
    browser.wait_for("main .table th[scope=col]", "Pod");

    // Decisions, which stay while the page is paused.
    browser.open(&format!("{}#/decisions", demo.page()));
    browser.wait_for("h1", "The last 200 decisions");
    browser.tab_back_to("document.getElementById('pause')");
    browser.keys(" ");
    browser.wait_for("#state", "paused");
    press(".segments a:nth-child(3)");
    browser.wait_for("tbody .wide", "nodes are available");
    browser.wait_for(".segments [aria-current]", "Failed");
    assert_eq!(browser.text("#pause"), "Continue");
    press("tbody a");
    browser.wait_for(".lanes", "Rejected");
    browser.wait_for("article > section", "attempt 1 failed");

    // Other weights choose another node, or not.
    browser.find();
    browser.keys("web-02");
    browser.wait_for("#found:not([hidden])", "default/web-02");
    browser.keys(&ENTER.to_string());
    browser.wait_for("h1", "default/web-02 is on node");
    browser.wait_for(".key[role=status]", "c-02");
    browser.tab_to("document.querySelector('input[type=range]')");
    browser.keys(&RIGHT.to_string());
    browser.wait_for(".key[role=status]", "With these weights, ");
    browser.check("weights");
    // Another node beside it leaves the control in place.
    browser.tab_to("document.querySelectorAll('select')[1]");
    browser.keys(&DOWN.to_string());
    browser.keys(&ENTER.to_string());
    assert_eq!(focused(), "SELECT");
    browser.open(&format!("{}#/what-if?drain=a-03", demo.page()));
    browser.wait_for(".chips", "Drain a-03");
    browser.wait_for("h1", "worse off");

    // Colours by hand, and the same as JSON.
    browser.tab_back_to("document.getElementById('theme')");
    browser.keys(&format!("{ENTER}{ENTER}"));
    assert_eq!(browser.run("return document.documentElement.dataset.theme"), "dark");
    browser.check("dark by hand");
    press(".elsewhere summary");
    browser.wait_for(".elsewhere pre", "insight.supercargo.dev/v1alpha1");
    // No command asks a demo.
    assert_eq!(browser.run("return document.querySelector('.elsewhere code')"), Value::Null);
    assert_eq!(browser.console(), [] as [String; 0]);
}
