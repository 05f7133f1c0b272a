// Why a pod is pending, or why it is on its node.

import { Refused, ask } from "./api.js";
import { again, follow } from "./asked.js";
import { bar, copyButton, count, el, fact, fragment, name, nodeLink, patch, section, table, time } from "./dom.js";
import { timeline } from "./timeline.js";
import { noChoice, whyThere } from "./why-there.js";

/** @typedef {{ plugin: string, text: string, nodes: number, alone: number, left: number }} Refusal */
/** Nodes with the same refusals, by their places. @typedef {{ refusals: number[], nodes: number, suchAs: string[] }} Alike */

/** The most nodes of a list. */
const MOST_NODES = 200;

/** @param {import("./main.js").Context} context */
export function pod(context) {
    const [, namespace = "default", pod = ""] = context.place.path;
    const choice = noChoice();
    const queue = el("dl", { class: "facts" });
    again(context, () => showQueue(queue, namespace, pod, context.signal));
    const why = follow(context, {
        path: "why",
        parameters: [["pod", `${namespace}/${pod}`], ["rows", String(MOST_NODES)]],
        words: ["why", `${namespace}/${pod}`],
        show: (data) => ({
            headline: data.headline,
            parts: {
                hindrances: data.hindrances.length > 0 ? el("div", { class: "answer" }, ...data.hindrances.map((/** @type {string} */ text) => el("p", { class: "key" }, text))) : null,
                key: data.keyReason && data.feasible.length === 0 ? el("p", { class: "key" }, el("strong", {}, "Key reason: "), data.keyReason) : null,
                group: data.group ? el("p", { class: "key" }, el("strong", {}, "Group: "), name(data.group.text, "message")) : null,
                node: data.pod.node ? el("p", {}, "On node ", nodeLink(data.pod.node)) : null,
                fixes: fixes(data),
                scores: data.feasible.length > 1 ? whyThere(data, choice) : null,
                feasible: data.feasible.length > 0 ? section("Nodes that fit", scores(data.feasible), cut(data)) : null,
                reasons: data.refusals.length > 0 ? section("Why nodes reject it", funnel(data.nodes, data.refusals)) : null,
                groups: data.refusals.length > 0 ? section("Nodes with the same rejections", groups(data)) : null,
                events: data.triedAgainIf.length > 0 && !data.pod.node ? section("Requeued on", el("ul", {}, ...data.triedAgainIf.map((/** @type {string} */ event) => el("li", {}, event)))) : null,
                message: data.message ? section("Message in the pod's status", el("blockquote", {}, name(data.message, "message"))) : null,
                actions: el("p", { class: "actions" },
                    el("a", { href: fragment(["what-if"], { copy: `${namespace}/${pod}=1` }) }, "What if there were another one?"), " ",
                    el("a", { href: fragment(["capacity"], { pod: `${namespace}/${pod}` }) }, "How many more fit?")),
            },
        }),
    }, [queue]);
    timeline(context, `${namespace}/${pod}`);
    return why;
}

/** Where pods wait, in words. @type {Map<string, string>} */
const PLACES = new Map([
    ["active", "Active"],
    ["backoff", "In backoff"],
    ["unschedulable", "Unschedulable"],
    ["gated", "Gated"],
    ["in flight", "Being scheduled"],
    ["with its group", "Waits for its group"],
]);

/** Where the pod waits, if it does. @param {HTMLElement} facts @param {string} namespace @param {string} pod @param {AbortSignal} signal */
async function showQueue(facts, namespace, pod, signal) {
    try {
        const { data } = await ask("pod", [["namespace", namespace], ["name", pod]], signal);
        patch(facts, el("dl", { class: "facts" }, ...(data.place ? [
            fact("Queue", PLACES.get(data.place) ?? data.place),
            fact("Since", time(data.since)),
            fact("Attempts", data.attempts),
            ...(data.firstTried ? [fact("First tried", time(data.firstTried))] : []),
            ...(data.place === "backoff" && data.backoffUntil ? [fact("Backoff ends", time(data.backoffUntil))] : []),
            fact("Priority", data.priority),
        ] : [])));
    } catch (error) {
        // The answer below says what is wrong. The last facts stay, unless the pod is gone.
        if (error instanceof Refused && error.status === 404) facts.replaceChildren();
    }
}

/** @param {any} data */
function fixes(data) {
    if (data.feasible.length > 0 || data.pod.node) return null;
    if (data.fixes.length === 0) {
        return data.preemption ? el("p", {}, "Preemption makes room on ", nodeLink(data.preemption)) : el("p", { class: "quiet" }, "None of the tried changes to the pod helps.");
    }
    return section("Each of these helps (tried)", el("ol", { class: "fixes" }, ...data.fixes.map((/** @type {any} */ fix) =>
        el("li", {}, fix.text, " ", copyButton("Copy", fix.text)))));
}

/** @param {number} nodes @param {Refusal[]} refusals */
function funnel(nodes, refusals) {
    const columns = [{ name: "Reason", wide: true }, { name: "Plugin" }, { name: "Nodes", number: true }, { name: "Only reason", number: true }, { name: "Left", number: true }];
    return table(`${count(nodes, "node")} in the order of the plugins; “left”: nodes that no plugin has rejected so far`, columns, refusals, ({ text, plugin, nodes: rejected, alone, left }) => [
        text, el("code", {}, plugin), rejected, alone, el("span", { class: "meter" }, bar(left, nodes), el("span", {}, left)),
    ]);
}

/** Nodes with the same rejections. @param {{ refusals: Refusal[], alike: Alike[] }} data */
function groups({ refusals, alike }) {
    return table("Nodes with the fewest reasons first", [{ name: "Nodes", number: true }, { name: "Rejected for", wide: true }, { name: "Such as" }], alike, ({ refusals: reasons, nodes, suchAs }) => [
        count(nodes, "node"),
        el("ul", { class: "plain" }, ...reasons.map((at) => el("li", {}, refusals[at].text))),
        el("span", {}, ...suchAs.flatMap((node, at) => [at > 0 ? ", " : "", nodeLink(node)]), nodes > suchAs.length ? ` and ${(nodes - suchAs.length).toLocaleString("en")} more` : ""),
    ]);
}

/** @param {any} data */
function cut({ fitting, feasible }) {
    return fitting > feasible.length ? el("p", { class: "quiet" }, `The best ${feasible.length} of ${count(fitting, "node")}.`) : null;
}

/** @param {any[]} feasible */
function scores(feasible) {
    const plugins = [...new Set(feasible.flatMap(({ plugins }) => Object.keys(plugins)))];
    const shown = plugins.filter((plugin) => new Set(feasible.map((node) => node.plugins[plugin]?.normalized)).size > 1);
    const best = feasible.reduce((most, { score }) => Math.max(most, score), 1);
    const columns = [{ name: "Node" }, { name: "Score", number: true }, ...shown.map((plugin) => ({ name: plugin, number: true }))];
    return table("The best node first; plugins that score all nodes alike are left out", columns, feasible, (node) => [
        nodeLink(node.node), el("span", { class: "meter" }, bar(node.score, best), el("span", {}, node.score)),
        ...shown.map((plugin) => { const it = node.plugins[plugin]; return it ? it.normalized * it.weight : ""; }),
    ]);
}
