// Where pods go if something changes. Nothing is changed in the cluster.

import { ask } from "./api.js";
import { again, simulate } from "./asked.js";
import { bar, count, el, fragment, go, name, nodeLink, patch, podLink, printable, section, table, time } from "./dom.js";

/** @typedef {{ title: string, of: "node" | "pod", counted?: boolean }} Verb */

/** The scheduler adds nodes first, and drains last. @type {Map<string, Verb>} */
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
/** The most runs beside the one that is shown. */
const MOST_BESIDE = 3;

/** The changes of a run. @typedef {[string, string][]} Changes */

/** @param {URLSearchParams} parameters @returns {Changes} */
function changesOf(parameters) {
    return [...parameters].filter(([verb]) => VERBS.has(verb));
}

/** @param {import("./main.js").Context} context */
export async function whatIf(context) {
    const { place, live, root, signal } = context;
    const changes = changesOf(place.parameters);
    const beside = place.parameters.getAll("beside").map((text) => changesOf(new URLSearchParams(text))).filter((run) => run.length > 0).slice(0, MOST_BESIDE);
    const headline = el("h1", { "aria-live": "polite" }, "Choose what changes");
    root.append(headline, chips(changes, beside), form(changes, beside, live));
    const compared = new Comparison(changes, beside, signal);
    if (changes.length === 0) {
        root.append(el("p", { class: "quiet" }, "The scheduler simulates it on a copy of its state. Nothing is changed in the cluster."), compared.root);
        await run(context, () => compared.ask());
        return;
    }
    const { elements, load } = simulate({
        path: "what-if",
        parameters: changes,
        words: ["what-if", ...changes.map(([verb, value]) => `--${verb}=${value}`)],
        show: (data, asOf) => {
            compared.add(changes, data, asOf);
            return { headline: data.headline, parts: parts(data, zonesOf(live.model)) };
        },
    }, headline, signal);
    const keep = beside.length < MOST_BESIDE ? el("p", { class: "actions" }, el("a", { href: link([], [changes, ...beside]) }, "Keep this run, and try another beside it")) : null;
    root.append(...(keep ? [keep] : []), compared.root, ...elements);
    await run(context, async () => {
        await load();
        await compared.ask();
    });
}

/** Runs now, and again when a person moves through a record. @param {import("./main.js").Context} context @param {() => Promise<void>} load */
async function run(context, load) {
    await (context.live.isReplay ? again(context, load) : load());
}

/** @param {Changes} changes @param {Changes[]} beside */
function link(changes, beside) {
    const inOrder = [...VERBS.keys()].map((verb) => [verb, changes.filter(([it]) => it === verb).map(([, value]) => value)]);
    const kept = beside.map((run) => new URLSearchParams(run).toString());
    return fragment(["what-if"], { ...Object.fromEntries(inOrder), beside: kept });
}

/** Several runs in one table. */
class Comparison {
    /** @param {Changes} changes @param {Changes[]} beside @param {AbortSignal} signal */
    constructor(changes, beside, signal) {
        this.changes = changes;
        this.beside = beside;
        this.signal = signal;
        /** Answers and the times of their states, or why there is none, by run. @type {Map<string, { data: any, asOf: string }>} */
        this.answers = new Map();
        this.root = el("div", { class: "table" });
        this.draw();
    }

    /** @param {Changes} run @param {any} data @param {string} asOf */
    add(run, data, asOf) {
        this.answers.set(JSON.stringify(run), { data, asOf });
        this.draw();
    }

    /** Asks for the runs beside, one after the other: the server answers few at a time. */
    async ask() {
        const runs = new Map(this.beside.map((run) => [JSON.stringify(run), run]));
        runs.delete(JSON.stringify(this.changes));
        for (const run of runs.values()) {
            try {
                const { data, asOf } = await ask("what-if", run, this.signal);
                this.add(run, data, asOf);
            } catch (error) {
                if (this.signal.aborted) return;
                this.add(run, { problem: error instanceof Error ? error.message : String(error) }, "");
            }
        }
    }

