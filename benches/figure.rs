//! Line charts as SVG: a few lines over a few positions, with a logarithmic vertical axis.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#009e73", "#56b4e9"];

/// A chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The label of the horizontal axis.
    pub across: String,
    /// The label of the vertical axis.
    pub up: String,
    /// The positions, from left to right at equal distances.
    pub places: Vec<String>,
    /// The lines, each with its name and an optional height per position. Heights that are not
    /// positive are omitted.
    pub lines: Vec<(String, Vec<Option<f64>>)>,
}

impl Chart {
    /// The drawing; `None` if it would be empty.
    pub fn svg(&self) -> Option<String> {
        let heights = self.lines.iter().flat_map(|(_, line)| line).flatten().copied().filter(|y| *y > 0.0);
        let (low, high) = heights.fold((f64::INFINITY, 0.0_f64), |(low, high), y| (low.min(y), high.max(y)));
        if high == 0.0 {
            return None;
        }
        let scale = Scale { low: low.log10().floor(), high: high.log10().ceil(), places: self.places.len() };
        let mut out = String::new();
        // Writing to a String cannot fail.
        _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>"
        );
        self.axes(&scale, &mut out);
        for (at, (name, line)) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            drawn(&scale, line, colour, &mut out);
            let y = TOP + 14.0 + 22.0 * at as f64;
            let x = WIDTH - RIGHT + 16.0;
            _ = writeln!(
                out,
                "<circle cx=\"{x}\" cy=\"{}\" r=\"5\" fill=\"{colour}\"/>\n{}",
                y - 4.0,
                text(x + 12.0, y, "start", name)
            );
        }
        out.push_str("</svg>\n");
        Some(out)
    }

    fn axes(&self, scale: &Scale, out: &mut String) {
        _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{}</text>",
            escaped(&self.title)
        );
        let mut power = scale.low;
        while power <= scale.high {
            let y = scale.y(10_f64.powf(power));
            _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#d0d0d0\"/>\n{}",
                WIDTH - RIGHT,
                text(LEFT - 8.0, y + 4.0, "end", &tick(power))
            );
            power += 1.0;
        }
        let foot = HEIGHT - BOTTOM;
        for (at, place) in self.places.iter().enumerate() {
            _ = writeln!(out, "{}", text(scale.x(at), foot + 20.0, "middle", place));
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        _ = writeln!(out, "{}", text(middle, HEIGHT - 10.0, "middle", &self.across));
        let turned = f64::midpoint(TOP, foot);
        _ = writeln!(
            out,
            "<g transform=\"translate(18 {turned}) rotate(-90)\">{}</g>",
            text(0.0, 0.0, "middle", &self.up)
        );
    }
}

/// Maps values to coordinates.
struct Scale {
    /// Powers of ten.
    low: f64,
    high: f64,
    places: usize,
}

impl Scale {
    fn x(&self, at: usize) -> f64 {
        let width = WIDTH - RIGHT - LEFT;
        LEFT + width * (at as f64 + 0.5) / self.places.max(1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        let height = HEIGHT - BOTTOM - TOP;
        let share = (value.log10() - self.low) / (self.high - self.low).max(1.0);
        HEIGHT - BOTTOM - height * share
    }
}

/// A line with gaps where heights are missing.
fn drawn(scale: &Scale, line: &[Option<f64>], colour: &str, out: &mut String) {
    let mut path = String::new();
    let mut pen_is_down = false;
    for (at, height) in line.iter().enumerate() {
        let Some(height) = height.filter(|height| *height > 0.0) else {
            pen_is_down = false;
            continue;
        };
        let (x, y) = (scale.x(at), scale.y(height));
        _ = write!(path, "{}{x:.1} {y:.1} ", if pen_is_down { "L" } else { "M" });
        pen_is_down = true;
        _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\n{}",
            text(x, y - 8.0, "middle", &rounded(height))
        );
    }
    _ = writeln!(
        out,
        "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        path.trim_end()
    );
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words))
}

fn tick(power: f64) -> String {
    if power < 0.0 {
        format!("{:.*}", -power as usize, 10_f64.powf(power))
    } else {
        crate::grouped(10_f64.powf(power) as u64)
    }
}

fn rounded(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.1}"),
        large => crate::grouped(large.round() as u64),
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<(String, Vec<Option<f64>>)>) -> Chart {
        Chart {
            title: "a < b".to_owned(),
            across: "nodes".to_owned(),
            up: "µs".to_owned(),
            places: vec!["500".to_owned(), "5,000".to_owned(), "50,000".to_owned()],
            lines,
        }
    }

    #[test]
    fn higher_values_are_drawn_higher_and_gaps_break_the_line() {
        let line = vec![Some(1.0), None, Some(100.0)];
        let svg = chart(vec![("ours".to_owned(), line)]).svg().unwrap();
        assert!(svg.contains("a &lt; b") && svg.contains(">ours<") && svg.contains(">5,000<"), "{svg}");
        let path = svg.lines().find(|line| line.starts_with("<path")).unwrap();
        // From the bottom to the top, without a stroke in between.
        assert!(path.contains("d=\"M151.7 368.0 M454.3 44.0\""), "{path}");
    }

    #[test]
    fn zero_height_draws_nothing() {
        assert_eq!(chart(vec![("ours".to_owned(), vec![None, Some(0.0), None])]).svg(), None);
    }
}
