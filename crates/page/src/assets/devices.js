// Devices by class and node: who has them, and which are free.

import { follow } from "./asked.js";
import { count, cutNote, el, name, nodeLink, table } from "./dom.js";

/** @typedef {{ class: string, node: string | null, allocated: number, tainted: number, free: number }} Row */
/** @typedef {{ allocated: number, tainted: number, free: number }} Tally */

/** The most nodes of a class that are drawn, and the most devices of a node with a cell each. */
const MOST_NODES = 60;
const MOST_CELLS = 32;

/** @param {import("./main.js").Context} context */
export function devices(context) {
    return follow(context, {
        path: "devices",
        parameters: [],
        words: null,
        show: (data) => {
            /** @type {Map<string, Row[]>} */
            const classes = new Map();
            for (const row of data.devices) {
                const rows = classes.get(row.class);
                if (rows) rows.push(row);
                else classes.set(row.class, [row]);
            }
            return {
                headline: sentence(data),
                parts: {
                    cut: data.cut ? el("p", { class: "quiet" }, "The selectors of device classes take too much work, so devices are missing here.") : null,
                    legend: data.devices.length > 0 ? legend() : null,
                    classes: el("div", { class: "answer" }, ...[...classes].map(([title, rows]) => classOf(title, rows))),
                    table: data.devices.length === 0 ? null : el("details", { class: "twin" }, el("summary", {}, "All devices as a table"), deviceTable("Devices by class and node", data.devices)),
                },
            };
        },
    });
}

/** @param {{ devices: Row[], allocatedClaims: number, waitingClaims: number, cut: boolean }} data */
function sentence({ devices, allocatedClaims, waitingClaims, cut }) {
    if (devices.length === 0 && !cut) return "No ResourceSlice has devices";
    return `${count(allocatedClaims, "claim")} ${allocatedClaims === 1 ? "has" : "have"} devices; ${waitingClaims === 0 ? "no claim waits" : `${count(waitingClaims, "claim")} ${waitingClaims === 1 ? "waits" : "wait"}`}`;
}

/** @param {Tally[]} rows @returns {Tally} */
function sum(rows) {
    return rows.reduce((all, { allocated, tainted, free }) => ({ allocated: all.allocated + allocated, tainted: all.tainted + tainted, free: all.free + free }), { allocated: 0, tainted: 0, free: 0 });
}

/** @param {Tally} tally */
function words({ allocated, tainted, free }) {
    return [`${allocated.toLocaleString("en")} allocated`, tainted > 0 ? `${tainted.toLocaleString("en")} tainted` : "", `${free.toLocaleString("en")} free`].filter(Boolean).join(", ");
}

/** @param {string} title @param {Row[]} rows */
function classOf(title, rows) {
    const shown = rows.slice(0, MOST_NODES);
    const of = el("section", {}, el("h2", {}, title ? name(title) : "Of no class"), el("p", { class: "quiet" }, words(sum(rows))),
        el("ul", { class: "racks" }, ...shown.map((row) => el("li", {}, row.node === null ? el("span", {}, "Several nodes") : nodeLink(row.node), cells(row)))));
    const note = cutNote(shown.length, rows.length, "; the table has all");
    if (note) of.append(note);
    return of;
}

/** A cell per device. @param {Tally} tally */
function cells(tally) {
    const { allocated, tainted, free } = tally;
    const all = allocated + tainted + free;
    if (all > MOST_CELLS) return el("span", {}, words(tally));
    const kind = (/** @type {number} */ at) => (at < allocated ? "cell on" : at < allocated + tainted ? "cell tainted" : "cell");
    return el("span", { class: "cells", role: "img", "aria-label": words(tally) }, ...Array.from({ length: all }, (_, at) => el("span", { class: kind(at) })));
}

function legend() {
    return el("ul", { class: "legend", "aria-label": "Legend" }, ...[["cell on", "allocated"], ["cell tainted", "tainted"], ["cell", "free"]].map(([kind, title]) =>
        el("li", {}, el("span", { class: kind }), title)));
}

/** @param {string} caption @param {Row[]} rows */
export function deviceTable(caption, rows) {
    const columns = [{ name: "Class" }, { name: "Node" }, { name: "Allocated", number: true }, { name: "Tainted", number: true }, { name: "Free", number: true }];
    return table(caption, columns, rows, (row) => [row.class ? name(row.class) : "none", row.node === null ? "several" : nodeLink(row.node), row.allocated, row.tainted, row.free]);
}
