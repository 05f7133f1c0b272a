// The search box: pods and nodes by a part of their name.

import { ask } from "./api.js";
import { count, el, fragment, name, set } from "./dom.js";

/** How long a pause in typing is, in milliseconds. */
const PAUSE = 200;

/** @param {HTMLElement} place */
export function search(place) {
    const input = /** @type {HTMLInputElement} */ (el("input", { type: "search", placeholder: "Search (Ctrl K)", "aria-keyshortcuts": "Control+K", "aria-label": "Search pods and nodes", autocomplete: "off", spellcheck: "false" }));
    const found = el("ul", { id: "found", hidden: true });
    const status = el("p", { class: "unseen", role: "status" });
    place.append(input, found, status);
    let asked = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const close = () => {
        asked.abort();
        clearTimeout(timer);
        // Enter must not open what was found for another text.
        found.replaceChildren();
        found.hidden = true;
        set(status, "");
    };
    /** @param {Element[]} items @param {string} text */
    const show = (items, text) => {
        found.replaceChildren(...(items.length > 0 ? items : [el("li", { class: "quiet" }, text)]));
        found.hidden = false;
        set(status, text);
    };
    const look = async () => {
        asked = new AbortController();
        const { signal } = asked;
        try {
            const { data } = await ask("search", [["text", input.value.trim()]], signal);
            if (signal.aborted) return;
            const items = [
                ...data.nodes.map((/** @type {string} */ node) => item(fragment(["node", node]), node, "node")),
                ...data.pods.map((/** @type {any} */ pod) => item(fragment(["pod", pod.namespace, pod.name]), `${pod.namespace}/${pod.name}`, pod.pending ? "pending pod" : "pod")),
            ];
            const text = items.length > 0 ? `${count(items.length, "result")}: the down arrow goes to them` : "No pods or nodes match";
            if (data.isCut) items.push(el("li", { class: "quiet" }, "More match: type more of the name"));
            show(items, text);
        } catch {
            if (!signal.aborted) show([], "No answer");
        }
    };
    input.addEventListener("input", () => {
        close();
        if (input.value.trim() !== "") timer = setTimeout(look, PAUSE);
    });
    place.addEventListener("keydown", (event) => {
        const links = [...found.querySelectorAll("a")];
        const at = links.indexOf(/** @type {HTMLAnchorElement} */ (document.activeElement));
        if (event.key === "Escape") {
            close();
            input.focus();
        } else if (event.key === "ArrowDown") {
            links[Math.min(at + 1, links.length - 1)]?.focus();
        } else if (event.key === "ArrowUp") {
            (at > 0 ? links[at - 1] : input).focus();
        } else if (event.key === "Enter" && at < 0 && links.length > 0) {
            links[0].click();
        } else {
            return;
        }
        event.preventDefault();
        if (event.key === "Enter") event.stopPropagation();
    });
    found.addEventListener("click", () => {
        close();
        input.value = "";
    });
    place.addEventListener("focusout", (event) => {
        if (!place.contains(/** @type {Node | null} */ (event.relatedTarget))) close();
    });
    addEventListener("keydown", (event) => {
        // With Ctrl or Command: a letter alone could come from speech input.
        if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
        event.preventDefault();
        input.focus();
        input.select();
    });
}

/** @param {string} href @param {string} text @param {string} kind */
function item(href, text, kind) {
    return el("li", {}, el("a", { href }, name(text), " ", el("small", {}, kind)));
}
