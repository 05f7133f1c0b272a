//! Draws the model.

mod grid;

use std::time::Duration;

use super::canvas::{Canvas, Style, bar, shortened};
use super::model::{Activity, Model, display_name};
use super::text::{count, milliseconds, percent, seconds, wrap};
use grid::draw_nodes;

/// Minimum width for waiting pods and decisions side by side.
const WIDE: usize = 120;
/// Width of a bar in the header.
const BAR: usize = 10;
/// Minimum height for titles.
const ROWS_FOR_TITLES: usize = 16;
/// Minimum height for blank rows between the parts, and for a title of the nodes.
const ROOMY: usize = 30;
/// Rows reserved for waiting pods and decisions, if there are enough.
const ROWS_BELOW_NODES: usize = 8;

/// Content of the header that is not in the model.
pub(crate) struct Header<'a> {
    /// Time since the start.
    pub(crate) elapsed: Duration,
    /// Title of the demo.
    pub(crate) title: &'a str,
    /// The current phase.
    pub(crate) phase: &'a str,
    /// Number of pods that the plan creates.
    pub(crate) expected: usize,
}

/// Draws the whole picture.
pub(crate) fn draw(canvas: &mut Canvas, model: &Model, header: &Header<'_>) {
    let top = draw_header(canvas, model, header);
    let rows = canvas.height().saturating_sub(top);
    let (titles, roomy) = (canvas.height() >= ROWS_FOR_TITLES, canvas.height() >= ROOMY);
    let most = rows.saturating_sub(ROWS_BELOW_NODES).max(rows / 2);
    let mut nodes = Area { x: 0, y: top, width: canvas.width(), height: most };
    if roomy {
        nodes.title(canvas, "nodes", "cpu, memory, pods");
    }
    let below = draw_nodes(canvas, model, &nodes) + usize::from(roomy);
    let left = canvas.height().saturating_sub(below);
    if canvas.width() >= WIDE {
        let half = canvas.width() / 2;
        draw_waiting(canvas, model, Area { x: 0, y: below, width: half - 2, height: left }, titles);
        let rest = Area { x: half, y: below, width: canvas.width() - half, height: left };
        draw_activities(canvas, model, rest, titles);
    } else {
        let most = Area { x: 0, y: below, width: canvas.width(), height: left / 2 };
        let next = draw_waiting(canvas, model, most, titles);
        let left = canvas.height().saturating_sub(next);
        let rest = Area { x: 0, y: next, width: canvas.width(), height: left };
        draw_activities(canvas, model, rest, titles);
    }
}

/// A part of the picture.
#[derive(Clone, Copy, Debug)]
struct Area {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

impl Area {
    /// Writes a title on the first row, and removes this row from the area.
    fn title(&mut self, canvas: &mut Canvas, title: &str, explanation: &str) {
        if self.height == 0 {
            return;
        }
        let after = canvas.put_within(self.x, self.y, self.width, title, Style::Bold);
        let left = (self.x + self.width).saturating_sub(after + 2);
        canvas.put_within(after + 2, self.y, left, explanation, Style::Dim);
        self.y += 1;
        self.height -= 1;
    }

