// An answer: its sentence, its time, and its parts, which are replaced only where they differ.

import { Refused, ask } from "./api.js";
import { arrange, capital, commandOf, el, keepRows, printable, problem, set, time } from "./dom.js";

/** Parts have an order, and names by which they are known again. @typedef {{ headline: string, parts: Record<string, HTMLElement | null> }} Shown */
/**
 * @typedef {object} Question
 * @property {string} path
 * @property {[string, string][]} parameters
 * @property {string[] | null} words The command that asks the same; `null` if there is none.
 * @property {(data: any, asOf: string) => Shown} show
 * @property {string} [gone] The sentence if there is no such thing; else it is the server's.
 */
/**
 * Where the first line of an answer goes, and what is around it. `made` gets a function that shows
 * the last answer again. `period` is the shortest time between two questions, in milliseconds.
 *
 * @typedef {{ headline?: HTMLElement, root?: HTMLElement, period?: number, made?: (redraw: () => void) => void }} Frame
 */
/**
 * `load` asks. Its answer is not shown if nobody wants it once it is there.
 *
 * @typedef {(isUnwanted?: () => boolean) => Promise<void>} Load
 * @typedef {{ elements: HTMLElement[], load: Load, redraw: () => void }} Answer
 */

/** The shortest time between two questions, in milliseconds. */
const PERIOD = 4_000;
/** A view waits for at most one part in this many of the time. */
const SHARE = 10;
/** What is asked about is not there, or no longer. */
const GONE = [404, 422];

/**
 * Shows the answer, and asks again when the cluster has changed.
 *
 * @param {import("./main.js").Context} context
 * @param {Question} question
 * @param {HTMLElement[]} [controls] What is between the sentence and the rest.
 * @param {Frame} [frame]
 */
export async function follow(context, question, controls = [], { headline, root = context.root, period, made = () => {} } = {}) {
    const sentence = headline ?? el("h1", { "aria-live": "polite" });
    set(sentence, "Asking the scheduler …");
    const { elements, load, redraw } = answer(question, sentence, context.signal);
    made(redraw);
    root.append(sentence, ...controls, ...elements);
    await again(context, load, period);
}

/**
 * An answer that stays until somebody wants it again.
 *
 * @param {Question} question
 * @param {HTMLElement} sentence Where the first line of the answer goes.
 * @param {AbortSignal} signal
 * @returns {Answer}
 */
export function simulate(question, sentence, signal) {
    const again = el("button", { type: "button", click: () => load() }, "Run again");
    const { elements, load: once, redraw } = answer(question, sentence, signal, [again]);
    let isBusy = false;
    const load = async () => {
        if (isBusy) return;
        isBusy = true;
        set(sentence, "Simulating …");
        await once();
        isBusy = false;
    };
    return { elements, load, redraw };
}

/**
 * The answer to a question, which `load` asks.
 *
 * @param {Question} question
 * @param {HTMLElement} sentence
 * @param {AbortSignal} signal
 * @param {HTMLElement[]} [actions] What is beside the time.
 * @returns {Answer}
 */
function answer({ path, parameters, words, show, gone }, sentence, signal, actions = []) {
    const when = el("span", {});
    const note = el("span", {});
    const line = el("p", { class: "as-of", hidden: true }, when, note, ...actions);
    const trouble = el("div", { hidden: true });
    /** @type {unknown} */
    let data = null;
    let asOf = "";
    const make = () => (data === null ? {} : show(data, asOf).parts);
    const parts = new Parts(
        (isLate) => set(note, isLate ? "Part of this answer is older. It updates when you leave it." : ""),
        make,
    );
    const { footer, fill } = jsonDetails(words);
    let said = "";
    /** @param {unknown} error */
    const fail = (error) => {
        const isGone = error instanceof Refused && GONE.includes(error.status);
        if (isGone) {
            // The last answer is about something else now.
            data = null;
            parts.show({});
            said = printable(gone ?? capital(error.message));
            line.hidden = footer.hidden = true;
            set(when, "");
        }
        set(sentence, said || "No answer");
        const fresh = isGone ? [] : [problem(error)];
        if (trouble.textContent !== (fresh[0]?.textContent ?? "")) trouble.replaceChildren(...fresh);
        trouble.hidden = isGone;
        if (actions.length > 0) line.hidden = false;
    };
    /** @type {Load} */
    const load = async (isUnwanted = () => false) => {
        try {
            const found = await ask(path, parameters, signal);
            if (signal.aborted || isUnwanted()) return;
            const shown = show(found.data, found.asOf);
            ({ data, asOf } = found);
            said = printable(shown.headline);
            set(sentence, said);
            set(when, found.asOf ? `As of ${time(found.asOf)}` : "");
            parts.show(shown.parts);
            fill(data);
            trouble.replaceChildren();
            trouble.hidden = true;
            line.hidden = footer.hidden = false;
        } catch (error) {
            if (!signal.aborted && !isUnwanted()) fail(error);
        }
    };
    return { elements: [line, trouble, parts.root, footer], load, redraw: () => parts.show(make()) };
}

