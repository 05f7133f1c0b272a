// Elements, tables and what all views have. Names and messages come from strangers: they become
// text, never markup.

/** @typedef {Node | string | number | null | undefined} Child */
/** @typedef {{ name: string, number?: boolean, wide?: boolean }} Column */

/** What moves the writing direction, or is not shown. Lines may break. */
const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

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

/** @param {number} number @param {string} noun */
export function count(number, noun) {
    return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** A share in half percents. @param {number} share */
export function percent(share) {
    return `${Math.round(share / 2)} %`;
}

/** The most rows of a table at first, and those that are added. */
const MOST_ROWS = 200;

/**
 * A table with a caption.
 *
 * @param {string} caption
 * @param {Column[]} columns
 * @param {Child[][]} rows
 */
export function table(caption, columns, rows) {
    const classOf = (/** @type {number} */ at) => (columns[at].number ? "number" : columns[at].wide ? "wide" : null);
    const body = el("tbody", {});
    const more = el("button", { type: "button", class: "more" });
    let shown = 0;
    const show = () => {
        const next = rows.slice(shown, shown + MOST_ROWS);
        body.append(...next.map((cells) => el("tr", {}, ...cells.map((cell, at) =>
            at === 0 ? el("th", { scope: "row", class: classOf(at) }, cell) : el("td", { class: classOf(at) }, cell)))));
        shown += next.length;
        more.hidden = shown >= rows.length;
        more.textContent = `Show more of ${rows.length.toLocaleString("en")} rows`;
    };
    more.addEventListener("click", show);
    show();
    const head = columns.map((column, at) => el("th", { scope: "col", class: classOf(at) }, column.name));
    return el("div", { class: "table" },
        el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
            el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)), body)),
        more);
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
            await navigator.clipboard.writeText(text);
        } catch {
            said = "Cannot copy";
        }
        button.textContent = said;
        setTimeout(() => { button.textContent = label; }, 1500);
    });
    return button;
}

/**
 * The same answer elsewhere: the command, and the JSON if there is one.
 *
 * @param {string[]} words
 * @param {unknown} [data]
 */
export function elsewhere(words, data) {
    const command = ["kubectl", "supercargo", ...words.map(quoted)].join(" ");
    return el("footer", { class: "elsewhere" },
        el("div", { class: "command" }, el("code", {}, command), copyButton("Copy as kubectl", printable(command))),
        data === undefined ? null : jsonOf(data));
}

/** Data as JSON, once it is wanted. @param {unknown} data */
function jsonOf(data) {
    const json = el("pre", { tabindex: 0 });
    const details = el("details", {}, el("summary", {}, "JSON"), json);
    details.addEventListener("toggle", () => {
        json.textContent = printable(JSON.stringify(data, null, 2));
    }, { once: true });
    return details;
}

/**
 * A bar with its share of a length.
 *
 * @param {number} part
 * @param {number} whole
 * @param {string} [kind]
 */
export function bar(part, whole, kind = "") {
    const width = whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
    return el("span", { class: `bar ${kind}`, "aria-hidden": "true", "--part": `${width.toFixed(1)}%` });
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
