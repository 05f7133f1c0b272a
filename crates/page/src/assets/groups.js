// Pod groups: how many of their pods are on nodes, and what the others wait for.

import { follow } from "./asked.js";
import { count, cutNote, el, name, nodeLink, podLink, section, table } from "./dom.js";

/** @typedef {{ name: string, node: string | null }} Member */
/**
 * @typedef {object} Group
 * @property {string} namespace
 * @property {string} name
 * @property {boolean} composite
 * @property {string[]} children
 * @property {string | null} parent
 * @property {boolean} gang
 * @property {number} minCount
 * @property {string | null} topologyKey
 * @property {number} priority
 * @property {number} pods
 * @property {number} scheduled
 * @property {Member[]} members
 * @property {boolean} waits
 * @property {{ status: string, reason: string, message: string } | null} reason
 */

/** The most pods that are drawn as a cell each. */
const MOST_CELLS = 64;
/** The most pods that are named, those without a node first. */
const MOST_NAMES = 8;

/** @param {import("./main.js").Context} context */
export function groups(context) {
    return follow(context, {
        path: "groups",
        parameters: [],
        words: null,
        show: (data) => ({
            headline: sentence(data),
            parts: {
                none: data.all === 0 ? el("p", { class: "quiet" }, "No PodGroup is known. Groups need the feature gate GenericWorkload.") : null,
                groups: data.all > 0 ? el("ol", { class: "board" }, ...data.groups.map(row)) : null,
                cut: cutNote(data.groups.length, data.all, ", those that wait first"),
                table: data.all > 0 ? twin(data.groups) : null,
            },
        }),
    });
}

/** @param {{ all: number, waiting: number }} data */
function sentence({ all, waiting }) {
    if (all === 0) return "There are no pod groups";
    if (waiting === 0) return `All pods of ${count(all, "group")} have a node`;
    return `${waiting.toLocaleString("en")} of ${count(all, "group")} ${waiting === 1 ? "waits" : "wait"} for nodes`;
}

/** What the group asks for. @param {Group} group */
function quorum({ composite, gang, minCount, children }) {
    if (composite) return `${count(children.length, "group")}; ${gang ? `at least ${minCount} start together` : "queued as one"}`;
    return gang ? `At least ${minCount} start together` : "Queued as one; any of them may start";
}

/** @param {Group} group */
function row(group) {
    const { namespace, pods, scheduled, members, reason, topologyKey, parent } = group;
    const named = members.slice(0, MOST_NAMES);
    const rest = pods - named.length;
    return el("li", {},
        el("div", { class: "amount" }, scheduled.toLocaleString("en"), el("small", {}, ` of ${pods.toLocaleString("en")}`)),
        el("div", {},
            el("h2", {}, name(`${namespace}/${group.name}`)),
            cells(group),
            el("p", { class: "quiet" }, quorum(group), ...(topologyKey ? [", on one ", name(topologyKey)] : []), ...(parent ? [", in ", name(parent)] : [])),
            reason && group.waits && reason.message ? el("p", { class: "fix" }, el("strong", {}, "Reason: "), name(reason.message, "message")) : null,
            el("ul", { class: "workloads", "aria-label": "Pods" }, ...named.map((member) =>
                el("li", {}, podLink(namespace, member.name), ...(member.node === null ? [": no node"] : [" on ", nodeLink(member.node)]))),
            rest > 0 ? el("li", {}, `and ${count(rest, "other")}`) : null)));
}

/** A cell per pod, those that are missing for the quorum too. @param {Group} group */
function cells({ pods, scheduled, minCount, gang, composite }) {
    const least = gang && !composite ? minCount : 0;
    const most = Math.max(pods, least);
    const label = `${count(scheduled, "pod")} on nodes, ${pods - scheduled} without${least > pods ? `, ${least - pods} missing for the quorum` : ""}`;
    if (most > MOST_CELLS) return el("span", { class: "bar", role: "img", "aria-label": label, "--part": `${((100 * scheduled) / most).toFixed(1)}%` });
    const kind = (/** @type {number} */ at) => (at < scheduled ? "cell on" : at < pods ? "cell" : "cell missing");
    return el("span", { class: "cells", role: "img", "aria-label": label }, ...Array.from({ length: most }, (_, at) =>
        el("span", { class: at + 1 === least && least < most ? `${kind(at)} quorum` : kind(at) })));
}

/** @param {Group[]} all */
function twin(all) {
    const rows = all.flatMap((group) => (group.members.length > 0 ? group.members : [null]).map((member) => ({ group, member })));
    const columns = [{ name: "Group" }, { name: "Pod" }, { name: "Node" }];
    const isCut = all.some(({ pods, members }) => members.length < pods);
    const caption = `Pods without a node first${isCut ? "; large groups are cut" : ""}`;
    return el("details", { class: "twin" }, el("summary", {}, "All groups as a table"), section("Members", table(caption, columns, rows, ({ group, member }) => [
        name(`${group.namespace}/${group.name}`), member ? podLink(group.namespace, member.name) : "", member?.node ? nodeLink(member.node) : ""])));
}
