// Elements, tables and what all views have. Names and messages come from strangers: they become
// text, never markup.

/** @typedef {Node | string | number | null | undefined} Child */
/** @typedef {{ name: string, number?: boolean, wide?: boolean }} Column */

/** What moves the writing direction, is not shown, or annotates. Lines and columns may break. */
const UNPRINTABLE = /(?![\t\n])[\p{Bidi_Control}\p{Default_Ignorable_Code_Point}\p{Cc}\p{Zl}\p{Zp}\ufff9-\ufffb]/gu;

/**
 * Makes an element. Texts are printable. Attributes that are functions are listeners, and those
 * named `--x` are properties of its style.
 *
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === "function") {
            element.addEventListener(name, value);
        } else if (name.startsWith("--")) {
            element.style.setProperty(name, String(value));
        } else if (value !== null && value !== undefined && value !== false) {
            element.setAttribute(name, value === true ? "" : String(value));
        }
    }
    element.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
        child instanceof Node ? child : printable(child)));
    return element;
}

/**
 * A text without characters that hide or reorder others.
 *
 * @param {unknown} text
 */
export function printable(text) {
    return String(text).replace(UNPRINTABLE, "\ufffd");
}

/** A text as a sentence begins. @param {string} text */
export function capital(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * A text by a stranger, whose writing direction ends with it.
 *
 * @param {unknown} text
 * @param {string} [kind]
 */
export function name(text, kind = "name") {
    return el("bdi", { class: kind }, printable(text));
}

/**
 * The fragment of a view.
 *
 * @param {string[]} path
 * @param {Record<string, string | string[] | null | undefined>} [parameters]
 */
export function fragment(path, parameters = {}) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(parameters)) {
        for (const one of Array.isArray(value) ? value : [value]) {
            if (one) query.append(key, one);
        }
    }
    const text = query.toString();
    return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Shows a view. The one that is shown already is asked again. @param {string} fragment */
export function go(fragment) {
    if (location.hash === fragment) dispatchEvent(new Event("hashchange"));
    else location.hash = fragment;
}

/** Sets a text unless it is the same: assistive technology reads a live region that is set. @param {Element} element @param {string} text */
export function set(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes these the children of an element, in this order. The child with the focus stays where it
 * is, so that it keeps the focus, and the others move around it.
 *
 * @param {Element} parent
 * @param {Element[]} wanted
 */
export function arrange(parent, wanted) {
    const kept = new Set(/** @type {Node[]} */ (wanted));
    for (const child of [...parent.childNodes]) {
        if (!kept.has(child)) child.remove();
    }
    /** @type {Element | null} */
    let next = null;
    for (const child of [...wanted].reverse()) {
        const stays = child.parentNode === parent && (child.nextSibling === next || child.contains(document.activeElement));
        if (!stays) parent.insertBefore(child, next);
        next = child;
    }
}

/**
 * Makes an element look like a new one, and keeps its parts where both have the same structure.
 * Listeners of the new one are lost.
 *
 * @param {Node} old
 * @param {Node} fresh
 */
export function patch(old, fresh) {
    if (old instanceof HTMLElement && fresh instanceof HTMLElement) {
        for (const { name, value } of fresh.attributes) {
            if (old.getAttribute(name) === value) continue;
            // The content security policy forbids the attribute, and not the property.
            if (name === "style") old.style.cssText = value;
            else old.setAttribute(name, value);
        }
        for (const { name } of [...old.attributes]) {
            if (!fresh.hasAttribute(name)) old.removeAttribute(name);
        }
        const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
        if (before.length === after.length && before.every(({ nodeName }, at) => nodeName === after[at].nodeName)) {
            before.forEach((child, at) => patch(child, after[at]));
        } else {
            old.replaceChildren(...after);
        }
    } else if (old.nodeValue !== fresh.nodeValue) {
        old.nodeValue = fresh.nodeValue;
    }
}

/** @param {string} namespace @param {string} pod */
export function podLink(namespace, pod) {
    return el("a", { href: fragment(["pod", namespace, pod]) }, name(`${namespace}/${pod}`));
}

/** @param {string} key `namespace/name` */
export function podLinkOf(key) {
    const [namespace = "", pod = ""] = key.split("/", 2);
    return podLink(namespace, pod);
}

/** @param {string} node */
export function nodeLink(node) {
    return el("a", { href: fragment(["node", node]) }, name(node));
}

/** A note about a list that is cut; `null` if all is shown. @param {number} shown @param {number} all @param {string} where Where the rest is. */
export function cutNote(shown, all, where) {
    if (shown >= all) return null;
    return el("p", { class: "quiet" }, `${shown.toLocaleString("en")} of ${all.toLocaleString("en")} shown${where}`);
}

/** @param {number} number @param {string} noun */
export function count(number, noun) {
    return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** What a share of half percents cannot exceed: it means this or more. */
const MOST_SHARE = 255;

/** A share in half percents. @param {number} share */
export function percent(share) {
    return share < MOST_SHARE ? `${Math.round(share / 2)} %` : `> ${Math.floor(MOST_SHARE / 2)} %`;
}

/** A time of day, with the date unless it is today. @param {string} text */
export function time(text) {
    const at = new Date(text);
    const today = at.toDateString() === new Date().toDateString();
    return at.toLocaleString("en-GB", today ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "medium" });
}

/** A length of time with at most two units. @param {number} millis */
export function duration(millis) {
    const seconds = Math.floor(millis / 1000);
    const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
    if (seconds < 1) return `${Math.round(millis)} ms`;
    if (seconds < 60) return `${(Math.floor(millis / 100) / 10).toFixed(1)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
    return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} min`;
}

/** A link in a row of choices, one of which is current. @param {string} label @param {[string, string, boolean][]} choices Their titles, fragments, and which is current. */
export function segments(label, choices) {
    return el("div", { class: "segments", role: "group", "aria-label": label }, ...choices.map(([title, href, isCurrent]) =>
        el("a", { href, "aria-current": isCurrent ? "true" : null }, title)));
}

/** The most rows of a table at first, and those that are added. */
const MOST_ROWS = 200;

/**
 * A table with a caption. Rows are made when they are shown.
 *
 * @template T
 * @param {string} caption
 * @param {Column[]} columns
 * @param {T[]} items
 * @param {(item: T) => Child[]} cells The row of an item.
 */
export function table(caption, columns, items, cells) {
    const classOf = (/** @type {number} */ at) => (columns[at].number ? "number" : columns[at].wide ? "wide" : null);
    const row = (/** @type {T} */ item) => el("tr", {}, ...cells(item).map((cell, at) =>
        at === 0 ? el("th", { scope: "row", class: classOf(at) }, cell) : el("td", { class: classOf(at) }, cell)));
    const body = el("tbody", {});
    const more = el("button", { type: "button", class: "more" });
    let shown = 0;
    const show = () => {
        const next = items.slice(shown, shown + MOST_ROWS);
        body.append(...next.map(row));
        shown += next.length;
        more.hidden = shown >= items.length;
        more.textContent = `Show more: ${shown.toLocaleString("en")} of ${items.length.toLocaleString("en")} shown`;
    };
    show();
    const head = columns.map((column, at) => el("th", { scope: "col", class: classOf(at) }, column.name));
    const region = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
        el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)), body));
    more.addEventListener("click", () => {
        show();
        // A button that is hidden loses the focus.
        if (more.hidden) region.focus({ preventScroll: true });
    });
    return el("div", { class: "table" }, region, more);
}

