// A tile per node, in blocks by zone and pool, and the same as a table.

import { arrange, bar, count, cutNote, el, name, nodeLink, patch, percent, printable, set, table } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Property} Property */
/** @typedef {import("./model.js").Block} Block */
/** A canvas, and the tiles on it. @typedef {{ root: HTMLElement, title: HTMLElement, canvas: HTMLCanvasElement, first: number, tiles: number, columns: number }} Part */

/** The most tiles of a map, with the size of a tile and the gap between two, in pixels. */
const SIZES = [[80, 40, 4], [400, 24, 3], [1500, 14, 2], [Infinity, 9, 1]];
/** A tile of this size has its number in it. */
const LEGIBLE = 24;
const STEPS = 40;
/** The most blocks that are drawn. */
const MOST_BLOCKS = 200;

/** What a pool or a zone is called. @param {string} kind @param {string} text */
function called(kind, text) {
    return text ? `${kind} ${printable(text)}` : `no ${kind}`;
}

/** Colours of loads: even steps of lightness, so that they differ without hue, too. @param {boolean} dark */
export function ramp(dark) {
    return Array.from({ length: STEPS + 1 }, (_, step) => {
        const part = step / STEPS;
        const light = dark ? 0.3 + 0.56 * part : 0.95 - 0.53 * part;
        const chroma = dark ? 0.03 + 0.09 * part : 0.015 + 0.115 * part;
        const hue = dark ? 262 - 62 * part : 220 + 38 * part;
        return { fill: `oklch(${light.toFixed(3)} ${chroma.toFixed(3)} ${hue.toFixed(0)})`, ink: light > 0.565 ? "#000000" : "#ffffff" };
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
        this.left = el("p", { class: "quiet" });
        this.root = el("div", { class: "map" }, this.blocks, this.left, this.readout);
        /** @type {Part[]} */
        this.parts = [];
        /** What is on the page, by what it shows: an element with the focus must stay. @type {Map<string, Part>} */
        this.known = new Map();
        /** @type {Map<string, HTMLElement>} */
        this.zones = new Map();
        /** @type {Model | null} */
        this.model = null;
        /** @type {Property} */
        this.property = "cpu";
        /** The place of the chosen tile, and what it is: others may come before it. */
        this.focused = -1;
        this.chosen = "";
        this.most = 0;
        this.colours = palette();
        this.size = 0;
        this.gap = 0;
        this.rest();
    }

    /** Draws all of it, or the tiles that changed. @param {Model} model @param {Property} property @param {number[] | null} changed */
    draw(model, property, changed) {
        const most = property === "pods" ? model.tiles.pods.reduce((one, other) => Math.max(one, other), 1) : 0;
        const all = changed === null || this.model !== model || property !== this.property || most !== this.most;
        this.model = model;
        this.property = property;
        this.most = most;
        if (changed === null || this.parts.length === 0) this.layOut(model);
        let drawn = 0;
        if (all) {
            this.colours = palette();
            this.parts.forEach((part) => this.drawPart(part));
            drawn = model.tiles.names.length;
        } else {
            changed.forEach((at) => this.drawAt(at));
            drawn = changed.length;
        }
        // Tests count them.
        if (drawn > 0) this.root.dataset.drawn = String(drawn);
        if (this.focused >= 0) this.tell(this.focused);
        else this.rest();
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
        const width = Math.max(this.size + this.gap, this.root.clientWidth - 32);
        const [known, zones] = [this.known, this.zones];
        this.known = new Map();
        this.zones = new Map();
        this.parts = [];
        /** @type {Map<HTMLElement, HTMLElement[]>} */
        const inZone = new Map();
        let first = 0;
        for (const block of model.blocks.slice(0, MOST_BLOCKS)) {
            const zone = this.zones.get(block.zone) ?? zones.get(block.zone) ?? zoneOf(block.zone);
            this.zones.set(block.zone, zone);
            const key = JSON.stringify([block.zone, block.pool]);
            const part = known.get(key) ?? this.part();
            this.known.set(key, part);
            this.fit(part, block, first, width, model);
            this.parts.push(part);
            inZone.set(zone, [...inZone.get(zone) ?? [], part.root]);
            first += block.tiles;
        }
        set(this.left, cutNote(this.parts.length, model.blocks.length, " as tiles; the table has all pools")?.textContent ?? "");
        arrange(this.blocks, [...inZone.keys()]);
        inZone.forEach((parts, zone) => arrange(/** @type {Element} */ (zone.lastElementChild), parts));
        this.focused = this.chosen ? this.placeOf(this.chosen) : -1;
        if (hadFocus >= 0 && !this.parts.some((part) => part.canvas === document.activeElement)) {
            this.parts[Math.min(hadFocus, this.parts.length - 1)]?.canvas.focus();
        }
    }

    /** What tells a tile apart: groups have the same names in all blocks. @param {Model} model @param {number} at */
    keyOf({ tiles, grouped, blocks }, at) {
        if (!grouped) return tiles.names[at];
        const { zone, pool } = blockOf(blocks, at);
        return JSON.stringify([zone, pool, tiles.names[at]]);
    }

    /** Its place; -1 if it is gone. @param {string} key */
    placeOf(key) {
        const { model } = this;
        if (!model) return -1;
        return model.grouped ? model.tiles.names.findIndex((_, at) => this.keyOf(model, at) === key) : model.tiles.names.indexOf(key);
    }

    /** A canvas with the places of its tiles, for any block. @returns {Part} */
    part() {
        const title = el("p", {});
        const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { tabindex: 0, role: "application" }));
        const part = { root: el("div", { class: "block" }, title, canvas), title, canvas, first: 0, tiles: 0, columns: 1 };
        const at = (/** @type {MouseEvent} */ event) => {
            const step = this.size + this.gap;
            const column = Math.floor(event.offsetX / step);
            const index = Math.floor(event.offsetY / step) * part.columns + column;
            return column < part.columns && index >= 0 && index < part.tiles ? part.first + index : -1;
        };
        canvas.addEventListener("pointermove", (event) => this.choose(at(event)));
        canvas.addEventListener("pointerleave", () => this.choose(-1));
        canvas.addEventListener("click", (event) => this.go(at(event)));
        canvas.addEventListener("focus", () => this.choose(this.focused < part.first || this.focused >= part.first + part.tiles ? part.first : this.focused));
        canvas.addEventListener("blur", () => this.choose(-1));
        canvas.addEventListener("keydown", (event) => this.key(event, part));
        return part;
    }

    /** Makes a canvas that of this block. @param {Part} part @param {Block} block @param {number} first @param {number} width @param {Model} model */
    fit(part, block, first, width, model) {
        const step = this.size + this.gap;
        part.first = first;
        part.tiles = block.tiles;
        part.columns = Math.max(1, Math.min(Math.floor(width / step), Math.ceil(Math.sqrt(block.tiles * 2.2))));
        const nodes = model.tiles.nodes.slice(first, first + block.tiles).reduce((sum, one) => sum + one, 0);
        patch(part.title, el("p", {}, name(block.pool || "no pool"), ` · ${nodes.toLocaleString("en")}`));
        const keys = model.grouped ? "Each is a group of nodes, which cannot be opened. Arrow keys choose a group." : "Arrow keys choose a node, Enter opens it.";
        const label = `${count(block.tiles, "tile")} of ${called("pool", block.pool)}, ${called("zone", block.zone)}. ${keys} The table below has the same.`;
        const { canvas } = part;
        if (canvas.getAttribute("aria-label") !== label) canvas.setAttribute("aria-label", label);
        canvas.classList.toggle("opens", !model.grouped);
        const scale = devicePixelRatio || 1;
        const rows = Math.ceil(block.tiles / part.columns);
        canvas.width = Math.round(part.columns * step * scale);
        canvas.height = Math.round(rows * step * scale);
        canvas.style.width = `${part.columns * step}px`;
        canvas.style.height = `${rows * step}px`;
    }

    /** @param {KeyboardEvent} event @param {Part} part */
    key(event, { columns, first, tiles }) {
        /** @type {Record<string, number>} */
        const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -tiles, End: tiles };
        if (event.key === "Enter") this.go(this.focused);
        if (!(event.key in steps)) return;
        event.preventDefault();
        // The chosen tile may be gone.
        if (this.focused < first || this.focused >= first + tiles) return this.choose(first);
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
        this.chosen = this.model && at >= 0 ? this.keyOf(this.model, at) : "";
        if (before >= 0) this.drawAt(before);
        if (at < 0) return this.rest();
        this.drawAt(at);
        this.tell(at);
    }

    rest() {
        set(this.readout, this.model?.grouped
            ? "Each tile is a group of nodes with about the same load. A group cannot be opened; the search finds its nodes."
            : "Point at a tile, or walk the tiles with the arrow keys.");
    }

    /** @param {number} at */
    tell(at) {
        if (!this.model) return;
        const { tiles, blocks } = this.model;
        const block = blockOf(blocks, at);
        const place = [block.zone && `zone ${block.zone}`, block.pool && `pool ${block.pool}`].filter(Boolean).join(", ");
        const cordoned = tiles.cordoned[at] > 0 ? (tiles.nodes[at] > 1 ? `, ${tiles.cordoned[at]} cordoned` : ", cordoned") : "";
        const nodes = tiles.nodes[at] > 1 ? `${count(tiles.nodes[at], "node")}, ` : "";
        const fresh = el("p", {}, el("strong", {}, name(tiles.names[at])), place ? ` ${printable(place)}` : "",
            `: ${nodes}CPU ${percent(tiles.cpu[at])}, memory ${percent(tiles.memory[at])}, ${count(tiles.pods[at], "pod")}${cordoned}`);
        // It is read aloud when it is set.
        if (this.readout.textContent !== fresh.textContent) this.readout.replaceChildren(...fresh.childNodes);
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
        if (cordoned(model, at)) return;
        const number = model.grouped ? model.tiles.nodes[at] : this.property === "pods" ? model.tiles.pods[at] : null;
        const text = number === null ? percent(share).replaceAll(/[ %]/g, "") : number < 10_000 ? String(number) : `${Math.round(number / 1000)}k`;
        context.font = `${this.size >= 40 ? 13 : 10}px system-ui, sans-serif`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillStyle = ink;
        context.fillText(text, (this.size + this.gap) / 2, (this.size + this.gap) / 2 + 0.5);
    }
}

