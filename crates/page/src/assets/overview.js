// All nodes at a glance, and why pods wait.

import { arrange, bar, count, el, fact, fragment, keepRows, patch, percent, section, segments, set } from "./dom.js";
import { waiting } from "./model.js";
import { TileMap, legend, tileTable } from "./tiles.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Property} Property */
/** @typedef {import("./model.js").Summary} Summary */

/** What plugins reject pods for. @type {Map<string, string>} */
const WORDS = new Map([
    ["DynamicResources", "devices are not available"],
    ["GangScheduling", "the rest of the group is missing"],
    ["InterPodAffinity", "affinity to other pods"],
    ["NodeAffinity", "labels do not match"],
    ["NodeName", "another node is named"],
    ["NodePorts", "the host port is taken"],
    ["NodeResourcesFit", "too little is free"],
    ["NodeUnschedulable", "nodes are cordoned"],
    ["NodeVolumeLimits", "too many volumes on nodes"],
    ["PodTopologySpread", "pods must be spread"],
    ["SchedulingGates", "scheduling gates are closed"],
    ["TaintToleration", "taints are not tolerated"],
    ["VolumeBinding", "volumes are not available"],
    ["VolumeRestrictions", "a volume is in use"],
    ["VolumeZone", "volumes are in another zone"],
]);
/** @type {[Property, string][]} */
const PROPERTIES = [["cpu", "CPU"], ["memory", "Memory"], ["pods", "Pods"]];
/** How often an open table is made again, in milliseconds. */
const TABLE_PERIOD = 2_000;

/** @param {import("./main.js").Context} context */
export function overview({ place, live, root, signal }) {
    const chosen = PROPERTIES.find(([key]) => key === place.parameters.get("by"));
    const [property] = chosen ?? PROPERTIES[0];
    const headline = el("h1", {}, "Waiting for the scheduler …");
    const facts = el("dl", { class: "facts" });
    const reasons = el("ul", { class: "reasons" });
    const map = new TileMap((node) => { location.hash = fragment(["node", node]); });
    const note = el("p", { class: "quiet", hidden: true }, "This table is older. It updates when you leave it.");
    const twin = el("details", { class: "twin" }, el("summary", {}, "All nodes as a table"), note);
    const legendPlace = el("div", {}, legend(property));
    root.append(headline, facts, el("div", { class: "columns" },
        section("Nodes", el("div", { class: "controls" }, chooser(property), legendPlace), map.root, twin),
        section("Why pods wait", reasons)));

    /** The reasons that are shown, by their plugins. @type {Map<string, HTMLElement>} */
    const shown = new Map();
    let made = -Infinity;
    /** Whether the table lacks a change. */
    let isOld = false;
    const makeTable = () => {
        if (!live.model || !(/** @type {HTMLDetailsElement} */ (twin).open)) return;
        made = performance.now();
        isOld = false;
        const [old, fresh] = [twin.querySelector(".table"), tileTable(live.model)];
        if (old) keepRows(old, fresh);
        old?.remove();
        twin.append(fresh);
    };
    /** Makes an old table again, unless it is in use or newer than this. @param {number} period */
    const renew = (period) => {
        const isUsed = twin.querySelector(".table:is(:focus-within, :active)") !== null;
        if (isOld && !isUsed && performance.now() - made > period) makeTable();
        note.hidden = !isOld || !isUsed;
    };
    /** @param {Model} model @param {number[] | null} changed */
    const update = (model, changed) => {
        set(headline, sentence(model.summary));
        patch(facts, el("dl", { class: "facts" }, ...factsOf(model.summary)));
        showReasons(reasons, shown, model.summary);
        map.draw(model, property, changed);
        isOld ||= changed === null || changed.length > 0;
        renew(TABLE_PERIOD);
    };
    twin.addEventListener("toggle", makeTable);
    // The next element has the focus only after the event.
    twin.addEventListener("focusout", () => setTimeout(() => renew(0)));
    live.listeners.add(update);
    signal.addEventListener("abort", () => live.listeners.delete(update));
    const again = () => {
        map.again();
        legendPlace.replaceChildren(legend(property));
    };
    for (const [target, kind] of /** @type {[EventTarget, string][]} */ ([[window, "resize"], [window, "themechange"], [matchMedia("(prefers-color-scheme: dark)"), "change"], [matchMedia("(forced-colors: active)"), "change"]])) {
        target.addEventListener(kind, again, { signal });
    }
    if (live.model) update(live.model, null);
}

/** @param {Summary} summary */
function sentence(summary) {
    const wait = waiting(summary);
    const hold = summary.nodes === 1 ? "holds" : "hold";
    const tail = wait === 0 ? "no pod waits" : `${count(wait, "pod")} ${wait === 1 ? "waits" : "wait"}`;
    return `${count(summary.nodes, "node")} ${hold} ${count(summary.pods, "pod")}; ${tail}`;
}

/** @param {import("./model.js").Usage} usage */
function part({ requested, allocatable }) {
    return percent(allocatable > 0 ? (200 * requested) / allocatable : 0);
}

/** @param {number} bytes */
function gibibytes(bytes) {
    return `${Math.round(bytes / 2 ** 30).toLocaleString("en")} GiB`;
}

/** @param {Summary} summary */
function factsOf({ cpu, memory, cordoned, queue }) {
    const cores = count(Math.round(cpu.allocatable / 1000), "core");
    return [
        fact("CPU requested", part(cpu), `of ${cores}`),
        fact("Memory requested", part(memory), `of ${gibibytes(memory.allocatable)}`),
        fact("Active", String(queue.active)),
        fact("In backoff", String(queue.backoff)),
        fact("Unschedulable", String(queue.unschedulable)),
        fact("Gated", String(queue.gated)),
        fact("Cordoned nodes", String(cordoned)),
    ];
}

/** @param {string[]} plugins */
function words(plugins) {
    if (plugins.length === 0) return "other reasons";
    return plugins.map((plugin) => WORDS.get(plugin) ?? plugin).join(", and ");
}

/** Shows why pods wait. Rows keep their elements, and so the focus. @param {HTMLElement} list @param {Map<string, HTMLElement>} shown @param {Summary} summary */
function showReasons(list, shown, { reasons, queue }) {
    const most = Math.max(...reasons.map(({ pods }) => pods), 1);
    const rows = new Map(reasons.map(({ plugins, pods }) => [plugins.join(), el("li", {},
        el("a", { href: fragment(["pending"]) }, el("span", { class: "amount" }, pods.toLocaleString("en")), el("span", { class: "words" }, words(plugins))),
        bar(pods, most), el("code", {}, plugins.join(", ")))]));
    if (rows.size === 0) {
        rows.set("", el("li", { class: "quiet" }, queue.active > 0 ? "No pod was rejected. Some are active: they wait for their first attempt." : "No pod waits."));
    }
    for (const [key, fresh] of rows) {
        const old = shown.get(key);
        if (!old) continue;
        patch(old, fresh);
        rows.set(key, old);
    }
    shown.clear();
    rows.forEach((row, key) => shown.set(key, row));
    arrange(list, [...rows.values()]);
}

/** @param {Property} property */
function chooser(property) {
    return segments("Colour by", PROPERTIES.map(([key, title]) => [title, fragment(["overview"], { by: key }), key === property]));
}
