// An answer that is asked again when the cluster has changed.

import { ask } from "./api.js";
import { el, printable, problem } from "./dom.js";

/** @typedef {{ headline: string, body: Node[] }} Shown */

/** The shortest time between two questions, in milliseconds. */
const PERIOD = 4_000;

/**
 * Shows the answer in `root`, with its sentence first.
 *
 * @param {import("./main.js").Context} context
 * @param {string} path
 * @param {[string, string][]} parameters
 * @param {(data: any, good: boolean) => Shown} show
 * @param {Node[]} [controls] What is between the sentence and the rest.
 */
export async function follow(context, path, parameters, show, controls = []) {
    const { root, signal } = context;
    const headline = el("h1", { "aria-live": "polite" }, "Asking the scheduler …");
    const body = el("div", { class: "answer" });
    root.append(headline, ...controls, body);
    let last = "";
    await again(context, async () => {
        try {
            const { data, good } = await ask(path, parameters, signal);
            const text = JSON.stringify({ ...data, asOf: null });
            if (text !== last) replace(body, headline, show(data, good));
            last = text;
        } catch (error) {
            if (signal.aborted) return;
            if (last === "") headline.textContent = "No answer";
            body.querySelector(".problem")?.remove();
            body.prepend(problem(error));
            last += " ";
        }
    });
}

/**
 * Calls `load` now and when the cluster has changed, one call at a time.
 *
 * @param {import("./main.js").Context} context
 * @param {() => Promise<void>} load
 */
export async function again({ live, signal }, load) {
    let busy = false;
    let asked = -Infinity;
    let due = false;
    const once = async () => {
        busy = true;
        due = false;
        asked = performance.now();
        await load();
        busy = false;
    };
    const changed = () => { due = true; };
    live.listeners.add(changed);
    const timer = setInterval(() => {
        if (due && !busy && performance.now() - asked >= PERIOD) once();
    }, 500);
    signal.addEventListener("abort", () => {
        clearInterval(timer);
        live.listeners.delete(changed);
    });
    await once();
}

/** Replaces the body, and keeps what is open and what has the focus. @param {HTMLElement} body @param {HTMLElement} headline @param {Shown} shown */
function replace(body, headline, shown) {
    const text = printable(shown.headline);
    if (headline.textContent !== text) headline.textContent = text;
    const open = [...body.querySelectorAll("details")].map((details) => details.open);
    const targets = () => [...body.querySelectorAll("a, button, input, select, summary, [tabindex]")];
    const focused = targets().indexOf(/** @type {Element} */ (document.activeElement));
    body.replaceChildren(...shown.body);
    body.querySelectorAll("details").forEach((details, at) => { details.open = open[at] ?? details.open; });
    if (focused >= 0) /** @type {HTMLElement | undefined} */ (targets()[focused])?.focus({ preventScroll: true });
}
