// What the scheduler decided last.

import { follow } from "./asked.js";
import { count, duration, el, fragment, nodeLink, patch, podLink, section, segments, table, time } from "./dom.js";

/** @typedef {{ time: string, namespace: string, name: string, node: string | null, message: string | null, attempt: number, waitedMillis: number | null }} Decision */

/** The shortest time between two questions, in milliseconds. */
const PERIOD = 1_000;
/** What to show. @type {[string, string, (decision: Decision) => boolean][]} */
const KINDS = [
    ["", "All", () => true],
    ["placed", "A node was chosen", ({ node }) => node !== null],
    ["failed", "Failed", ({ node }) => node === null],
];
/** Waits of the grid, in milliseconds: the scale is logarithmic. @type {[number, string][]} */
const GRID = [[1, "1 ms"], [100, "100 ms"], [10_000, "10 s"], [1_000_000, "17 min"]];
const MOST_WAIT = 10_000_000;

/** @param {import("./main.js").Context} context @returns {import("./main.js").Turn} */
export function decisions(context) {
    const kindOf = (/** @type {import("./main.js").Place} */ { parameters }) => KINDS.find(([kind]) => kind === parameters.get("only")) ?? KINDS[0];
    let [only, , isWanted] = kindOf(context.place);
    const choice = () => segments("Show", KINDS.map(([kind, title]) => [title, fragment(["decisions"], { only: kind }), kind === only]));
    const kinds = choice();
    let redraw = () => {};
    // It is new each second: nobody could listen to that.
    const headline = el("h1", {});
    follow(context, {
        path: "decisions",
        parameters: [],
        words: null,
        show: (data) => {
            /** @type {Decision[]} */
            const shown = data.decisions.filter(isWanted);
            return {
                headline: sentence(data.decisions),
                parts: {
                    none: shown.length > 0 ? null : el("p", { class: "quiet" }, data.decisions.length > 0 ? "None of them is of this kind." : "Nothing has been decided yet, or supercargo runs with --timeline-memory=0."),
                    waits: shown.length > 0 ? section("How long pods had waited", dots(shown)) : null,
                    decisions: shown.length > 0 ? section("Newest first", list(shown)) : null,
                },
            };
        },
    }, [el("div", { class: "controls" }, kinds)], { headline, period: PERIOD, made: (it) => { redraw = it; } });
    return (to) => {
        [only, , isWanted] = kindOf(to);
        patch(kinds, choice());
        redraw();
    };
}

/** @param {Decision[]} all */
function sentence(all) {
    if (all.length === 0) return "No decision is known";
    const placed = all.filter(({ node }) => node !== null).length;
    const span = millis(all[0]) - millis(all[all.length - 1]);
    const within = span > 0 ? ` within ${duration(span)}` : "";
    return `The last ${count(all.length, "decision")}${within}: ${placed.toLocaleString("en")} chose a node, ${(all.length - placed).toLocaleString("en")} failed`;
}

/** @param {Decision} decision */
function millis(decision) {
    return new Date(decision.time).getTime();
}

/** @param {Decision[]} shown */
function list(shown) {
    const columns = [{ name: "Pod" }, { name: "Result", wide: true }, { name: "Waited", number: true }, { name: "Attempt", number: true }, { name: "Time" }];
    return table("Waited: since the pod was added. The pod has the whole message", columns, shown, (it) => [
        podLink(it.namespace, it.name), it.node === null ? el("span", { class: "clamp" }, it.message) : nodeLink(it.node),
        it.waitedMillis === null ? "" : duration(it.waitedMillis), it.attempt, time(it.time),
    ]);
}

/** The share of the height. @param {number} wait */
function height(wait) {
    return `${((100 * Math.log10(Math.min(Math.max(wait, 1), MOST_WAIT))) / Math.log10(MOST_WAIT)).toFixed(1)}%`;
}

/** A dot per decision: time to the right, the wait upwards. @param {Decision[]} shown */
function dots(shown) {
    const known = shown.filter(({ waitedMillis }) => waitedMillis !== null);
    const [first, last] = [millis(shown[shown.length - 1]), millis(shown[0])];
    const right = (/** @type {Decision} */ it) => `${(last > first ? (100 * (millis(it) - first)) / (last - first) : 50).toFixed(1)}%`;
    const longest = known.reduce((most, { waitedMillis }) => Math.max(most, waitedMillis ?? 0), 0);
    return el("figure", { class: "dots" },
        el("div", { class: "plot", role: "img", "aria-label": `Waits before ${count(known.length, "decision")}, at most ${duration(longest)}. The table has each.` },
            ...GRID.map(([wait, label]) => el("span", { class: "rule", "--y": height(wait) }, label)),
            ...known.map((it) => el("span", { class: it.node === null ? "dot failed" : "dot", "--x": right(it), "--y": height(it.waitedMillis ?? 0) }))),
        el("figcaption", {}, el("p", {}, el("span", {}, time(shown[shown.length - 1].time)), el("span", {}, time(shown[0].time))), el("span", {}, "● a node was chosen  ○ failed")));
}
