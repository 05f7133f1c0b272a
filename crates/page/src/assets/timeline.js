// What happened to a pod: lanes over time, and the same as a table.

import { follow } from "./asked.js";
import { duration, el, section, table, time } from "./dom.js";

/** @typedef {{ event: string, time: string, text: string }} Happening */
/** @typedef {{ state: string, from: number, to: number }} Span */

/** The state of a pod after an event. Other events leave it as it is. @type {Map<string, string | null>} */
const STATES = new Map([
    ["Added", "queued"], ["Released", "queued"], ["Woken", "queued"], ["GaveUp", "queued"],
    ["Gated", "held"], ["Failed", "waiting"], ["Waits", "permit"],
    ["Chosen", "binding"], ["Permitted", "binding"],
    ["Bound", null], ["BoundElsewhere", null], ["Deleted", null], ["Ended", null],
]);
/** Lanes from top to bottom. @type {[string, string][]} */
const LANES = [["held", "Held"], ["queued", "Queued"], ["waiting", "Rejected"], ["permit", "On Permit"], ["binding", "Binding"]];

/** The timeline of a pod, which may be gone. @param {import("./main.js").Context} context @param {string} key `namespace/name` */
export function timeline(context, key) {
    const root = section("Timeline");
    context.root.append(root);
    const headline = el("p", {});
    return follow(context, {
        path: "timeline",
        parameters: [["pod", key]],
        words: ["timeline", key],
        show: (data) => ({
            headline: data.headline,
            parts: {
                lanes: lanes(data.events),
                events: table("Times of the scheduler", [{ name: "Time" }, { name: "After", number: true }, { name: "Event", wide: true }], rows(data.events), (row) => row),
                begin: data.logBegins ? el("p", { class: "quiet" }, `The log begins at ${time(data.logBegins)}.`) : null,
            },
        }),
    }, [], { headline, root });
}

/** @param {Happening[]} events */
function rows(events) {
    return events.map((event, at) => [time(event.time), at > 0 ? duration(millis(event) - millis(events[at - 1])) : "–", event.text]);
}

/** @param {Happening} event */
function millis(event) {
    return new Date(event.time).getTime();
}

/** How long the pod was in each state. The last one has no end. @param {Happening[]} events @returns {Span[]} */
export function spans(events) {
    /** @type {Span[]} */
    const spans = [];
    /** @type {string | null} */
    let state = null;
    let from = 0;
    for (const event of events) {
        const next = STATES.get(event.event);
        if (next === undefined || next === state) continue;
        if (state !== null) spans.push({ state, from, to: millis(event) });
        [state, from] = [next, millis(event)];
    }
    if (state !== null) spans.push({ state, from, to: Infinity });
    return spans;
}

/** @param {Happening[]} events */
function lanes(events) {
    const all = spans(events);
    if (all.length === 0) return null;
    const first = Math.min(...all.map(({ from }) => from));
    const isOpen = all.some(({ to }) => to === Infinity);
    const known = Math.max(...all.map(({ from, to }) => (to === Infinity ? from : to)));
    // A state that lasts is seen to last.
    const end = isOpen ? known + Math.max(1, (known - first) / 5) : Math.max(known, first + 1);
    const part = (/** @type {number} */ at) => `${((100 * (Math.min(at, end) - first)) / (end - first)).toFixed(2)}%`;
    const drawn = LANES.filter(([state]) => all.some((span) => span.state === state));
    const lane = ([state, title] = ["", ""]) => el("div", { class: "lane" }, el("span", {}, title), el("span", { class: "track" },
        ...all.filter((span) => span.state === state).map(({ from, to }) =>
            el("span", { class: to === Infinity ? `span ${state} open` : `span ${state}`, "--from": part(from), "--to": part(to) }))));
    const total = (/** @type {string} */ state) => all.filter((span) => span.state === state && span.to !== Infinity).reduce((sum, { from, to }) => sum + to - from, 0);
    const words = drawn.map(([state, title]) => `${title}: ${all.some((span) => span.state === state && span.to === Infinity) ? "still" : duration(total(state))}`);
    return el("div", { class: "lanes", role: "img", "aria-label": `${words.join(", ")}. The table has each event.` }, ...drawn.map(lane),
        el("div", { class: "lane axis" }, el("span", {}), el("span", { class: "track" }, el("span", {}, time(new Date(first).toISOString())), el("span", {}, isOpen ? "until now" : `+ ${duration(known - first)}`))));
}