/**
 * Shows at least as many rows of new tables as of the old ones.
 *
 * @param {Element} old
 * @param {Element} fresh
 */
export function keepRows(old, fresh) {
    const before = old.querySelectorAll("tbody");
    fresh.querySelectorAll("tbody").forEach((body, at) => {
        const more = /** @type {HTMLElement | null} */ (body.closest(".table")?.querySelector("button.more"));
        while (more && !more.hidden && body.rows.length < (before[at]?.rows.length ?? 0)) more.click();
    });
}

/** @param {string} word */
function quoted(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/**
 * A button that copies a text.
 *
 * @param {string} label
 * @param {string} text
 */
export function copyButton(label, text) {
    const button = el("button", { type: "button" }, label);
    button.addEventListener("click", async () => {
        let said = "Copied";
        try {
            await navigator.clipboard.writeText(printable(text));
        } catch {
            said = "Cannot copy";
        }
        button.textContent = said;
        setTimeout(() => { button.textContent = label; }, 1500);
    });
    return button;
}

/** The options of the command that serves this page; `null` if no command asks what the page asks. @type {string[] | null} */
const OPTIONS = JSON.parse(document.documentElement.dataset.options ?? "[]");

/** The command that asks the same, if there is one. @param {string[]} words */
export function commandOf(words) {
    if (OPTIONS === null) return null;
    const command = ["kubectl", "supercargo", ...[...words, ...OPTIONS].map(quoted)].join(" ");
    return el("div", { class: "command" }, el("code", {}, command), copyButton("Copy as kubectl", command));
}

/**
 * A bar with its share of a length.
 *
 * @param {number} part
 * @param {number} whole
 */
export function bar(part, whole) {
    const width = whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
    return el("span", { class: "bar", "aria-hidden": "true", "--part": `${width.toFixed(1)}%` });
}

/** A bar that begins where others end. @param {number} from @param {number} part @param {number} whole */
export function step(from, part, whole) {
    const share = (/** @type {number} */ of) => `${((100 * of) / whole).toFixed(1)}%`;
    return el("span", { class: "bar", "aria-hidden": "true", "--from": share(from), "--part": share(part) });
}

/** @param {string} title @param {...Child} children */
export function section(title, ...children) {
    return el("section", {}, el("h2", {}, title), ...children);
}

/** A number or a word with its name, for a `dl`. @param {string} term @param {string | number} value @param {string} [more] */
export function fact(term, value, more = "") {
    return el("div", {}, el("dt", {}, term), el("dd", {}, value, more ? el("small", {}, ` ${more}`) : null));
}

/** Why there is no answer. @param {unknown} error */
export function problem(error) {
    const text = error instanceof Error ? error.message : String(error);
    return el("p", { class: "problem", role: "alert" }, text);
}