    fn put(&self, canvas: &mut Canvas, row: usize, indent: usize, text: &str, style: Style) {
        if row < self.height {
            canvas.put_within(self.x + indent, self.y + row, self.width.saturating_sub(indent), text, style);
        }
    }
}

/// Draws the header; returns its height.
fn draw_header(canvas: &mut Canvas, model: &Model, header: &Header<'_>) -> usize {
    let time = format!("{}  {}", header.phase, seconds(header.elapsed));
    let left = canvas.width().saturating_sub(time.chars().count() + 2);
    let after = canvas.put_within(0, 0, canvas.width(), "supercargo demo", Style::Bold);
    canvas.put_within(after + 2, 0, left.saturating_sub(after + 2), header.title, Style::Dim);
    if left > after {
        canvas.put(left + 2, 0, &time, Style::Plain);
    }
    let counts = model.counts();
    let (used, allocatable) = model.total();
    let (cpu, memory) = used.shares(&allocatable);
    let expected = header.expected.max(counts.arrived);
    let devices = model.devices();
    let mut parts = vec![
        (format!("{} of {}", counts.arrived, count(expected, "pod")), Style::Plain),
        (format!("{} bound", counts.bound), Style::Green),
        (format!("{} waiting", counts.waiting), Style::Yellow),
        (format!("{} gated", counts.gated), Style::Cyan),
        (format!("{} undecided", counts.undecided), Style::Plain),
        (format!("cpu {} {}", bar(cpu, BAR), percent(cpu)), colour_of(cpu, Style::Green)),
        (format!("memory {} {}", bar(memory, BAR), percent(memory)), colour_of(memory, Style::Blue)),
    ];
    if devices.all > 0 {
        let share = devices.share();
        let text = format!("devices {} {} of {}", bar(share, BAR), devices.allocated, devices.all);
        parts.push((text, colour_of(share, Style::Cyan)));
    }
    let (mut x, mut y) = (0, 1);
    let last = if canvas.height() >= 8 { 2 } else { 1 };
    for (text, style) in parts {
        let width = text.chars().count();
        if x > 0 && x + width > canvas.width() {
            (x, y) = (0, y + 1);
        }
        if y > last {
            break;
        }
        x = canvas.put(x, y, &text, style) + 3;
    }
    last + 1 + usize::from(canvas.height() >= ROOMY)
}

/// Red for a full resource.
fn colour_of(share: f64, else_colour: Style) -> Style {
    if share >= 0.95 { Style::Red } else { else_colour }
}

/// Draws why pods wait; returns the next free row.
fn draw_waiting(canvas: &mut Canvas, model: &Model, mut area: Area, titles: bool) -> usize {
    const INDENT: usize = 6;
    let mut reasons: Vec<(usize, String)> = model
        .waiting()
        .iter()
        .map(|group| {
            let first = group.pods.first().map(display_name).unwrap_or_default();
            let more = if group.pods.len() > 1 { " …" } else { "" };
            (group.pods.len(), format!("{first}{more}: {}", brief(group.why)))
        })
        .collect();
    if let Some(first) = model.gated().first() {
        let more = if model.gated().len() > 1 { " …" } else { "" };
        reasons.push((model.gated().len(), format!("{}{more}: gates, or a group", display_name(first))));
    }
    if titles {
        area.title(canvas, "why pods wait", if reasons.is_empty() { "no pod waits" } else { "" });
    }
    let mut row = 0;
    let mut spare = area.height.saturating_sub(reasons.len());
    for (index, (pods, reason)) in reasons.iter().enumerate() {
        let is_last_row = row + 1 == area.height;
        if is_last_row && index + 1 < reasons.len() {
            let rest: usize = reasons[index..].iter().map(|(pods, _)| pods).sum();
            let text = format!("… {} for {} more reasons", count(rest, "pod"), reasons.len() - index);
            area.put(canvas, row, INDENT, &text, Style::Dim);
            row += 1;
            break;
        }
        let mut lines = wrap(reason, area.width.saturating_sub(INDENT));
        if lines.len() > 1 + spare {
            let rest = lines.split_off(spare).join(" ");
            lines.push(shortened(&rest, area.width.saturating_sub(INDENT)));
        }
        spare -= lines.len().saturating_sub(1).min(spare);
        area.put(canvas, row, 0, &format!("{pods:>4}"), Style::Yellow);
        for line in lines {
            area.put(canvas, row, INDENT, &line, Style::Plain);
            row += 1;
        }
        if row >= area.height {
            break;
        }
    }
    area.y + row.min(area.height) + usize::from(canvas.height() >= ROOMY)
}

/// A reason without `0/n nodes are available`, which all reasons have in common.
fn brief(why: &str) -> &str {
    why.split_once(" nodes are available: ")
        .filter(|(none, _)| none.starts_with("0/"))
        .map_or(why, |(_, rest)| rest)
}

/// Draws activities, latest first.
fn draw_activities(canvas: &mut Canvas, model: &Model, mut area: Area, titles: bool) {
    const INDENT: usize = 10;
    if titles {
        area.title(canvas, "decisions", "latest first");
    }
    for (row, (at, activity)) in model.latest().take(area.height).enumerate() {
        area.put(canvas, row, 0, &format!("{:>8}", seconds(*at)), Style::Dim);
        let (text, style) = match activity {
            Activity::Bound { pod, node, took } => {
                (format!("{} → {node}  {}", display_name(pod), milliseconds(*took)), Style::Green)
            }
            Activity::Waits { pod, why } => {
                (format!("{} waits: {}", display_name(pod), brief(why)), Style::Yellow)
            }
            Activity::Note(text) => (text.clone(), Style::Cyan),
        };
        area.put(canvas, row, INDENT, &text, style);
    }
}

#[cfg(test)]
mod tests;
