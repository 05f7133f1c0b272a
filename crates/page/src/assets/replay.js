// A record or a capture: a bar that moves through its time.

import { ask } from "./api.js";
import { capital, count, el, set, time } from "./dom.js";

/** @typedef {{ begin: string, end: string, now: string, cycles: number[] }} Place */

/** The parts of a record that are played, and how often one begins, in milliseconds. */
const STEPS = 60;
const PERIOD = 1_000;

/** Whether the page shows a record. */
export const isReplay = document.documentElement.dataset.replay !== undefined;

/** The bar, for as long as the page is open. @returns {Promise<HTMLElement>} */
export async function scrubBar() {
    const never = new AbortController().signal;
    const load = async (/** @type {string | null} */ to) => /** @type {Place} */ ((await ask("replay", to === null ? [] : [["to", to]], never)).data);
    const { begin, end, now, cycles } = await load(null);
    const [first, last] = [new Date(begin).getTime(), new Date(end).getTime()];
    if (first === last) return el("div", { class: "scrub" }, el("p", {}, `A capture of ${time(begin)}`));
    const shown = el("output", {});
    const range = /** @type {HTMLInputElement} */ (el("input", { type: "range", min: first, max: last, step: 1, "aria-label": "Time in the record" }));
    const say = (/** @type {number} */ at) => {
        const text = time(new Date(at).toISOString());
        set(shown, text);
        range.setAttribute("aria-valuetext", text);
    };
    range.value = String(new Date(now).getTime());
    say(Number(range.value));
    let isBusy = false;
    /** Goes where the bar is, and there again if it was moved meanwhile. */
    const go = async () => {
        if (isBusy) return;
        isBusy = true;
        let gone = "";
        try {
            while (gone !== range.value) {
                gone = range.value;
                await load(new Date(Number(gone)).toISOString());
            }
            note.textContent = "";
        } catch (error) {
            note.textContent = capital(error instanceof Error ? error.message : String(error));
        }
        isBusy = false;
    };
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
        range.value = String(Number(range.value) + Math.ceil((last - first) / STEPS));
        say(Number(range.value));
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
    range.addEventListener("input", () => {
        stop();
        say(Number(range.value));
    });
    range.addEventListener("change", go);
    const note = el("p", { class: "problem", role: "status" });
    const most = Math.max(1, ...cycles);
    const all = cycles.reduce((sum, number) => sum + number, 0);
    const drawing = all === 0 ? null : el("div", { class: "cycles", role: "img", "aria-label": `${count(all, "scheduling cycle")}, at most ${most} in one of ${cycles.length} parts` },
        ...cycles.map((number) => el("span", { "--part": `${((100 * number) / most).toFixed(0)}%` })));
    return el("div", { class: "scrub", role: "group", "aria-label": "Replay" }, play,
        el("div", { class: "through" }, drawing, range, el("p", {}, el("span", {}, time(begin)), el("span", {}, time(end)))), shown, note);
}
