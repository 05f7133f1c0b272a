//! The grid of nodes, with bars for their load.

use super::super::canvas::{Canvas, Style, bar, shortened};
use super::super::model::{Model, NodeLoad};
use super::{Area, colour_of};

const GAP: usize = 2;
const SHORTEST_BAR: usize = 3;
const LONGEST_BAR: usize = 20;
const LONGEST_NAME: usize = 24;

/// Content of a cell.
enum Entry<'a> {
    Zone(&'a str),
    Node(NodeLoad<'a>),
}

/// Arrangement of the cells.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    columns: usize,
    rows: usize,
    /// Width of a column, without the gap.
    width: usize,
    name: usize,
    bar: usize,
    pods: usize,
}

impl Layout {
    /// As few columns as possible, but one per zone if they fit.
    fn of(cells: usize, zones: usize, name: usize, pods: usize, area: &Area) -> Self {
        let name = name.min(LONGEST_NAME).min(area.width / 2).max(1);
        let narrowest = name + pods + 2 * SHORTEST_BAR + 3;
        let most = ((area.width + GAP) / (narrowest + GAP)).max(1);
        let enough = cells.div_ceil(area.height.max(1));
        let columns = enough.max(zones).clamp(1, most);
        let width = (area.width + GAP) / columns - GAP.min(area.width);
        let bars = width.saturating_sub(name + pods + 3);
        Self {
            columns,
            rows: cells.div_ceil(columns).min(area.height),
            width,
            name,
            bar: (bars / 2).min(LONGEST_BAR),
            pods,
        }
    }
}

/// Draws the nodes; returns the next free row.
pub(super) fn draw_nodes(canvas: &mut Canvas, model: &Model, area: &Area) -> usize {
    let mut entries = Vec::new();
    let (mut zones, mut name, mut pods) = (Vec::new(), 0, 2);
    for node in model.nodes() {
        if !node.zone.is_empty() && zones.last() != Some(&node.zone) {
            zones.push(node.zone);
            entries.push(Entry::Zone(node.zone));
        }
        name = name.max(node.name.chars().count());
        pods = pods.max(node.used.pods.to_string().len());
        entries.push(Entry::Node(node));
    }
    let mut layout = Layout::of(entries.len(), zones.len(), name, pods, area);
    if entries.len() > layout.columns * layout.rows {
        // Omits zone names if not all nodes fit.
        entries.retain(|entry| matches!(entry, Entry::Node(_)));
        layout = Layout::of(entries.len(), zones.len(), name, pods, area);
    }
    let room = layout.columns * layout.rows;
    for (index, entry) in entries.iter().take(room).enumerate() {
        let x = area.x + index / layout.rows * (layout.width + GAP);
        let y = area.y + index % layout.rows;
        if index + 1 == room && entries.len() > room {
            canvas.put_within(x, y, layout.width, &format!("… {} more", entries.len() - index), Style::Dim);
            break;
        }
        match entry {
            Entry::Zone(zone) => {
                canvas.put_within(x, y, layout.width, &format!("zone {zone}"), Style::Dim);
            }
            Entry::Node(node) => draw_node(canvas, x, y, node, &layout),
        }
    }
    area.y + layout.rows
}

fn draw_node(canvas: &mut Canvas, x: usize, y: usize, node: &NodeLoad<'_>, layout: &Layout) {
    let style = if node.cordoned { Style::Dim } else { Style::Plain };
    let width = layout.width;
    let end = |x: usize, columns: usize| columns.min(width.saturating_sub(x));
    canvas.put(x, y, &ending(node.name, end(0, layout.name)), style);
    let (cpu, memory) = node.used.shares(&node.allocatable);
    let mut at = layout.name + 1;
    for (share, style) in [(cpu, Style::Green), (memory, Style::Blue)] {
        canvas.put(x + at, y, &bar(share, end(at, layout.bar)), colour_of(share, style));
        at += layout.bar + 1;
    }
    let pods = format!("{:>1$}", node.used.pods, layout.pods);
    canvas.put(x + at, y, &shortened(&pods, end(at, layout.pods)), Style::Dim);
}

/// The end of a name, which distinguishes nodes, in at most `columns` characters.
fn ending(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns || columns == 0 {
        return name.chars().take(columns).collect();
    }
    std::iter::once('…').chain(name.chars().skip(length + 1 - columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(width: usize, height: usize) -> Area {
        Area { x: 0, y: 0, width, height }
    }

    #[test]
    fn thirty_nodes_in_three_zones_fit_on_80_columns() {
        let layout = Layout::of(33, 3, 6, 2, &area(80, 14));
        assert_eq!((layout.columns, layout.rows), (3, 11));
        assert!(layout.bar >= 6, "{layout:?}");
    }

    #[test]
    fn layout_is_limited_to_the_area() {
        let layout = Layout::of(5000, 3, 6, 2, &area(80, 10));
        assert_eq!((layout.columns, layout.rows), (4, 10));
        assert!(layout.bar >= SHORTEST_BAR, "{layout:?}");
    }

    #[test]
    fn long_name_is_truncated_at_its_beginning() {
        assert_eq!(ending("pool-12ab", 5), "…12ab");
        assert_eq!(ending("n1", 5), "n1");
        assert_eq!(ending("n1", 0), "");
    }
}
