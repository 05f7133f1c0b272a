// The scores of two nodes side by side, and which node other weights would choose. Weights act on
// normalized scores, so adding up again is exact as long as the same nodes fit.

import { bar, el, name, section, table } from "./dom.js";

/** @typedef {{ node: string, score: number, plugins: Record<string, { raw: number, normalized: number, weight: number }> }} Feasible */
/** What a person has chosen, by plugin and side. @typedef {{ weights: Map<string, number>, nodes: (string | null)[] }} Choice */

/** The largest weight to try. */
const MOST_WEIGHT = 10;
/** The most nodes to choose from. */
const MOST_NODES = 200;

/** @returns {Choice} */
export function noChoice() {
    return { weights: new Map(), nodes: [null, null] };
}

/** @param {Feasible[]} feasible @param {string | null} own @param {Choice} choice */
export function whyThere(feasible, own, choice) {
    const plugins = [...new Set(feasible.flatMap(({ plugins }) => Object.keys(plugins)))];
    const first = feasible.find(({ node }) => node === (choice.nodes[0] ?? own)) ?? feasible[0];
    const second = feasible.find(({ node }) => node === choice.nodes[1] && node !== first.node) ?? feasible.find((it) => it !== first) ?? first;
    const place = el("div", { class: "answer" });
    const verdict = el("p", { class: "key", role: "status" });
    const weight = (/** @type {string} */ plugin) => choice.weights.get(plugin) ?? feasible.find((it) => it.plugins[plugin])?.plugins[plugin].weight ?? 0;
    const total = (/** @type {Feasible} */ node) => plugins.reduce((sum, plugin) => sum + (node.plugins[plugin]?.normalized ?? 0) * weight(plugin), 0);

    const say = () => {
        const best = feasible.reduce((one, other) => (total(other) > total(one) ? other : one));
        const changed = plugins.some((plugin) => choice.weights.has(plugin));
        verdict.replaceChildren(changed ? "With these weights the best node is " : "The best node is ", name(best.node), `: ${total(best)}. `,
            name(first.node), ` has ${total(first)}, `, name(second.node), ` has ${total(second)}.`);
    };
    /** @param {string} plugin */
    const slider = (plugin) => {
        const output = el("output", {}, weight(plugin));
        const input = /** @type {HTMLInputElement} */ (el("input", { type: "range", min: 0, max: MOST_WEIGHT, value: weight(plugin), "aria-label": `Weight of ${plugin}` }));
        input.addEventListener("input", () => {
            choice.weights.set(plugin, Number(input.value));
            output.textContent = input.value;
            fill();
            say();
        });
        return el("span", { class: "slider" }, input, output);
    };
    const cells = plugins.map(() => [el("span", { class: "meter" }), el("span", { class: "meter" }), el("span", {})]);
    const fill = () => {
        const scale = 100 * Math.max(1, ...plugins.map(weight));
        plugins.forEach((plugin, at) => {
            const [one, other] = [first, second].map((node) => (node.plugins[plugin]?.normalized ?? 0) * weight(plugin));
            cells[at][0].replaceChildren(bar(one, scale), el("span", {}, one));
            cells[at][1].replaceChildren(bar(other, scale), el("span", {}, other));
            cells[at][2].textContent = one > other ? `+${one - other}` : String(one - other);
        });
    };
    const rows = plugins.map((plugin, at) => [el("code", {}, plugin), slider(plugin), ...cells[at]]);
    fill();
    say();
    const nodes = feasible.slice(0, MOST_NODES).map(({ node }) => node);
    const chosen = [first, second].map(({ node }, side) => choose(side === 0 ? "Node" : "Beside", nodes, node, (value) => {
        choice.nodes[side] = value;
        place.replaceWith(whyThere(feasible, own, choice));
    }));
    const back = el("button", { type: "button" }, "The scheduler's weights");
    back.addEventListener("click", () => {
        choice.weights.clear();
        place.replaceWith(whyThere(feasible, own, choice));
    });
    const columns = [{ name: "Plugin" }, { name: "Weight" }, { name: first.node, number: true }, { name: second.node, number: true }, { name: "Difference", number: true }];
    place.append(section("Why there", el("form", { class: "ask" }, ...chosen, back), verdict, table("Scores times weights", columns, rows)));
    return place;
}

/** @param {string} label @param {string[]} nodes @param {string} value @param {(value: string) => void} then */
function choose(label, nodes, value, then) {
    const names = nodes.includes(value) ? nodes : [value, ...nodes];
    const select = /** @type {HTMLSelectElement} */ (el("select", {}, ...names.map((node) => el("option", { value: node, selected: node === value }, node))));
    select.addEventListener("change", () => then(select.value));
    return el("label", {}, `${label} `, select);
}