/** The command that asks the same, and the answer as JSON. @param {string[] | null} words */
function jsonDetails(words) {
    /** @type {unknown} */
    let data = null;
    const json = el("pre", { tabindex: 0 });
    const details = /** @type {HTMLDetailsElement} */ (el("details", {}, el("summary", {}, "JSON"), json));
    const write = () => {
        if (details.open) set(json, printable(JSON.stringify(data, null, 2)));
    };
    // A person may read it, or copy from it.
    const writeUnlessUsed = () => {
        const selection = getSelection();
        const isSelected = selection && !selection.isCollapsed && selection.containsNode(json, true);
        if (!isSelected && !json.matches(":focus, :active")) write();
    };
    details.addEventListener("toggle", write);
    json.addEventListener("blur", () => setTimeout(writeUnlessUsed));
    const command = words && commandOf(words);
    const footer = el("footer", { class: "elsewhere", hidden: true }, command, details);
    /** @param {unknown} newest */
    const fill = (newest) => {
        data = newest;
        writeUnlessUsed();
    };
    return { footer, fill };
}

/** The parts of an answer. A part in use is replaced after it loses the focus. */
class Parts {
    /**
     * @param {(isLate: boolean) => void} say Whether something shown is old.
     * @param {() => Record<string, HTMLElement | null>} make Makes the parts of the newest answer.
     */
    constructor(say, make) {
        this.say = say;
        this.isLate = false;
        this.root = el("div", { class: "answer" });
        /** Each with a copy of how it was made, because a person may have changed it. @type {Map<string, { element: HTMLElement, made: Node }>} */
        this.shown = new Map();
        // The next element has the focus only after the event. Parts are made again, because a
        // person may have chosen something since the answer came.
        this.root.addEventListener("focusout", () => setTimeout(() => {
            if (this.isLate) this.show(make());
        }));
    }

    /** @param {Record<string, HTMLElement | null>} parts */
    show(parts) {
        const next = new Map();
        this.isLate = false;
        for (const name of new Set([...Object.keys(parts), ...this.shown.keys()])) {
            const [old, fresh] = [this.shown.get(name), parts[name]];
            if (old && fresh) keepRows(old.element, fresh);
            const isSame = old && fresh && (old.made.isEqualNode(fresh) || old.element.isEqualNode(fresh));
            const isUsed = old?.element.matches(":focus-within, :active");
            if (isSame || isUsed) next.set(name, old);
            else if (fresh) next.set(name, { element: fresh, made: fresh.cloneNode(true) });
            this.isLate ||= Boolean(isUsed && !isSame);
        }
        this.shown = next;
        arrange(this.root, [...next.values()].map(({ element }) => element));
        this.say(this.isLate);
    }
}

/**
 * Calls `load` now and when the cluster has changed, one call at a time.
 *
 * @param {import("./main.js").Context} context
 * @param {Load} load
 * @param {number} [period] The shortest time between two calls, in milliseconds: longer if they take long.
 */
export async function again({ live, signal }, load, period = PERIOD) {
    // Nobody waits for a record to change by itself.
    let shortest = live.isReplay ? 0 : period;
    let isBusy = false;
    let asked = -Infinity;
    let isDue = false;
    /** @param {boolean} isFirst Whether the view has just been opened. */
    const once = async (isFirst) => {
        isBusy = true;
        isDue = false;
        asked = performance.now();
        // A pause may have begun meanwhile. After it, the stream brings a new state.
        await load(() => live.isPaused && !isFirst);
        if (!live.isReplay) shortest = Math.max(period, SHARE * (performance.now() - asked));
        isBusy = false;
    };
    const changed = () => { isDue = true; };
    live.listeners.add(changed);
    const timer = setInterval(() => {
        if (isDue && !isBusy && !live.isPaused && performance.now() - asked >= shortest) once(false);
    }, 500);
    signal.addEventListener("abort", () => {
        clearInterval(timer);
        live.listeners.delete(changed);
    });
    await once(true);
}
