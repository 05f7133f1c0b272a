// How many more pods fit, what fails badly, and which nodes can be removed.

import { ask } from "./api.js";
import { count, el, elsewhere, fragment, nodeLink, name, podLinkOf, printable, problem, section, table } from "./dom.js";

/** @param {import("./main.js").Context} context */
export function capacity({ place, root, signal }) {
    const { parameters } = place;
    const [pod, by, empty] = [parameters.get("pod") ?? "", parameters.get("by") ?? "", parameters.get("empty") ?? ""];
    /** @param {Record<string, string>} change */
    const go = (change) => { location.hash = fragment(["capacity"], { pod, by, empty, ...change }); };
    const headline = el("h1", { "aria-live": "polite" }, "How much more fits, and what may fail");
    // The only answer is the page's.
    const isOne = [pod, by, empty].filter(Boolean).length === 1;
    /** @param {any} data @returns {Node | null} */
    const say = (data) => {
        if (!isOne) return el("p", { class: "key" }, data.headline);
        headline.textContent = printable(data.headline);
        return null;
    };
    root.append(headline,
        section("How many more pods like one fit?", field("Pod: NAMESPACE/NAME", pod, "Count", (text) => go({ pod: text }))),
        section("What if any one of them fails?", choice(by, (value) => go({ by: value }))),
        section("Which nodes can be removed?", button("Try each node", () => go({ empty: "1" }))));
    const [first, second, third] = root.querySelectorAll("section");
    if (pod) fill(first, "fits", [["pod", pod]], signal, say, fits, ["fits", pod]);
    if (by) fill(second, "resilience", [["by", by]], signal, say, resilience, ["resilience", `--by=${by}`]);
    if (empty) fill(third, "empty", [], signal, say, removable, ["empty"]);
}

/**
 * @param {HTMLElement} place
 * @param {string} path
 * @param {[string, string][]} parameters
 * @param {AbortSignal} signal
 * @param {(data: any) => Node | null} say
 * @param {(data: any) => Node} show
 * @param {string[]} words
 */
async function fill(place, path, parameters, signal, say, show, words) {
    const wait = el("p", { class: "quiet", role: "status" }, "Trying it …");
    place.append(wait);
    try {
        const { data } = await ask(path, parameters, signal);
        const sentence = say(data);
        place.append(...(sentence ? [sentence] : []), show(data), elsewhere(words, data));
    } catch (error) {
        if (!signal.aborted) place.append(problem(error));
    }
    wait.remove();
}

/** @param {string} label @param {string} value @param {string} verb @param {(text: string) => void} then */
function field(label, value, verb, then) {
    const input = /** @type {HTMLInputElement} */ (el("input", { name: "pod", value: printable(value), required: true, autocomplete: "off", spellcheck: "false" }));
    const form = el("form", { class: "ask" }, el("label", {}, label, " ", input), el("button", { type: "submit" }, verb));
    form.addEventListener("submit", (event) => {
        event.preventDefault();
        then(input.value.trim());
    });
    return form;
}

/** @param {string} by @param {(value: string) => void} then */
function choice(by, then) {
    const options = [["node", "Nodes"], ["topology.kubernetes.io/zone", "Zones"], ["topology.kubernetes.io/region", "Regions"]];
    return el("div", { class: "segments", role: "group", "aria-label": "What fails" }, ...options.map(([value, title]) =>
        el("button", { type: "button", "aria-pressed": String(value === by), click: () => then(value) }, title)));
}

/** @param {string} title @param {() => void} then */
function button(title, then) {
    return el("button", { type: "button", click: then }, title);
}

/** @param {any} data */
function fits({ byNode, limitedBy }) {
    const nodes = /** @type {[string, number][]} */ (Object.entries(byNode)).sort(([, one], [, other]) => other - one);
    const parts = [];
    if (nodes.length > 0) parts.push(table("Where they fit", [{ name: "Node" }, { name: "Pods", number: true }], nodes.map(([node, pods]) => [nodeLink(node), pods])));
    if (limitedBy?.length > 0) parts.push(table("What refuses the next one", [{ name: "Reason", wide: true }, { name: "Nodes", number: true }, { name: "Only reason", number: true }], limitedBy.map((/** @type {any} */ it) => [it.text, it.nodes, it.alone])));
    return el("div", {}, ...parts);
}

/** @param {any} data */
function resilience({ by, failures }) {
    const columns = [{ name: "Fails" }, { name: "Affected", number: true }, { name: "Down", number: true }, { name: "First pod that stays down", wide: true }];
    return table("The worst first", columns, failures.map((/** @type {any} */ it) => [by === "node" ? nodeLink(it.fails) : name(it.fails), it.affected, it.down, obstacle(it.first)]));
}

/** @param {any} data */
function removable({ nodes }) {
    const go = nodes.filter((/** @type {any} */ it) => it.removable).length;
    const columns = [{ name: "Node" }, { name: "Removable" }, { name: "Pods that move", number: true }, { name: "Obstacle", wide: true }];
    return table(`${count(go, "node")} can be removed, in this order`, columns, nodes.map((/** @type {any} */ it) => [nodeLink(it.node), it.removable ? "yes" : "no", it.pods, obstacle(it.obstacle)]));
}

/** @param {{ pod: string, reason: string } | null} it */
function obstacle(it) {
    return it ? el("span", {}, podLinkOf(it.pod), `: ${it.reason}`) : "";
}
