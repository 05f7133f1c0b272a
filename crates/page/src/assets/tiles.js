// A tile per node, in blocks by zone and pool, and the same as a table.

import { bar, count, el, name, nodeLink, percent, printable, table } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Property} Property */
/** @typedef {{ canvas: HTMLCanvasElement, first: number, tiles: number, columns: number }} Part */

/** The most tiles of a map, with the size of a tile and the gap between two, in pixels. */
const SIZES = [[80, 40, 4], [400, 24, 3], [1500, 14, 2], [Infinity, 9, 1]];
/** A tile of this size has its number in it. */
const LEGIBLE = 24;
const STEPS = 40;

/** Colours of loads: even steps of lightness, so that they differ without hue, too. @param {boolean} dark */
function ramp(dark) {
    return Array.from({ length: STEPS + 1 }, (_, step) => {
        const part = step / STEPS;
        const light = dark ? 0.3 + 0.56 * part : 0.95 - 0.53 * part;
        const chroma = dark ? 0.03 + 0.09 * part : 0.015 + 0.115 * part;
        const hue = dark ? 262 - 62 * part : 220 + 38 * part;
        return { fill: `oklch(${light.toFixed(3)} ${chroma.toFixed(3)} ${hue.toFixed(0)})`, ink: light > 0.58 ? "#0d1117" : "#ffffff" };
    });
}

/** The colours of the page as it is. */
function palette() {
    const style = getComputedStyle(document.documentElement);
    const dark = style.getPropertyValue("--is-dark").trim() === "1";
    const forced = matchMedia("(forced-colors: active)").matches;
    const probe = document.createElement("span");
    document.body.append(probe);
    const colour = (/** @type {string} */ value) => {
        probe.style.color = value;
        return getComputedStyle(probe).color;
    };
    const colours = {
        forced,
        ramp: ramp(dark),
        edge: colour(forced ? "CanvasText" : "var(--edge)"),
        text: colour(forced ? "CanvasText" : "var(--text)"),
        ground: colour(forced ? "Canvas" : "var(--ground)"),
        accent: colour(forced ? "Highlight" : "var(--accent)"),
    };
    probe.remove();
    return colours;
}

/** The load of a tile in half percents. @param {Model} model @param {Property} property @param {number} at @param {number} most */
function load(model, property, at, most) {
    if (property !== "pods") return model.tiles[property][at];
    return most > 0 ? (200 * model.tiles.pods[at]) / most : 0;
}

/** A picture of all nodes. */
export class TileMap {
    /** @param {(node: string) => void} open */
    constructor(open) {
        this.open = open;
        this.blocks = el("div", { class: "zones" });
        this.readout = el("p", { class: "readout", "aria-live": "polite" });
        this.root = el("div", { class: "map" }, this.blocks, this.readout);
        /** @type {Part[]} */
        this.parts = [];
        /** @type {Model | null} */
        this.model = null;
        /** @type {Property} */
        this.property = "cpu";
        this.focused = -1;
        this.most = 0;
        this.colours = palette();
        this.size = 0;
        this.gap = 0;
        /** The time of the last drawing in milliseconds. */
        this.took = 0;
        this.rest();
    }

    /** Draws all of it, or the tiles that changed. @param {Model} model @param {Property} property @param {number[] | null} changed */
    draw(model, property, changed) {
        const began = performance.now();
        const most = property === "pods" ? Math.max(1, ...model.tiles.pods) : 0;
        const all = changed === null || this.model !== model || property !== this.property || most !== this.most;
        this.model = model;
        this.property = property;
        this.most = most;
        if (changed === null || this.parts.length === 0) this.layOut(model);
        if (all) {
            this.colours = palette();
            this.parts.forEach((part) => this.drawPart(part));
        } else {
            changed.forEach((at) => this.drawAt(at));
        }
        this.took = performance.now() - began;
        this.root.dataset.took = this.took.toFixed(1);
        if (this.focused >= 0) this.tell(this.focused);
    }

    /** Colours or sizes have changed. */
    again() {
        if (this.model) this.draw(this.model, this.property, null);
    }

    /** @param {Model} model */
    layOut(model) {
        const tiles = model.tiles.names.length;
        // A tile of a group has its number of nodes in it.
        [, this.size, this.gap] = SIZES.find(([most]) => (model.grouped && tiles <= 400) || tiles <= most) ?? SIZES[3];
        const hadFocus = this.parts.findIndex((part) => part.canvas === document.activeElement);
        const step = this.size + this.gap;
        const width = Math.max(step, this.root.clientWidth - 32);
        /** @type {Map<string, HTMLElement>} */
        const zones = new Map();
        this.parts = [];
        this.blocks.replaceChildren();
        let first = 0;
        for (const block of model.blocks) {
            let zone = zones.get(block.zone);
            if (!zone) {
                zone = el("div", { class: "blocks" });
                zones.set(block.zone, zone);
                const title = block.zone ? ["Zone ", name(block.zone)] : ["No zone"];
                this.blocks.append(el("section", { class: "zone" }, el("h3", {}, ...title), zone));
            }
            const columns = Math.max(1, Math.min(Math.floor(width / step), Math.ceil(Math.sqrt(block.tiles * 2.2))));
            const canvas = this.canvas(columns, Math.ceil(block.tiles / columns), block, first);
            const pool = block.pool ? name(block.pool) : "no pool";
            const nodes = model.tiles.nodes.slice(first, first + block.tiles).reduce((sum, one) => sum + one, 0);
            zone.append(el("div", { class: "block" }, el("p", {}, pool, ` · ${nodes.toLocaleString("en")}`), canvas));
            this.parts.push({ canvas, first, tiles: block.tiles, columns });
            first += block.tiles;
        }
        if (this.focused >= tiles) this.focused = -1;
        if (hadFocus >= 0) this.parts[Math.min(hadFocus, this.parts.length - 1)]?.canvas.focus();
    }

