//! The recorded terminal that README shows: docs/demo.svg.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::PATIENCE;
use super::terminal::{Cell, Screen, Terminal};
use crate::page::REWRITE;
use crate::support::eventually;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/demo.svg");
const COLUMNS: u16 = 100;
const ROWS: u16 = 36;
/// The time between two frames, and how long the last one is shown.
const FRAME: Duration = Duration::from_millis(450);
const LAST_FRAME: Duration = Duration::from_secs(5);
/// The size of a cell, and the margin.
const WIDTH: f64 = 7.8;
const HEIGHT: f64 = 17.0;
const MARGIN: f64 = 12.0;

/// What the terminal shows, again and again until the demo ends.
fn frames() -> Vec<Screen> {
    let mut terminal = Terminal::start(COLUMNS, ROWS, &["demo"]);
    let mut frames = Vec::new();
    let mut shown = 0;
    let ended = || {
        let sent = terminal.sent();
        let (sent, has_ended) = match sent.rfind("\x1b[?1049l") {
            Some(end) => (sent[..end].to_owned(), true),
            None => (sent, false),
        };
        if sent.len() > shown {
            shown = sent.len();
            let mut screen = Screen::new((COLUMNS.into(), ROWS.into()));
            screen.take(&sent);
            frames.push(screen);
        }
        // Not a wait: the time of a frame.
        std::thread::sleep(FRAME);
        has_ended.then_some(())
    };
    eventually("the demo ends", PATIENCE, ended, String::new);
    assert!(terminal.wait().success());
    frames
}

/// An animation of the frames; the last one, if nothing may move.
fn svg(frames: &[Screen]) -> String {
    let (width, height) =
        (f64::from(COLUMNS) * WIDTH + 2.0 * MARGIN, f64::from(ROWS) * HEIGHT + 2.0 * MARGIN);
    let last = frames.len() - 1;
    let moving = FRAME * last as u32;
    let all = moving + LAST_FRAME;
    let part = 100.0 * moving.as_secs_f64() / all.as_secs_f64();
    let end = height * last as f64;
    let mut rows: BTreeMap<&[Cell], usize> = BTreeMap::new();
    let mut film = String::new();
    for (number, frame) in frames.iter().enumerate() {
        for (y, row) in
            frame.rows().iter().enumerate().filter(|(_, row)| row.iter().any(|(it, _)| *it != ' '))
        {
            let known = rows.len();
            let id = *rows.entry(row).or_insert(known);
            let y = height * number as f64 + MARGIN + HEIGHT * y as f64;
            writeln!(film, "<use href=\"#r{id}\" y=\"{y:.0}\"/>").unwrap();
        }
    }
    let mut shapes: Vec<(usize, String)> = rows.iter().map(|(row, id)| (*id, shape(row))).collect();
    shapes.sort();
    let shapes = shapes.iter().fold(String::new(), |mut text, (id, shape)| {
        writeln!(text, "<g id=\"r{id}\">{shape}</g>").unwrap();
        text
    });
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"t\" \
         aria-describedby=\"d\">\n<title id=\"t\">supercargo demo on a terminal</title>\n<desc id=\"d\">{}</desc>\n\
         <style>\n\
         text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, \"DejaVu Sans Mono\", monospace; white-space: pre; fill: #e9e9e5 }}\n\
         .s1 {{ font-weight: 700 }} .s2 {{ fill: #9aa3ae }} .s31 {{ fill: #ff8f80 }} .s32 {{ fill: #7ee08f }}\n\
         .s33 {{ fill: #e8bf55 }} .s34 {{ fill: #7cbcf8 }} .s36 {{ fill: #6fdce5 }}\n\
         .film {{ transform: translateY(-{end:.0}px) }}\n\
         @keyframes play {{ from {{ transform: none }} {part:.2}%, to {{ transform: translateY(-{end:.0}px) }} }}\n\
         @media (prefers-reduced-motion: no-preference) {{ .film {{ animation: play {:.2}s steps({last}) infinite }} }}\n\
         </style>\n<defs>\n{shapes}</defs>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#14171b\"/>\n\
         <svg width=\"{width}\" height=\"{height}\"><g class=\"film\">\n{film}</g></svg>\n</svg>\n",
        escaped(&frames[last].text()),
        all.as_secs_f64(),
    )
}

/// The texts of a row, one per style.
fn shape(row: &[Cell]) -> String {
    let mut shape = String::new();
    let mut at = 0;
    for run in row.chunk_by(|(_, one), (_, other)| one == other) {
        let text: String = run.iter().map(|(glyph, _)| glyph).collect();
        let begin = at + text.chars().take_while(|it| *it == ' ').count();
        at += run.len();
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let (x, length) = (MARGIN + WIDTH * begin as f64, WIDTH * text.chars().count() as f64);
        // The length keeps columns in line, whatever the font is.
        write!(
            shape,
            "<text class=\"s{}\" x=\"{x:.1}\" y=\"13\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\">{}</text>",
            run[0].1,
            escaped(text),
        )
        .unwrap();
    }
    shape
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What is the same in each run of the demo: its title, and the numbers of pods. Which pod gets the
/// last devices, and so the loads, may differ.
fn facts(text: &str) -> Vec<String> {
    let mut lines = text.lines();
    let title = lines.next().and_then(|line| line.split("; press").next()).unwrap();
    let counts =
        lines.next().unwrap().split("   ").filter(|it| it.starts_with(|it: char| it.is_ascii_digit()));
    std::iter::once(title).chain(counts).map(str::to_owned).collect()
}

#[test]
fn the_recorded_terminal_is_that_of_the_demo() {
    let frames = frames();
    if std::env::var_os(REWRITE).is_some_and(|value| value == "1") {
        std::fs::write(FILE, svg(&frames)).unwrap();
    }
    let now = frames.last().unwrap().text();
    let svg = std::fs::read_to_string(Path::new(FILE)).unwrap();
    let kept = svg.split("<desc id=\"d\">").nth(1).and_then(|rest| rest.split("</desc>").next()).unwrap();
    assert_eq!(facts(kept), facts(&escaped(&now)), "write it with {REWRITE}=1");
    assert!(facts(&now).contains(&"194 bound".to_owned()), "{now}");
    assert!(svg.len() < 300_000, "{}", svg.len());
}
