// How many more pods fit, what fails badly, and which nodes can be removed.

import { again, simulate } from "./asked.js";
import { count, el, fragment, go, name, nodeLink, podLinkOf, printable, section, set, table } from "./dom.js";

/** @typedef {import("./asked.js").Question} Question */

const TITLE = "How much more fits, and what may fail";

/** @param {import("./main.js").Context} context @returns {import("./main.js").Turn} */
export function capacity(context) {
    const { place, live, root, signal } = context;
    const headline = el("h1", { "aria-live": "polite" }, TITLE);
    // The only answer is the page's.
    const title = () => {
        const asked = all.filter(({ value }) => value() !== "");
        set(headline, asked.length === 1 ? asked[0].sentence.textContent || TITLE : TITLE);
        asked.forEach(({ sentence }) => { sentence.hidden = asked.length === 1; });
    };
    /** @param {string} key @param {string} value */
    const choose = (key, value) => {
        const one = all.find((it) => it.key === key);
        if (one?.value() === value) return one.again();
        const chosen = Object.fromEntries(all.map((one) => [one.key, one.value()]));
        go(fragment(["capacity"], { ...chosen, [key]: value }));
    };
    const pod = podField((value) => choose("pod", value));
    const by = choice((value) => choose("by", value));
    const empty = el("button", { type: "button", click: () => choose("empty", "1") }, "Simulate each");
    const all = [
        asker("pod", "How many more pods like one fit?", pod.form, fits, signal, title),
        asker("by", "What if any one of them fails?", by.group, resilience, signal, title),
        asker("empty", "Which nodes can be removed?", empty, removable, signal, title),
    ];
    root.append(headline, ...all.map(({ root: it }) => it));
    /** @param {import("./main.js").Place} to */
    const turn = ({ parameters }) => {
        const value = (/** @type {string} */ key) => parameters.get(key) ?? "";
        pod.set(value("pod"));
        by.set(value("by"));
        all.forEach((one) => one.ask(value(one.key)));
        title();
    };
    turn(place);
    // A person moves through a record.
    if (live.isReplay) again(context, async () => { await Promise.all(all.filter(({ value }) => value() !== "").map((one) => one.again())); });
    return turn;
}

/**
 * A question with its controls. It is asked only if its value has changed.
 *
 * @param {string} key
 * @param {string} title
 * @param {HTMLElement} controls
 * @param {(value: string) => Question} question
 * @param {AbortSignal} signal
 * @param {() => void} said Called when its sentence has changed.
 */
function asker(key, title, controls, question, signal, said) {
    const sentence = el("p", { class: "key", role: "status" });
    const place = el("div", { class: "answer" });
    let asked = "";
    let again = async () => {};
    let stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort());
    /** @param {string} value */
    const ask = (value) => {
        if (value === asked) return;
        asked = value;
        stop.abort();
        stop = new AbortController();
        place.replaceChildren();
        if (value === "") return;
        const { elements, load } = simulate(question(value), sentence, stop.signal);
        place.append(sentence, ...elements);
        again = load;
        load();
    };
    new MutationObserver(said).observe(sentence, { childList: true });
    return { key, root: section(title, controls, place), sentence, ask, again: () => again(), value: () => asked };
}

/** @param {(text: string) => void} then */
function podField(then) {
    const input = /** @type {HTMLInputElement} */ (el("input", { name: "pod", required: true, autocomplete: "off", spellcheck: "false" }));
    const form = el("form", { class: "ask" }, el("label", {}, "Pod: NAMESPACE/NAME ", input), el("button", { type: "submit" }, "Count"));
    form.addEventListener("submit", (event) => {
        event.preventDefault();
        then(input.value.trim());
    });
    return { form, set: (/** @type {string} */ value) => { input.value = printable(value); } };
}

/** @param {(value: string) => void} then */
function choice(then) {
    const options = [["node", "Nodes"], ["topology.kubernetes.io/zone", "Zones"], ["topology.kubernetes.io/region", "Regions"]];
    const buttons = options.map(([value, title]) => ({ value, button: el("button", { type: "button", click: () => then(value) }, title) }));
    const group = el("div", { class: "segments", role: "group", "aria-label": "What fails" }, ...buttons.map(({ button }) => button));
    const set = (/** @type {string} */ by) => buttons.forEach(({ value, button }) => button.setAttribute("aria-pressed", String(value === by)));
    return { group, set };
}

/** @param {string} pod @returns {Question} */
function fits(pod) {
    return {
        path: "fits",
        parameters: [["pod", pod]],
        words: ["fits", pod],
        show: ({ headline, byNode, limitedBy }) => {
            const nodes = /** @type {[string, number][]} */ (Object.entries(byNode)).sort(([, one], [, other]) => other - one);
            return {
                headline,
                parts: {
                    nodes: nodes.length > 0 ? table("Where they fit", [{ name: "Node" }, { name: "Pods", number: true }], nodes, ([node, pods]) => [nodeLink(node), pods]) : null,
                    limits: limitedBy?.length > 0 ? table("Why nodes reject the next one", [{ name: "Reason", wide: true }, { name: "Nodes", number: true }, { name: "Only reason", number: true }], limitedBy, (/** @type {any} */ it) => [it.text, it.nodes, it.alone]) : null,
                },
            };
        },
    };
}

/** @param {string} key @returns {Question} */
function resilience(key) {
    const columns = [{ name: "Fails" }, { name: "Affected", number: true }, { name: "Down", number: true }, { name: "First pod that stays down", wide: true }];
    return {
        path: "resilience",
        parameters: [["by", key]],
        words: ["resilience", `--by=${key}`],
        show: ({ headline, by, failures }) => ({
            headline,
            parts: {
                failures: table("The worst first", columns, failures, (/** @type {any} */ it) => [by === "node" ? nodeLink(it.fails) : name(it.fails), it.affected, it.down, obstacle(it.first)]),
            },
        }),
    };
}

/** @returns {Question} */
function removable() {
    const columns = [{ name: "Node" }, { name: "Removable" }, { name: "Pods that move", number: true }, { name: "Obstacle", wide: true }];
    return {
        path: "empty",
        parameters: [],
        words: ["empty"],
        show: ({ headline, nodes }) => ({
            headline,
            parts: {
                nodes: table(`${count(nodes.filter((/** @type {any} */ it) => it.removable).length, "node")} can be removed, in this order`, columns, nodes,
                    (/** @type {any} */ it) => [nodeLink(it.node), it.removable ? "yes" : "no", it.pods, obstacle(it.obstacle)]),
            },
        }),
    };
}

/** @param {{ pod: string, reason: string } | null} it */
function obstacle(it) {
    return it ? el("span", {}, podLinkOf(it.pod), `: ${it.reason}`) : "";
}
