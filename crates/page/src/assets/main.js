// The page: which view is shown, and whether it is current.

import { begin } from "./api.js";
import { capacity } from "./capacity.js";
import { el, printable, problem } from "./dom.js";
import { health } from "./health.js";
import { Live } from "./live.js";
import { node } from "./node.js";
import { overview } from "./overview.js";
import { pending } from "./pending.js";
import { pod } from "./pod.js";
import { search } from "./search.js";
import { whatIf } from "./what-if.js";

/** @typedef {{ path: string[], parameters: URLSearchParams }} Place */
/** @typedef {{ place: Place, live: Live, root: HTMLElement, signal: AbortSignal }} Context */
/**
 * A view fills `root`. It listens to `live` until `signal` is aborted.
 *
 * @typedef {(context: Context) => void | Promise<void>} View
 */

/** @type {Map<string, { title: string, view: View }>} */
const VIEWS = new Map([
    ["overview", { title: "Overview", view: overview }],
    ["pending", { title: "Pending", view: pending }],
    ["what-if", { title: "What if", view: whatIf }],
    ["capacity", { title: "Capacity", view: capacity }],
    ["health", { title: "Health", view: health }],
    ["pod", { title: "Pod", view: pod }],
    ["node", { title: "Node", view: node }],
]);
/** Views of one object have no link of their own. */
const LINKED = ["overview", "pending", "what-if", "capacity", "health"];
const THEMES = ["system", "light", "dark"];

const live = new Live();
let shown = new AbortController();

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
        await known.view({ place: here, live, root, signal });
    } catch (error) {
        if (!signal.aborted) root.append(problem(error));
    }
}

/** Says whether what is shown is current. */
function watchAge() {
    const state = byId("state");
    const banner = byId("banner");
    const tick = () => {
        const stale = live.stale();
        const text = stale ? "offline" : "live";
        if (state.textContent !== text) state.textContent = text;
        state.className = text;
        banner.hidden = !stale || (live.model === null && live.problem === null && live.age() < 2);
        if (banner.hidden) return;
        const since = live.model ? `What you see is ${live.age()} s old.` : "There is nothing to show yet.";
        const why = printable(live.problem ?? "the scheduler does not answer");
        banner.textContent = `${why.charAt(0).toUpperCase()}${why.slice(1)}. ${since} Trying again.`;
    };
    setInterval(tick, 500);
    tick();
}

function chooseTheme() {
    const button = byId("theme");
    let theme = localStorage.getItem("theme") ?? "system";
    const set = () => {
        if (!THEMES.includes(theme)) theme = "system";
        document.documentElement.dataset.theme = theme;
        button.textContent = { system: "Auto", light: "Light", dark: "Dark" }[theme] ?? "";
        button.setAttribute("aria-label", `Colours: ${theme}. Change`);
        dispatchEvent(new Event("themechange"));
    };
    button.addEventListener("click", () => {
        theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
        localStorage.setItem("theme", theme);
        set();
    });
    set();
}

async function main() {
    chooseTheme();
    byId("views").append(...LINKED.map((key) =>
        el("li", {}, el("a", { href: `#/${key}` }, VIEWS.get(key)?.title ?? key))));
    byId("skip").addEventListener("click", () => byId("main").focus());
    search(byId("search"));
    await begin();
    addEventListener("hashchange", () => show(true));
    watchAge();
    live.run();
    await show(false);
}

main();
