// The scores of two nodes side by side, and which node other weights would choose. Weights act on
// normalized scores, so adding up again is exact as long as the same nodes fit.

import { count, el, name, section, step, table } from "./dom.js";

/** @typedef {{ node: string, score: number, plugins: Record<string, { raw: number, normalized: number, weight: number }> }} Feasible */
/** What a person has chosen, by plugin and side. @typedef {{ weights: Map<string, number>, nodes: (string | null)[] }} Choice */

/** The largest weight to try, unless twice the scheduler's is larger. */
const MOST_WEIGHT = 10;
/** Not the name of a plugin. */
const TOTAL = "";
/** The most nodes with the best score that are named. */
const MOST_TIES = 4;

/** @returns {Choice} */
export function noChoice() {
    return { weights: new Map(), nodes: [null, null] };
}

/** @param {{ feasible: Feasible[], fitting: number, pod: { node: string | null } }} data @param {Choice} choice */
export function whyThere({ feasible, fitting, pod: { node: own } }, choice) {
    const plugins = [...new Set(feasible.flatMap(({ plugins }) => Object.keys(plugins)))];
    const configured = (/** @type {string} */ plugin) => feasible.find((it) => it.plugins[plugin])?.plugins[plugin].weight ?? 0;
    const weight = (/** @type {string} */ plugin) => choice.weights.get(plugin) ?? configured(plugin);
    const part = (/** @type {Feasible} */ node, /** @type {string} */ plugin) => (node.plugins[plugin]?.normalized ?? 0) * weight(plugin);
    const total = (/** @type {Feasible} */ node) => plugins.reduce((sum, plugin) => sum + part(node, plugin), 0);
    const shown = () => {
        const first = feasible.find(({ node }) => node === (choice.nodes[0] ?? own)) ?? feasible[0];
        const second = feasible.find(({ node }) => node === choice.nodes[1] && node !== first.node) ?? feasible.find((it) => it !== first) ?? first;
        return [first, second];
    };
    const verdict = el("p", { class: "key", role: "status" });
    const say = () => {
        const totals = feasible.map(total);
        const best = totals.reduce((one, other) => Math.max(one, other));
        const ties = feasible.filter((_, at) => totals[at] === best);
        const with_ = plugins.some((plugin) => choice.weights.has(plugin)) ? "With these weights, " : "";
        const names = ties.slice(0, MOST_TIES).flatMap(({ node }, at) => [at > 0 ? ", " : "", name(node)]);
        const rest = ties.length > MOST_TIES ? ` and ${count(ties.length - MOST_TIES, "other")}` : "";
        verdict.replaceChildren(...(ties.length > 1
            ? [with_ ? `${with_}these tie: ` : "These tie: ", ...names, `${rest}, with ${best} each. `]
            : [with_ ? `${with_}the best node is ` : "The best node is ", ...names, `: ${best}. `]),
        ...shown().flatMap((node) => [name(node.node), ` has ${total(node)}. `]));
    };
    const scores = el("div", { class: "table" });
    const draw = () => {
        const [first, second] = shown();
        /** A row per plugin, and one for the sum. */
        const rows = [...plugins, TOTAL];
        const cells = new Map(rows.map((plugin) => [plugin, [el("span", { class: "meter steps" }), el("span", { class: "meter steps" }), el("span", {})]]));
        const fill = () => {
            const scale = Math.max(1, total(first), total(second));
            const sums = [0, 0];
            for (const [plugin, [one, other, difference]] of cells) {
                const parts = [first, second].map((node) => (plugin === TOTAL ? total(node) : part(node, plugin)));
                [one, other].forEach((cell, at) => {
                    cell.replaceChildren(step(plugin === TOTAL ? 0 : sums[at], parts[at], scale), el("span", {}, parts[at]));
                    sums[at] += parts[at];
                });
                difference.textContent = parts[0] > parts[1] ? `+${parts[0] - parts[1]}` : String(parts[0] - parts[1]);
            }
        };
        /** @param {string} plugin */
        const slider = (plugin) => {
            const output = el("output", {}, weight(plugin));
            const most = Math.max(MOST_WEIGHT, 2 * configured(plugin));
            const input = /** @type {HTMLInputElement} */ (el("input", { type: "range", min: 0, max: most, value: weight(plugin), "aria-label": `Weight of ${plugin}` }));
            input.addEventListener("input", () => {
                choice.weights.set(plugin, Number(input.value));
                output.textContent = input.value;
                fill();
                say();
            });
            return el("span", { class: "slider" }, input, output);
        };
        const columns = [{ name: "Plugin" }, { name: "Weight" }, { name: first.node, number: true }, { name: second.node, number: true }, { name: "Difference", number: true }];
        scores.replaceChildren(table("Scores times weights; each begins where the one above ends", columns, rows, (plugin) => [
            plugin === TOTAL ? el("strong", {}, "Sum") : el("code", {}, plugin), plugin === TOTAL ? "" : slider(plugin), ...cells.get(plugin) ?? []]));
        fill();
        say();
    };
    draw();
    const nodes = feasible.map(({ node }) => node);
    // With other weights, one of the others could be better.
    const rest = fitting > feasible.length ? el("p", { class: "quiet" }, `Of ${count(fitting, "node")}, only ${feasible.length} are compared.`) : null;
    const chosen = shown().map(({ node }, side) => choose(side === 0 ? "Node" : "Compared with", nodes, node, (value) => {
        choice.nodes[side] = value;
        draw();
    }));
    const back = el("button", { type: "button" }, "Reset weights");
    back.addEventListener("click", () => {
        choice.weights.clear();
        draw();
    });
    return section("Why there", el("form", { class: "ask" }, ...chosen, back), verdict, rest, scores);
}

/** @param {string} label @param {string[]} nodes @param {string} value @param {(value: string) => void} then */
function choose(label, nodes, value, then) {
    const names = nodes.includes(value) ? nodes : [value, ...nodes];
    const select = /** @type {HTMLSelectElement} */ (el("select", {}, ...names.map((node) => el("option", { value: node, selected: node === value }, node))));
    select.addEventListener("change", () => then(select.value));
    return el("label", {}, `${label} `, select);
}
