// The page: which view is shown, and whether it is current.

import { begin, secret, store, stored } from "./api.js";
import { capacity } from "./capacity.js";
import { decisions } from "./decisions.js";
import { devices } from "./devices.js";
import { capital, el, printable, problem, set } from "./dom.js";
import { groups } from "./groups.js";
import { health } from "./health.js";
import { Live } from "./live.js";
import { node } from "./node.js";
import { overview } from "./overview.js";
import { pending } from "./pending.js";
import { pod } from "./pod.js";
import { isReplay, scrubBar } from "./replay.js";
import { search } from "./search.js";
import { whatIf } from "./what-if.js";

/** @typedef {{ path: string[], parameters: URLSearchParams }} Place */
/** @typedef {{ place: Place, live: Live, root: HTMLElement, signal: AbortSignal }} Context */
/**
 * A view fills `root`. It listens to `live` until `signal` is aborted. It may return how to show
 * other parameters without a new view.
 *
 * @typedef {(place: Place) => void} Turn
 * @typedef {(context: Context) => void | Turn | Promise<void>} View
 */

/** @type {Map<string, { title: string, view: View }>} */
const VIEWS = new Map([
    ["overview", { title: "Overview", view: overview }],
    ["pending", { title: "Pending", view: pending }],
    ["decisions", { title: "Decisions", view: decisions }],
    ["groups", { title: "Groups", view: groups }],
    ["devices", { title: "Devices", view: devices }],
    ["what-if", { title: "What if", view: whatIf }],
    ["capacity", { title: "Capacity", view: capacity }],
    ["health", { title: "Health", view: health }],
    ["pod", { title: "Pod", view: pod }],
    ["node", { title: "Node", view: node }],
]);
/** Views of one object have no link of their own. */
const LINKED = ["overview", "pending", "decisions", "groups", "devices", "what-if", "capacity", "health"];
const THEMES = ["system", "light", "dark"];

const live = new Live(isReplay);
let shown = new AbortController();
/** The fragment that is shown. @type {string | null} */
let shownHash = null;
/** @type {Turn | void} */
let turn;

/** @param {string} id */
function byId(id) {
    const element = document.getElementById(id);
    if (!element) throw new Error(`no element ${id}`);
    return element;
}

/** @returns {Place} */
function place() {
    const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
    const parts = path.split("/").filter(Boolean).map((part) => {
        try {
            return decodeURIComponent(part);
        } catch {
            return part;
        }
    });
    return { path: parts.length > 0 ? parts : ["overview"], parameters: new URLSearchParams(query) };
}

/** @param {boolean} focus */
async function show(focus) {
    const last = shownHash;
    shownHash = location.hash;
    if (turn && last !== shownHash && last?.split("?")[0] === shownHash.split("?")[0]) {
        turn(place());
        return;
    }
    turn = undefined;
    shown.abort();
    shown = new AbortController();
    const { signal } = shown;
    const here = place();
    const known = VIEWS.get(here.path[0]) ?? VIEWS.get("overview");
    if (!known) return;
    document.title = printable(`${[known.title, ...here.path.slice(1)].join(" ")} · supercargo`);
    for (const link of byId("views").querySelectorAll("a")) {
        const current = link.getAttribute("href") === `#/${here.path[0]}`;
        if (current) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    const root = el("article", { "data-view": here.path[0] });
    const main = byId("main");
    main.replaceChildren(root);
    if (focus) main.focus({ preventScroll: true });
    scrollTo(0, 0);
    try {
        const made = known.view({ place: here, live, root, signal });
        if (typeof made === "function") turn = made;
        else await made;
    } catch (error) {
        if (!signal.aborted) root.append(problem(error));
    }
}

/** Says whether what is shown is current. */
function watchAge() {
    const [state, banner, why, age] = ["state", "banner", "why", "age"].map(byId);
    const tick = () => {
        // A hidden page closes its stream, and nobody sees it.
        if (document.visibilityState === "hidden") return;
        const stale = live.stale();
        set(state, stale ? "offline" : isReplay ? "replay" : live.isPaused ? "paused" : "live");
        state.className = stale ? "offline" : live.isPaused ? "paused" : "live";
        banner.hidden = !stale;
        // An alert is read when its text is set. The age changes all the time, and is no alert.
        const reason = printable(live.problem ?? "the scheduler does not answer").replace(/\.$/, "");
        set(why, banner.hidden ? "" : `${capital(reason)}. Trying again.`);
        set(age, live.model ? `What you see is ${live.age()} s old.` : "There is nothing to show yet.");
    };
    setInterval(tick, 500);
    tick();
}

/** A page that changes by itself can be stopped, so that a person can read it. */
function pauseButton() {
    const button = byId("pause");
    button.hidden = isReplay;
    button.addEventListener("click", () => {
        live.pause(!live.isPaused);
        button.textContent = live.isPaused ? "Continue" : "Pause";
    });
}

function chooseTheme() {
    const button = byId("theme");
    let theme = stored("localStorage", "theme") ?? "system";
    const choose = () => {
        if (!THEMES.includes(theme)) theme = "system";
        document.documentElement.dataset.theme = theme;
        const text = { system: "Auto", light: "Light", dark: "Dark" }[theme] ?? "";
        button.textContent = text;
        button.setAttribute("aria-label", `${text} colours. Change`);
        dispatchEvent(new Event("themechange"));
    };
    button.addEventListener("click", () => {
        theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
        store("localStorage", "theme", theme);
        choose();
    });
    choose();
}

async function main() {
    chooseTheme();
    pauseButton();
    byId("views").append(...LINKED.map((key) =>
        el("li", {}, el("a", { href: `#/${key}` }, VIEWS.get(key)?.title ?? key))));
    byId("skip").addEventListener("click", () => byId("main").focus());
    search(byId("search"));
    addEventListener("hashchange", (event) => {
        if (!secret()) return;
        // It is another link of the command, opened in this tab.
        event.stopImmediatePropagation();
        location.reload();
    });
    await begin();
    addEventListener("hashchange", () => show(true));
    addEventListener("click", (event) => {
        const link = event.target instanceof Element ? event.target.closest("a") : null;
        // The browser goes nowhere by the link of the view that is shown; the view is asked again.
        if (link && link.hash === location.hash && !event.ctrlKey && !event.metaKey && !event.shiftKey) show(true);
    });
    watchAge();
    if (isReplay) byId("main").before(await scrubBar(live));
    live.run();
    await show(false);
}

main().catch((error) => byId("main").replaceChildren(problem(error)));
