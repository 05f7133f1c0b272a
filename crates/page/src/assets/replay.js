// A record or a capture: a bar that moves through its time.

import { ask } from "./api.js";
import { capital, count, el, set, time } from "./dom.js";

/** @typedef {{ begin: string, end: string, now: string, capture: boolean, cycles: number[] }} Place */

/** The parts of a record that are played, and how often one begins, in milliseconds. */
const STEPS = 60;
const PERIOD = 1_000;
/** The parts that an arrow key goes through one by one. */
const KEY_STEPS = 200;
const KEYS = new Map(Object.entries({ ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }));

/** Whether the page shows a record. */
export const isReplay = document.documentElement.dataset.replay !== undefined;

/** The bar, for as long as the page is open. @param {import("./live.js").Live} live @returns {Promise<HTMLElement>} */
export async function scrubBar(live) {
    const never = new AbortController().signal;
    const load = async (/** @type {string | null} */ to) => /** @type {Place} */ ((await ask("replay", to === null ? [] : [["to", to]], never)).data);
    const { begin, end, now, capture, cycles } = await load(null);
    const [first, last] = [begin, end].map(millis);
    if (capture) return el("div", { class: "scrub" }, el("p", {}, `A capture of ${time(begin)}`));
    const shown = el("span", { class: "at" });
    const range = /** @type {HTMLInputElement} */ (el("input", { type: "range", min: first, max: last, step: 1, "aria-label": "Time in the record" }));
    const say = (/** @type {number} */ at) => {
        const text = time(new Date(at).toISOString());
        set(shown, text);
        range.setAttribute("aria-valuetext", text);
    };
    /** @param {number} at */
    const move = (at) => {
        range.value = String(at);
        say(Number(range.value));
    };
    move(millis(now));
    let isBusy = false;
    let isDragged = false;
    // Where this tab went last, and the time of the state there, which may be earlier.
    let [gone, there] = [range.value, millis(now)];
    /** Goes where the bar is, and there again if it was moved meanwhile. */
    const go = async () => {
        isDragged = false;
        if (isBusy) return;
        isBusy = true;
        try {
            do {
                gone = range.value;
                there = millis((await load(new Date(Number(gone)).toISOString())).now);
            } while (gone !== range.value);
            note.textContent = "";
        } catch (error) {
            note.textContent = capital(error instanceof Error ? error.message : String(error));
        }
        isBusy = false;
    };
    // Another tab may move through the same record. The stream may tell the time before a seek again.
    let heard = now;
    live.listeners.add(({ asOf }) => {
        if (asOf === heard) return;
        heard = asOf;
        if (isBusy || isDragged || playing !== undefined) return;
        const at = millis(asOf);
        move(at === there ? Number(gone) : at);
    });
    /** @type {ReturnType<typeof setInterval> | undefined} */
    let playing;
    const play = el("button", { type: "button" }, "Play");
    const stop = () => {
        clearInterval(playing);
        playing = undefined;
        play.textContent = "Play";
    };
    const next = () => {
        if (isBusy) return;
        move(Number(range.value) + Math.ceil((last - first) / STEPS));
        if (Number(range.value) >= last) stop();
        go();
    };
    play.addEventListener("click", () => {
        if (playing !== undefined) return stop();
        if (Number(range.value) >= last) range.value = String(first);
        play.textContent = "Pause";
        playing = setInterval(next, PERIOD);
        next();
    });
    range.addEventListener("keydown", (event) => {
        const way = KEYS.get(event.key);
        if (way === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        stop();
        move(Number(range.value) + way * Math.max(1, Math.ceil((last - first) / KEY_STEPS)));
        go();
    });
    range.addEventListener("input", () => {
        isDragged = true;
        stop();
        say(Number(range.value));
    });
    range.addEventListener("change", go);
    range.addEventListener("pointerup", () => { isDragged = false; });
    const note = el("p", { class: "problem", role: "status" });
    const most = Math.max(1, ...cycles);
    const all = cycles.reduce((sum, number) => sum + number, 0);
    const drawing = all === 0 ? null : el("div", { class: "cycles", role: "img", "aria-label": `${count(all, "scheduling cycle")}, at most ${most} in one of ${cycles.length} parts` },
        ...cycles.map((number) => el("span", { "--part": `${((100 * number) / most).toFixed(0)}%` })));
    return el("div", { class: "scrub", role: "group", "aria-label": "Replay" }, play,
        el("div", { class: "through" }, drawing, range, el("p", {}, el("span", {}, time(begin)), el("span", {}, time(end)))), shown, note);
}

/** @param {string} text */
function millis(text) {
    return new Date(text).getTime();
}
