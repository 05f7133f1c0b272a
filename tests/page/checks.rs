//! What holds on every view.

use std::time::Duration;

use serde_json::{Value, json};

use super::browser::Browser;
use crate::support::eventually;

/// The texts whose contrast with what is behind them is less than 4.5: WCAG 2.2 AA asks for that.
const LOW_CONTRAST: &str = r"
    const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const parsed = new Map();
    const parse = (text) => {
        if (!parsed.has(text)) {
            context.clearRect(0, 0, 1, 1);
            context.fillStyle = text;
            context.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
            parsed.set(text, { rgb: [r, g, b], a: a / 255 });
        }
        return parsed.get(text);
    };
    const light = ([r, g, b]) => {
        const linear = [r, g, b].map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const behind = (element) => {
        for (let it = element; it; it = it.parentElement) {
            const { rgb, a } = parse(getComputedStyle(it).backgroundColor);
            if (a > 0.99) return rgb;
        }
        return [255, 255, 255];
    };
    const low = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
        const [one, other] = [parse(getComputedStyle(element).color).rgb, behind(element)].map(light);
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < 4.5) low.push(`${contrast.toFixed(1)} ${element.tagName} ${walker.currentNode.data.trim().slice(0, 40)}`);
    }
    return low;";

/// The colours of loads whose number has a contrast of less than 4.5, in both schemes.
const LOW_CONTRAST_OF_TILES: &str = r"
    return import('/insight/assets/tiles.js').then(({ ramp }) => {
        const context = document.createElement('canvas').getContext('2d');
        const light = (colour) => {
            context.fillStyle = colour;
            context.fillRect(0, 0, 1, 1);
            const linear = [...context.getImageData(0, 0, 1, 1).data].map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
        };
        return [true, false].flatMap(ramp).filter(({ fill, ink }) => {
            const [one, other] = [fill, ink].map(light);
            return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05) < 4.5;
        });
    });";

/// Whether the load of the first tile is a bar in the colours of the system.
const IS_FORCED: &str = r"
    const probe = document.body.appendChild(document.createElement('span'));
    const colour = (name) => {
        probe.style.color = name;
        return getComputedStyle(probe).color;
    };
    const context = document.querySelector('canvas').getContext('2d');
    const pixel = (y) => `rgb(${[...context.getImageData(21, y, 1, 1).data.slice(0, 3)].join(', ')})`;
    const seen = [pixel(8), pixel(38)].join() === ['Canvas', 'CanvasText'].map(colour).join();
    const bar = getComputedStyle(document.querySelector('.bar'), '::after').backgroundColor === colour('CanvasText');
    probe.remove();
    return seen && bar;";

/// Targets that are smaller than 24 pixels and not in a sentence.
const SMALL_TARGETS: &str = r"
    return [...document.querySelectorAll('button, input, select, nav a, .segments a, .chips a, summary')]
        .filter((it) => it.checkVisibility() && it.id !== 'skip')
        .map((it) => [it.getBoundingClientRect(), it.textContent || it.name])
        .filter(([{ width, height }]) => width < 24 || height < 24)
        .map(([{ width, height }, text]) => `${width}x${height} ${text}`);";

impl Browser {
    /// Panics unless the view is readable, named and complete.
    pub(super) fn check(&self, view: &str) {
        let list = |script: &str| self.run(script).as_array().unwrap().clone();
        assert_eq!(list(LOW_CONTRAST), [] as [Value; 0], "{view}: contrast");
        assert_eq!(list(SMALL_TARGETS), [] as [Value; 0], "{view}: targets");
        assert_eq!(self.nameless(), [] as [String; 0], "{view}: no accessible name");
        let headings = list("return [...document.querySelectorAll('h1')].map((it) => it.textContent.trim())");
        assert!(headings.len() == 1 && headings[0] != "", "{view}: {headings:?}");
        assert_eq!(self.violations(), [] as [Value; 0], "{view}: axe-core");
    }

    /// Panics unless the overview shows loads by the colours of the system alone.
    pub(super) fn check_forced_colours(&self) {
        let is_forced = || (self.run(IS_FORCED) == true).then_some(());
        eventually("loads in forced colours", Duration::from_secs(20), is_forced, || self.text("main"));
    }

    /// Panics unless numbers in tiles are readable.
    pub(super) fn check_tiles(&self) {
        assert_eq!(self.run(LOW_CONTRAST_OF_TILES), json!([]));
    }

    /// Panics if something is wider than the window: a person would have to scroll both ways.
    pub(super) fn check_reflow(&self, view: &str) {
        let widths = self.run("return [document.documentElement.scrollWidth, innerWidth]");
        assert!(widths[0].as_f64() <= widths[1].as_f64(), "{view}: {widths}");
    }

    /// The interactive elements that assistive technology cannot name.
    fn nameless(&self) -> Vec<String> {
        let roles =
            ["Canvas", "application", "button", "combobox", "link", "searchbox", "spinbutton", "textbox"];
        let tree = self.devtools("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter();
        let is_nameless = |node: &&Value| {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            node["ignored"] != true
                && roles.contains(&role)
                && node["name"]["value"].as_str().is_none_or(str::is_empty)
        };
        nodes.filter(is_nameless).map(ToString::to_string).collect()
    }
}
