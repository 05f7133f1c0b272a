//! A browser that a test drives: a small WebDriver client over plain HTTP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use supercargo_controlplane::ChildProcess;

use crate::support::{self, eventually};

/// The variable that demands a browser, as in CI. Otherwise a machine without one skips the suite.
const DEMAND: &str = "SUPERCARGO_REQUIRE_BROWSER";
/// The variable with the file `axe.min.js` of the npm package axe-core.
const AXE: &str = "SUPERCARGO_AXE";
/// The browser of the tests has these fonts only, so that its pictures are the same everywhere.
const FONTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/fonts.conf");
/// How long a page may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// WebDriver's code points.
const TAB: char = '\u{e004}';
const SHIFT: char = '\u{e008}';
const CONTROL: char = '\u{e009}';
/// The most elements of a view that take the focus.
const MOST_STOPS: usize = 300;
/// Milliseconds that a script or the loading of a page may take. By default they are 30,000.
const LIMIT: u32 = 70_000;
/// The rules of WCAG 2.2, levels A and AA, in axe-core.
const WCAG: [&str; 5] = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
/// One browser at a time: each needs half a gigabyte.
static ONE: Mutex<()> = Mutex::new(());

/// A headless browser with one tab. It ends with this value.
pub(super) struct Browser {
    port: u16,
    session: String,
    /// The rules for accessibility: a script.
    axe: Option<String>,
    _driver: ChildProcess,
    _one: MutexGuard<'static, ()>,
}