/** The block of a tile. @param {Block[]} blocks @param {number} at */
function blockOf(blocks, at) {
    let rest = at;
    return blocks.find(({ tiles }) => (rest -= tiles) < 0) ?? { zone: "", pool: "", tiles: 0 };
}

/** The place of a zone's blocks. @param {string} zone */
function zoneOf(zone) {
    const title = zone ? ["Zone ", name(zone)] : ["No zone"];
    return el("section", { class: "zone" }, el("h3", {}, ...title), el("div", { class: "blocks" }));
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
        el("li", {}, el("span", { class: "swatch", "--colour": colours[Math.round(part * STEPS)].fill, "--part": `${part * 100}%` }), property === "pods" ? (part === 0 ? "none" : part === 1 ? "most pods" : "") : `${part * 100} %`));
    return el("ul", { class: "legend", "aria-label": "Colours" }, ...swatches, el("li", {}, el("span", { class: "swatch hatched" }), "cordoned"));
}

/** The same as a table. @param {Model} model */
export function tileTable({ tiles, blocks, grouped }) {
    const blockOfTile = blocks.flatMap((block) => Array.from({ length: block.tiles }, () => block));
    const cells = (/** @type {number} */ at) => {
        const { zone, pool } = blockOfTile[at];
        const isCordoned = grouped ? tiles.cordoned[at].toLocaleString("en") : tiles.cordoned[at] > 0 ? "cordoned" : "";
        return [grouped ? name(tiles.names[at]) : nodeLink(tiles.names[at]), name(zone), name(pool), meter(tiles.cpu[at]), meter(tiles.memory[at]), tiles.pods[at].toLocaleString("en"), ...(grouped ? [tiles.nodes[at].toLocaleString("en")] : []), isCordoned];
    };
    const columns = [{ name: grouped ? "Load" : "Node" }, { name: "Zone" }, { name: "Pool" }, { name: "CPU", number: true }, { name: "Memory", number: true }, { name: "Pods", number: true }, ...(grouped ? [{ name: "Nodes", number: true }] : []), { name: "Cordoned", number: grouped }];
    return table(grouped ? "Nodes by zone, pool and load" : "All nodes", columns, [...tiles.names.keys()], cells);
}

/** @param {number} share */
export function meter(share) {
    return el("span", { class: "meter" }, bar(share, 200), el("span", {}, percent(share)));
}