    draw() {
        if (this.beside.length === 0) return;
        const runs = [...(this.changes.length > 0 ? [this.changes] : []), ...this.beside];
        const of = (/** @type {Changes} */ run) => this.answers.get(JSON.stringify(run));
        const times = new Set(runs.map((run) => of(run)?.asOf).filter(Boolean).map((asOf) => time(asOf ?? "")));
        const number = (/** @type {Changes} */ run, /** @type {boolean} */ worse) =>
            of(run)?.data.pods?.filter((/** @type {any} */ it) => it.worse === worse).length;
        const most = (/** @type {boolean} */ worse) => Math.max(1, ...runs.map((run) => number(run, worse) ?? 0));
        const meter = (/** @type {Changes} */ run, /** @type {boolean} */ worse) => {
            const pods = number(run, worse);
            return pods === undefined ? "" : el("span", { class: "meter" }, bar(pods, most(worse)), el("span", {}, pods.toLocaleString("en")));
        };
        const answer = (/** @type {Changes} */ run) => {
            const { data, asOf } = of(run) ?? { data: { problem: "Simulating …" }, asOf: "" };
            return `${data.problem ?? data.headline}${asOf && times.size > 1 ? ` (as of ${time(asOf)})` : ""}`;
        };
        const columns = [{ name: "Changes" }, { name: "Left unscheduled", number: true }, { name: "Moved", number: true }, { name: "Answer", wide: true }, { name: "Run" }];
        const fresh = table("Runs beside each other", columns, runs, (run) => {
            const others = this.beside.filter((it) => it !== run);
            const isShown = run === this.changes;
            const swapped = [...(this.changes.length > 0 ? [this.changes] : []), ...others];
            return [
                el("ul", { class: "plain" }, ...run.map(([verb, value]) => el("li", {}, `${VERBS.get(verb)?.title} `, name(value)))),
                meter(run, true), meter(run, false), answer(run),
                isShown ? "shown below" : el("span", { class: "actions" }, el("a", { href: link(run, swapped) }, "Show"), el("a", { href: link(this.changes, others) }, "Remove")),
            ];
        });
        // A link with the focus stays.
        const old = this.root.firstElementChild;
        if (old) patch(old, fresh);
        else this.root.append(fresh);
    }
}

/** @param {Changes} changes @param {Changes[]} beside */
function chips(changes, beside) {
    return el("ul", { class: "chips", "aria-label": "Changes" }, ...changes.map(([verb, value], at) =>
        el("li", {}, el("span", {}, `${VERBS.get(verb)?.title} `, name(value)),
            el("a", { href: link(changes.filter((_, i) => i !== at), beside), "aria-label": `Remove: ${VERBS.get(verb)?.title} ${printable(value)}` }, el("span", { "aria-hidden": "true" }, "×")))));
}

/** A chip per verb, of which one is chosen. @param {(verb: string) => void} then */
function verbs(then) {
    return el("fieldset", { class: "verbs" }, el("legend", {}, "Change"), ...[...VERBS].map(([key, { title }], at) => el("label", {},
        el("input", { type: "radio", name: "verb", value: key, checked: at === 0, change: () => then(key) }), el("span", {}, title))));
}

/** @param {Changes} changes @param {Changes[]} beside @param {import("./live.js").Live} live */
function form(changes, beside, live) {
    const target = /** @type {HTMLInputElement} */ (el("input", { name: "target", list: "targets", required: true, autocomplete: "off", spellcheck: "false" }));
    const number = /** @type {HTMLInputElement} */ (el("input", { name: "count", type: "number", min: 1, max: 100000, value: 1 }));
    const hint = el("span", {});
    const howMany = el("label", {}, "How many ", number);
    let chosen = "drain";
    const choose = (/** @type {string} */ verb) => {
        chosen = verb;
        const { of, counted = false } = VERBS.get(verb) ?? { of: "node" };
        hint.textContent = of === "node" ? "Node, or KEY=VALUE for all nodes with the label" : "Pod: NAMESPACE/NAME";
        howMany.hidden = !counted;
    };
    choose(chosen);
    const names = live.model && !live.model.grouped ? live.model.tiles.names.slice(0, MOST_SUGGESTIONS) : [];
    const element = el("form", { class: "ask" },
        verbs(choose), el("label", {}, hint, " ", target), howMany,
        el("datalist", { id: "targets" }, ...names.map((node) => el("option", { value: printable(node) }))),
        el("button", { type: "submit" }, "Simulate"));
    element.addEventListener("submit", (event) => {
        event.preventDefault();
        const value = target.value.trim();
        if (!value) return;
        go(link([...changes, [chosen, VERBS.get(chosen)?.counted ? `${value}=${number.value}` : value]], beside));
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