impl Browser {
    /// Starts a browser. Without one it says what to install: `None`, or a panic if a browser is
    /// demanded.
    pub(super) fn start() -> Option<Self> {
        let one = ONE.lock();
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stderr(Stdio::null());
        command.env("FONTCONFIG_FILE", FONTS).env("TZ", "UTC");
        // A pipe of its own: the output goes on after the first lines.
        let (mut output, input) = std::io::pipe().unwrap();
        command.stdout(input);
        let driver = match ChildProcess::spawn(&mut command, None) {
            Ok(driver) => driver,
            Err(error) => {
                skip(&format!(
                    "no browser: install the Debian packages chromium and chromium-driver: {error:#}"
                ));
                return None;
            }
        };
        drop(command);
        let port = port(&mut output);
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let mut browser = Self { port, session: String::new(), axe: axe(), _driver: driver, _one: one };
        let mut args = vec![
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-lcd-text",
            "--font-render-hinting=none",
            "--force-color-profile=srgb",
        ];
        if rustix::process::getuid().is_root() {
            // Chromium refuses to run as root otherwise, as in a container.
            args.push("--no-sandbox");
        }
        let options = json!({
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": LIMIT, "pageLoad": LIMIT },
        });
        let opened = browser.send("POST", "/session", &json!({ "capabilities": { "alwaysMatch": options } }));
        browser.session = format!("/session/{}", opened["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// Opens a page.
    pub(super) fn open(&self, url: &str) {
        self.call("/url", &json!({ "url": url }));
    }

    /// Runs a script: the body of a function.
    pub(super) fn run(&self, script: &str) -> Value {
        self.call("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The violations that axe-core finds; none without it. The content security policy forbids
    /// scripts of others on the page, but not those of the driver.
    pub(super) fn violations(&self) -> Vec<Value> {
        let Some(axe) = &self.axe else { return Vec::new() };
        if self.run("return typeof axe === 'undefined'") == true {
            self.run(axe);
        }
        let run = "const { violations } = await axe.run(document, options);
            return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`));";
        let options = json!({ "runOnly": WCAG, "resultTypes": ["violations"], "iframes": false });
        let found = self.run(&format!("const options = {options}; return (async () => {{ {run} }})()"));
        found.as_array().unwrap().clone()
    }

    /// The text of an element; empty if there is none.
    pub(super) fn text(&self, selector: &str) -> String {
        let text =
            self.run(&format!("return document.querySelector({})?.textContent ?? ''", json!(selector)));
        text.as_str().unwrap().to_owned()
    }

    /// Waits until the text of an element has this part, and returns the text.
    pub(super) fn wait_for(&self, selector: &str, part: &str) -> String {
        let found = || Some(self.text(selector)).filter(|text| text.contains(part));
        let state = || format!("{selector}: {:?}; {}", self.text(selector), self.text("body"));
        eventually(&format!("{part:?} in {selector}"), PATIENCE, found, state)
    }

    /// Clicks the first element of this selector.
    pub(super) fn click(&self, selector: &str) {
        let found = self.call("/element", &json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.call(&format!("/element/{id}/click"), &json!({}));
    }

    /// Types keys, as a person does. Special keys are WebDriver's code points.
    pub(super) fn keys(&self, keys: &str) {
        self.strokes(keys.chars().flat_map(|key| [("keyDown", key), ("keyUp", key)]));
    }

    fn strokes(&self, strokes: impl IntoIterator<Item = (&'static str, char)>) {
        let stroke = |(kind, key): (_, char)| json!({ "type": kind, "value": key.to_string() });
        let strokes: Vec<Value> = strokes.into_iter().map(stroke).collect();
        self.call(
            "/actions",
            &json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] }),
        );
    }

    /// Presses Tab until this element has the focus. It is an expression of a script.
    pub(super) fn tab_to(&self, element: &str) {
        self.press_until(element, &[("keyDown", TAB), ("keyUp", TAB)]);
    }

    /// The same with Shift, which goes back.
    pub(super) fn tab_back_to(&self, element: &str) {
        let strokes = [("keyDown", SHIFT), ("keyDown", TAB), ("keyUp", TAB), ("keyUp", SHIFT)];
        self.press_until(element, &strokes);
    }

    fn press_until(&self, element: &str, strokes: &[(&'static str, char)]) {
        let is_there = format!("return document.activeElement === ({element})");
        for _ in 0..MOST_STOPS {
            if self.run(&is_there) == true {
                return;
            }
            self.strokes(strokes.iter().copied());
        }
        panic!("Tab does not reach {element} in {}", self.text("body"));
    }

    /// Goes to the search box by its shortcut.
    pub(super) fn find(&self) {
        self.strokes([("keyDown", CONTROL), ("keyDown", 'k'), ("keyUp", 'k'), ("keyUp", CONTROL)]);
    }

    /// Sets the size of the window in CSS pixels, and the colour scheme.
    pub(super) fn look(&self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        self.media(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]);
    }

    /// Sets media features.
    pub(super) fn media(&self, features: &[(&str, &str)]) {
        let features: Vec<Value> =
            features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Sends a command of the DevTools protocol.
    pub(super) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.call("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// A picture of the window.
    pub(super) fn webp(&self, quality: u32) -> Vec<u8> {
        let format = json!({ "format": "webp", "quality": quality });
        let picture = self.devtools("Page.captureScreenshot", &format);
        STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// Keeps scrollbars out of pictures.
    pub(super) fn hide_scrollbars(&self) {
        self.devtools("Emulation.setScrollbarsHidden", &json!({ "hidden": true }));
    }

    /// What the console says since the last call: errors, and violations of the content security
    /// policy among them.
    pub(super) fn console(&self) -> Vec<String> {
        let lines = self.call("/se/log", &json!({ "type": "browser" }));
        let line = |line: &Value| {
            format!("{} {}", line["level"].as_str().unwrap(), line["message"].as_str().unwrap())
        };
        lines.as_array().unwrap().iter().map(line).collect()
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        self.send("POST", &format!("{}{path}", self.session), body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = send(self.port, method, path, body);
        let mut answer = answer.unwrap_or_else(|error| panic!("chromedriver: {method} {path}: {error}"));
        assert!(answer["value"]["error"].is_null(), "{method} {path}: {:#}", answer["value"]);
        answer["value"].take()
    }
}

/// Ends the browser; the driver ends with its process.
impl Drop for Browser {
    fn drop(&mut self) {
        let _ = send(self.port, "DELETE", &self.session, &Value::Null);
    }
}

/// Says what is missing. Panics if it is demanded.
pub(super) fn skip(advice: &str) {
    assert!(std::env::var_os(DEMAND).is_none_or(|value| value != "1"), "{advice}");
    // Not by a macro: the harness shows nothing of a test that passes.
    let _ = writeln!(std::io::stderr(), "skipped: {advice}");
}

/// The script of axe-core; without it, all other checks run.
fn axe() -> Option<String> {
    let Some(file) = std::env::var_os(AXE) else {
        skip(&format!("no axe-core: `npm install axe-core`, and set {AXE} to the path of its axe.min.js"));
        return None;
    };
    Some(std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{AXE}={}: {error}", file.display())))
}

/// The port in the driver's first lines.
fn port(output: &mut impl std::io::Read) -> u16 {
    for line in BufReader::new(output).lines() {
        let line = line.unwrap();
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return port.trim_end_matches('.').parse().unwrap();
        }
    }
    panic!("chromedriver ended before it said its port");
}

fn send(port: u16, method: &str, path: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(format!("http://127.0.0.1:{port}{path}"));
    let request = request.header("content-type", "application/json").body(body.into())?;
    let (.., answer) = support::http::send(request)?;
    Ok(serde_json::from_str(&answer).unwrap_or_default())
}

#[test]
fn axe_core_notices_a_button_without_a_name() {
    let Some(browser) = Browser::start() else { return };
    browser.open("about:blank");
    browser.run("document.body.append(document.createElement('button'))");
    let found = browser.violations();
    let is_found = found.iter().any(|it| it.as_str().unwrap().starts_with("button-name: "));
    assert_eq!(is_found, browser.axe.is_some(), "{found:?}");
}
