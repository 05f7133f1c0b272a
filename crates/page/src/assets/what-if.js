// Where pods go if something changes. Nothing is changed in the cluster.

import { simulate } from "./asked.js";
import { count, el, fragment, go, name, nodeLink, podLink, printable, section, table } from "./dom.js";

/** @typedef {{ title: string, of: "node" | "pod", counted?: boolean }} Verb */

/** In the order in which the scheduler applies them. @type {Map<string, Verb>} */
const VERBS = new Map(Object.entries({
    drain: { title: "Drain", of: "node" },
    fail: { title: "Fail", of: "node" },
    cordon: { title: "Cordon", of: "node" },
    uncordon: { title: "Uncordon", of: "node" },
    add: { title: "Add nodes like", of: "node", counted: true },
    copy: { title: "Add pods like", of: "pod", counted: true },
    delete: { title: "Delete", of: "pod" },
}));
/** The most names that the field suggests. */
const MOST_SUGGESTIONS = 500;

/** @param {import("./main.js").Context} context */
export async function whatIf({ place, live, root, signal }) {
    /** @type {[string, string][]} */
    const changes = [...place.parameters].filter(([verb]) => VERBS.has(verb));
    const headline = el("h1", { "aria-live": "polite" }, "Choose what changes");
    root.append(headline, chips(changes), form(changes, live));
    if (changes.length === 0) {
        root.append(el("p", { class: "quiet" }, "The scheduler simulates it on a copy of its state. Nothing is changed in the cluster."));
        return;
    }
    const { elements, load } = simulate({
        path: "what-if",
        parameters: changes,
        words: ["what-if", ...changes.map(([verb, value]) => `--${verb}=${value}`)],
        show: (data) => ({ headline: data.headline, parts: parts(data, zonesOf(live.model)) }),
    }, headline, signal);
    root.append(...elements);
    await load();
}

/** @param {[string, string][]} changes */
function link(changes) {
    /** @type {Record<string, string[]>} */
    const parameters = Object.fromEntries([...VERBS.keys()].map((verb) => [verb, changes.filter(([it]) => it === verb).map(([, value]) => value)]));
    return fragment(["what-if"], parameters);
}

/** @param {[string, string][]} changes */
function chips(changes) {
    return el("ul", { class: "chips", "aria-label": "Changes" }, ...changes.map(([verb, value], at) =>
        el("li", {}, el("span", {}, `${VERBS.get(verb)?.title} `, name(value)),
            el("a", { href: link(changes.filter((_, i) => i !== at)), "aria-label": `Remove: ${VERBS.get(verb)?.title} ${printable(value)}` }, el("span", { "aria-hidden": "true" }, "×")))));
}

/** @param {[string, string][]} changes @param {import("./live.js").Live} live */
function form(changes, live) {
    const verb = /** @type {HTMLSelectElement} */ (el("select", { name: "verb" }, ...[...VERBS].map(([key, { title }]) => el("option", { value: key }, title))));
    const target = /** @type {HTMLInputElement} */ (el("input", { name: "target", list: "targets", required: true, autocomplete: "off", spellcheck: "false" }));
    const number = /** @type {HTMLInputElement} */ (el("input", { name: "count", type: "number", min: 1, max: 100000, value: 1 }));
    const hint = el("span", {}, "Node");
    const howMany = el("label", {}, "How many ", number);
    const chosen = () => {
        const { of, counted = false } = VERBS.get(verb.value) ?? { of: "node" };
        hint.textContent = of === "node" ? "Node, or KEY=VALUE for all nodes with the label" : "Pod: NAMESPACE/NAME";
        howMany.hidden = !counted;
    };
    verb.addEventListener("change", chosen);
    chosen();
    const names = live.model && !live.model.grouped ? live.model.tiles.names.slice(0, MOST_SUGGESTIONS) : [];
    const element = el("form", { class: "ask" },
        el("label", {}, "Change ", verb), el("label", {}, hint, " ", target), howMany,
        el("datalist", { id: "targets" }, ...names.map((node) => el("option", { value: printable(node) }))),
        el("button", { type: "submit" }, "Simulate"));
    element.addEventListener("submit", (event) => {
        event.preventDefault();
        const value = target.value.trim();
        if (!value) return;
        const counted = VERBS.get(verb.value)?.counted;
        go(link([...changes, [verb.value, counted ? `${value}=${number.value}` : value]]));
    });
    return element;
}

/** The zones of nodes. @param {import("./model.js").Model | null} model @returns {Map<string, string>} */
function zonesOf(model) {
    const zones = new Map();
    if (!model || model.grouped) return zones;
    let at = 0;
    for (const { zone, tiles } of model.blocks) {
        for (let i = 0; i < tiles; i += 1, at += 1) zones.set(model.tiles.names[at], zone);
    }
    return zones;
}

/** @param {any} data @param {Map<string, string>} zones @returns {Record<string, HTMLElement | null>} */
function parts({ pods, podsOfNodes, atRest }, zones) {
    const bad = pods.filter((/** @type {any} */ it) => it.worse);
    const good = pods.filter((/** @type {any} */ it) => !it.worse);
    const columns = [{ name: "Pod" }, { name: "Before" }, { name: "After" }];
    return {
        worse: bad.length > 0 ? section("Worse off", table(`${count(bad.length, "pod")} left unscheduled`, [...columns, { name: "Why", wide: true }], bad, (/** @type {any} */ it) => [...row(it), it.reason])) : null,
        flows: flows(good, zones),
        moves: good.length > 0 ? section("Moves", table(`${count(good.length, "pod")} with another node`, columns, good, row)) : null,
        ofNodes: podsOfNodes > 0 ? el("p", { class: "quiet" }, `${count(podsOfNodes, "pod")} of DaemonSets or of the kubelet stay on drained nodes, or fail with their node.`) : null,
        end: atRest ? null : el("p", { class: "quiet" }, "The simulation ended after ten simulated minutes with pods still pending."),
    };
}

/** @param {any} outcome */
function row({ namespace, name: pod, from, to, end, preempted }) {
    const after = to ? nodeLink(to) : { Pending: "pending", Gone: "not replaced", HeldUp: "stays", Unknown: "unknown" }[/** @type {string} */ (end)] ?? end;
    return [el("span", {}, podLink(namespace, pod), preempted ? " (preempted)" : ""), from ? nodeLink(from) : "–", after];
}

/** How many pods go from zone to zone. @param {any[]} pods @param {Map<string, string>} zones */
function flows(pods, zones) {
    /** @type {Map<string, { from: string, to: string, pods: number }>} */
    const flows = new Map();
    for (const { from, to } of pods) {
        const [one, other] = [from ? zones.get(from) : "", to ? zones.get(to) : ""];
        if (!one || !other) continue;
        const key = JSON.stringify([one, other]);
        const flow = flows.get(key) ?? { from: one, to: other, pods: 0 };
        flow.pods += 1;
        flows.set(key, flow);
    }
    if (flows.size === 0) return null;
    const rows = [...flows.values()].sort((one, other) => other.pods - one.pods);
    return section("Between zones", table("Pods by zone, before and after", [{ name: "From zone" }, { name: "To zone" }, { name: "Pods", number: true }], rows, ({ from, to, pods }) => [name(from), name(to), pods]));
}