    /** @param {number} columns @param {number} rows @param {import("./model.js").Block} block @param {number} first */
    canvas(columns, rows, block, first) {
        const step = this.size + this.gap;
        const label = `${count(block.tiles, "tile")} of ${block.pool ? `pool ${block.pool}` : "no pool"}${block.zone ? ` in zone ${block.zone}` : ""}. Arrow keys choose a node, Enter opens it. The table below has the same.`;
        const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { tabindex: 0, role: "application", "aria-label": printable(label) }));
        const scale = devicePixelRatio || 1;
        canvas.width = Math.round(columns * step * scale);
        canvas.height = Math.round(rows * step * scale);
        canvas.style.width = `${columns * step}px`;
        canvas.style.height = `${rows * step}px`;
        const at = (/** @type {MouseEvent} */ event) => {
            const column = Math.floor(event.offsetX / step);
            const index = Math.floor(event.offsetY / step) * columns + column;
            return column < columns && index >= 0 && index < block.tiles ? first + index : -1;
        };
        canvas.addEventListener("pointermove", (event) => this.choose(at(event)));
        canvas.addEventListener("pointerleave", () => this.choose(-1));
        canvas.addEventListener("click", (event) => this.go(at(event)));
        canvas.addEventListener("focus", () => this.choose(this.focused < first || this.focused >= first + block.tiles ? first : this.focused));
        canvas.addEventListener("blur", () => this.choose(-1));
        canvas.addEventListener("keydown", (event) => this.key(event, columns, first, block.tiles));
        return canvas;
    }

    /** @param {KeyboardEvent} event @param {number} columns @param {number} first @param {number} tiles */
    key(event, columns, first, tiles) {
        /** @type {Record<string, number>} */
        const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -tiles, End: tiles };
        if (event.key === "Enter") this.go(this.focused);
        if (!(event.key in steps)) return;
        event.preventDefault();
        const wanted = this.focused + steps[event.key];
        const inside = wanted >= first && wanted < first + tiles;
        if (event.key === "Home") this.choose(first);
        else if (event.key === "End") this.choose(first + tiles - 1);
        else if (inside) this.choose(wanted);
    }

    /** @param {number} at */
    go(at) {
        if (this.model && at >= 0 && !this.model.grouped) this.open(this.model.tiles.names[at]);
    }

    /** @param {number} at */
    choose(at) {
        const before = this.focused;
        this.focused = at;
        if (before >= 0) this.drawAt(before);
        if (at < 0) return this.rest();
        this.drawAt(at);
        this.tell(at);
    }

    rest() {
        this.readout.replaceChildren("Point at a tile, or walk the tiles with the arrow keys.");
    }

    /** @param {number} at */
    tell(at) {
        if (!this.model) return;
        const { tiles, blocks } = this.model;
        let rest = at;
        const block = blocks.find(({ tiles: size }) => (rest -= size) < 0);
        const place = [block?.zone && `zone ${block.zone}`, block?.pool && `pool ${block.pool}`].filter(Boolean).join(", ");
        const cordoned = tiles.cordoned[at] > 0 ? (tiles.nodes[at] > 1 ? `, ${tiles.cordoned[at]} cordoned` : ", cordoned") : "";
        const nodes = tiles.nodes[at] > 1 ? `${count(tiles.nodes[at], "node")}, ` : "";
        this.readout.replaceChildren(el("strong", {}, name(tiles.names[at])), place ? ` ${printable(place)}` : "",
            `: ${nodes}CPU ${percent(tiles.cpu[at])}, memory ${percent(tiles.memory[at])}, ${count(tiles.pods[at], "pod")}${cordoned}`);
    }

    /** @param {Part} part */
    drawPart(part) {
        for (let at = part.first; at < part.first + part.tiles; at += 1) this.drawTile(part, at);
    }

    /** @param {number} at */
    drawAt(at) {
        const part = this.parts.find(({ first, tiles }) => at >= first && at < first + tiles);
        if (part) this.drawTile(part, at);
    }

    /** @param {Part} part @param {number} at */
    drawTile(part, at) {
        const model = this.model;
        const context = part.canvas.getContext("2d");
        if (!context || !model) return;
        const { size, gap, colours } = this;
        const step = size + gap;
        const scale = devicePixelRatio || 1;
        const index = at - part.first;
        const [x, y] = [(index % part.columns) * step, Math.floor(index / part.columns) * step];
        const share = load(model, this.property, at, this.most);
        const { fill, ink } = colours.ramp[Math.max(0, Math.min(STEPS, Math.round((share / 200) * STEPS)))];
        context.setTransform(scale, 0, 0, scale, x * scale, y * scale);
        context.clearRect(0, 0, step, step);
        const [left, side] = [gap / 2, size];
        context.fillStyle = colours.forced ? colours.ground : fill;
        context.fillRect(left, left, side, side);
        if (colours.forced) {
            const height = Math.min(side, (side * share) / 200);
            context.fillStyle = colours.text;
            context.fillRect(left, left + side - height, side, height);
        }
        if (cordoned(model, at)) hatch(context, left, side, colours.forced ? colours.accent : ink);
        context.lineWidth = 1;
        context.strokeStyle = colours.edge;
        // Edges of tiny tiles would outshine what is in them.
        context.globalAlpha = size >= LEGIBLE || colours.forced ? 1 : 0.5;
        context.strokeRect(left + 0.5, left + 0.5, side - 1, side - 1);
        context.globalAlpha = 1;
        if (size >= LEGIBLE && !colours.forced) this.label(context, model, at, ink, share);
        if (at === this.focused) {
            context.lineWidth = Math.max(2, gap);
            context.strokeStyle = colours.accent;
            context.strokeRect(1, 1, step - 2, step - 2);
        }
    }

    /** @param {CanvasRenderingContext2D} context @param {Model} model @param {number} at @param {string} ink @param {number} share */
    label(context, model, at, ink, share) {
        const number = model.grouped ? model.tiles.nodes[at] : this.property === "pods" ? model.tiles.pods[at] : Math.round(share / 2);
        context.font = `${this.size >= 40 ? 13 : 10}px system-ui, sans-serif`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        if (cordoned(model, at)) return;
        context.fillStyle = ink;
        context.fillText(number < 10_000 ? String(number) : `${Math.round(number / 1000)}k`, (this.size + this.gap) / 2, (this.size + this.gap) / 2 + 0.5);
    }
}

