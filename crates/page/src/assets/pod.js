// Why a pod is pending, or why it is on its node.

import { ask } from "./api.js";
import { again, follow } from "./asked.js";
import { bar, copyButton, count, el, elsewhere, fact, fragment, name, nodeLink, section, table } from "./dom.js";
import { noChoice, whyThere } from "./why-there.js";

/** @typedef {{ plugin: string, text: string, nodes: number, nodeNames: string[], alone: number, left: number }} Refusal */

/** The most nodes of a group that are named, and the most scores of a node. */
const MOST_NAMES = 4;

/** @param {import("./main.js").Context} context */
export function pod(context) {
    const [, namespace = "default", pod = ""] = context.place.path;
    const choice = noChoice();
    const queue = el("dl", { class: "facts" });
    again(context, () => showQueue(queue, namespace, pod, context.signal));
    return follow(context, "why", [["pod", `${namespace}/${pod}`]], (data) => ({
        headline: data.headline,
        body: [
            ...data.hindrances.map((/** @type {string} */ text) => el("p", { class: "key" }, text)),
            data.keyReason && data.feasible.length === 0 ? el("p", { class: "key" }, el("strong", {}, "Key reason: "), data.keyReason) : null,
            data.pod.node ? el("p", {}, "On node ", nodeLink(data.pod.node)) : null,
            fixes(data),
            data.feasible.length > 1 ? whyThere(data.feasible, data.pod.node, choice) : null,
            data.feasible.length > 0 ? section("Nodes that fit", scores(data.feasible)) : null,
            data.refusals.length > 0 ? section("What refuses it", funnel(data.nodes, data.refusals)) : null,
            data.refusals.length > 0 ? section("Nodes that refuse alike", groups(data.refusals)) : null,
            data.triedAgainIf.length > 0 && !data.pod.node ? section("Tried again if", el("ul", {}, ...data.triedAgainIf.map((/** @type {string} */ event) => el("li", {}, event)))) : null,
            data.message ? section("Message in the pod's status", el("blockquote", {}, name(data.message, "message"))) : null,
            el("p", { class: "actions" },
                el("a", { href: fragment(["what-if"], { copy: `${namespace}/${pod}=1` }) }, "What if there were another one?"), " ",
                el("a", { href: fragment(["capacity"], { pod: `${namespace}/${pod}` }) }, "How many more fit?")),
            elsewhere(["why", `${namespace}/${pod}`], data),
        ].filter((part) => part !== null),
    }), [queue]);
}

/** Where pods wait, in words. @type {Map<string, string>} */
const PLACES = new Map([
    ["active", "waits for its turn"],
    ["backoff", "waits for the end of its backoff"],
    ["unschedulable", "waits for a change"],
    ["gated", "is held before the queue"],
    ["in flight", "is being scheduled"],
    ["with its group", "waits for its group"],
]);

/** Where the pod waits, if it does. @param {HTMLElement} facts @param {string} namespace @param {string} pod @param {AbortSignal} signal */
async function showQueue(facts, namespace, pod, signal) {
    try {
        const { data } = await ask("pod", [["namespace", namespace], ["name", pod]], signal);
        const time = (/** @type {string} */ text) => new Date(text).toLocaleTimeString();
        facts.replaceChildren(...(data.place ? [
            fact("In the queue it", PLACES.get(data.place) ?? data.place),
            fact("Since", time(data.since)),
            fact("Attempts", data.attempts),
            ...(data.firstTried ? [fact("First tried", time(data.firstTried))] : []),
            ...(data.place === "backoff" && data.backoffUntil ? [fact("Backoff ends", time(data.backoffUntil))] : []),
            fact("Priority", data.priority),
        ] : []));
    } catch {
        // The answer below says what is wrong.
        if (!signal.aborted) facts.replaceChildren();
    }
}

/** @param {any} data */
function fixes(data) {
    if (data.feasible.length > 0 || data.pod.node) return null;
    if (data.fixes.length === 0) {
        return data.preemption ? el("p", {}, "Preemption makes room on ", nodeLink(data.preemption)) : el("p", { class: "quiet" }, "No tried change of the pod helps.");
    }
    return section("Each of these helps (tried)", el("ol", { class: "fixes" }, ...data.fixes.map((/** @type {any} */ fix) =>
        el("li", {}, fix.text, " ", copyButton("Copy", fix.text)))));
}

/** @param {number} nodes @param {Refusal[]} refusals */
function funnel(nodes, refusals) {
    const rows = refusals.map((refusal) => [
        refusal.text, el("code", {}, refusal.plugin), refusal.nodes, refusal.alone,
        el("span", { class: "meter" }, bar(refusal.left, nodes), el("span", {}, refusal.left)),
    ]);
    const columns = [{ name: "Reason", wide: true }, { name: "Plugin" }, { name: "Nodes", number: true }, { name: "Only reason", number: true }, { name: "Left", number: true }];
    return table(`${count(nodes, "node")} in the order of the plugins; “left” is how many no plugin has refused so far`, columns, rows);
}

/** Nodes with the same refusals. @param {Refusal[]} refusals */
function groups(refusals) {
    /** @type {Map<string, number[]>} */
    const ofNode = new Map();
    refusals.forEach(({ nodeNames }, at) => nodeNames.forEach((node) => {
        const reasons = ofNode.get(node);
        if (reasons) reasons.push(at);
        else ofNode.set(node, [at]);
    }));
    /** @type {Map<string, { reasons: number[], nodes: string[] }>} */
    const groups = new Map();
    for (const [node, reasons] of ofNode) {
        const group = groups.get(reasons.join()) ?? { reasons, nodes: [] };
        group.nodes.push(node);
        groups.set(reasons.join(), group);
    }
    const rows = [...groups.values()].sort((one, other) => one.reasons.length - other.reasons.length || other.nodes.length - one.nodes.length)
        .map(({ reasons, nodes }) => [
            count(nodes.length, "node"),
            el("ul", { class: "plain" }, ...reasons.map((at) => el("li", {}, refusals[at].text))),
            el("span", {}, ...nodes.slice(0, MOST_NAMES).flatMap((node, at) => [at > 0 ? ", " : "", nodeLink(node)]), nodes.length > MOST_NAMES ? ` and ${nodes.length - MOST_NAMES} more` : ""),
        ]);
    return table("Nodes with the fewest reasons first", [{ name: "Nodes", number: true }, { name: "Refused for", wide: true }, { name: "Such as" }], rows);
}

/** @param {any[]} feasible */
function scores(feasible) {
    const plugins = [...new Set(feasible.flatMap(({ plugins }) => Object.keys(plugins)))];
    const shown = plugins.filter((plugin) => new Set(feasible.map((node) => node.plugins[plugin]?.normalized)).size > 1);
    const best = Math.max(...feasible.map(({ score }) => score), 1);
    const rows = feasible.map((node) => [
        nodeLink(node.node), el("span", { class: "meter" }, bar(node.score, best), el("span", {}, node.score)),
        ...shown.map((plugin) => { const it = node.plugins[plugin]; return it ? it.normalized * it.weight : ""; }),
    ]);
    const columns = [{ name: "Node" }, { name: "Score", number: true }, ...shown.map((plugin) => ({ name: plugin, number: true }))];
    return table("The best node first; plugins that score all nodes alike are left out", columns, rows);
}