/** Whether most nodes of a tile are cordoned. @param {Model} model @param {number} at */
function cordoned({ tiles }, at) {
    return 2 * tiles.cordoned[at] > tiles.nodes[at];
}

/** @param {CanvasRenderingContext2D} context @param {number} left @param {number} side @param {string} ink */
function hatch(context, left, side, ink) {
    context.save();
    context.beginPath();
    context.rect(left, left, side, side);
    context.clip();
    context.beginPath();
    context.lineWidth = side >= 20 ? 2 : 1;
    context.strokeStyle = ink;
    for (let at = -side; at < side; at += side >= 20 ? 8 : 4) {
        context.moveTo(left + at, left + side);
        context.lineTo(left + at + side, left);
    }
    context.stroke();
    context.restore();
}

/** What the colours mean. @param {Property} property */
export function legend(property) {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1";
    const colours = ramp(dark);
    const swatches = [0, 0.25, 0.5, 0.75, 1].map((part) =>
        el("li", {}, el("span", { class: "swatch", "--colour": colours[Math.round(part * STEPS)].fill }), property === "pods" ? (part === 0 ? "none" : part === 1 ? "most pods" : "") : `${part * 100} %`));
    return el("ul", { class: "legend", "aria-label": "Colours" }, ...swatches, el("li", {}, el("span", { class: "swatch hatched" }), "cordoned"));
}

/** The same as a table. @param {Model} model */
export function tileTable(model) {
    const { tiles, blocks, grouped } = model;
    let first = 0;
    const rows = blocks.flatMap((block) => {
        const of = Array.from({ length: block.tiles }, (_, index) => {
            const at = first + index;
            const cordoned = grouped ? String(tiles.cordoned[at]) : tiles.cordoned[at] > 0 ? "cordoned" : "";
            return [grouped ? name(tiles.names[at]) : nodeLink(tiles.names[at]), name(block.zone), name(block.pool), meter(tiles.cpu[at]), meter(tiles.memory[at]), tiles.pods[at], grouped ? tiles.nodes[at] : null, cordoned].filter((cell) => cell !== null);
        });
        first += block.tiles;
        return of;
    });
    const columns = [{ name: grouped ? "Load" : "Node" }, { name: "Zone" }, { name: "Pool" }, { name: "CPU", number: true }, { name: "Memory", number: true }, { name: "Pods", number: true }, ...(grouped ? [{ name: "Nodes", number: true }] : []), { name: "Cordoned", number: grouped }];
    return table(grouped ? "Nodes by zone, pool and load" : "All nodes", columns, rows);
}

/** @param {number} share */
export function meter(share) {
    return el("span", { class: "meter" }, bar(share, 200), el("span", {}, percent(share)));
}
