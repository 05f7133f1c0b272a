// A node, and the pods on it.

import { follow } from "./asked.js";
import { deviceTable } from "./devices.js";
import { count, el, fragment, name, podLink, section, table } from "./dom.js";
import { meter } from "./tiles.js";

/** @param {import("./main.js").Context} context */
export function node(context) {
    const [, node = ""] = context.place.path;
    return follow(context, {
        path: "node",
        parameters: [["name", node]],
        words: null,
        gone: `Node ${node} not found`,
        show: (data) => ({
            headline: sentence(data),
            parts: {
                actions: el("p", { class: "actions" },
                    el("a", { href: fragment(["what-if"], { drain: node }) }, "What if it is drained?"), " ",
                    el("a", { href: fragment(["what-if"], { fail: node }) }, "What if it fails?"), " ",
                    el("a", { href: fragment(["what-if"], { add: `${node}=1` }) }, "What if there were another one?")),
                resources: section("Resources", resources(data.resources)),
                devices: data.devices?.length > 0 ? section("Devices", deviceTable("Devices that only this node has", data.devices)) : null,
                pods: section("Pods on it", pods("Pods on the node, assumed ones included", data.pods)),
                nominated: data.nominated.length > 0 ? section("Nominated pods", pods("Pods that preempted others here, and wait for them to end", data.nominated)) : null,
                taints: section("Taints", data.taints.length > 0 ? el("ul", {}, ...data.taints.map(taint)) : el("p", { class: "quiet" }, "None")),
                labels: section("Labels", el("ul", { class: "labels" }, ...data.labels.map((/** @type {any} */ label) => el("li", {}, name(`${label.key}=${label.value}`, "label"))))),
            },
        }),
    });
}

/** @param {any} data */
function sentence({ name: node, zone, pool, cordoned, pods: on }) {
    const place = [zone && `zone ${zone}`, pool && `pool ${pool}`].filter(Boolean).join(", ");
    return `${node}${place ? ` (${place})` : ""} holds ${count(on.length, "pod")}${cordoned ? " and is cordoned" : ""}`;
}

/** @param {any[]} all */
function resources(all) {
    const columns = [{ name: "Resource" }, { name: "Requested", number: true }, { name: "Allocatable", number: true }, { name: "Share", number: true }];
    return table("Requested and allocatable", columns, all, (one) => [name(one.name), one.requested, one.allocatable, meter(one.share)]);
}

/** @param {string} caption @param {any[]} all */
function pods(caption, all) {
    if (all.length === 0) return el("p", { class: "quiet" }, "None");
    const columns = [{ name: "Pod" }, { name: "CPU", number: true }, { name: "Memory", number: true }, { name: "Priority", number: true }, { name: "State" }];
    return table(caption, columns, all, (one) => [podLink(one.namespace, one.name), one.cpu, one.memory, one.priority, one.assumed ? "being bound" : ""]);
}

/** @param {any} taint */
function taint({ key, value, effect }) {
    return el("li", {}, name(value ? `${key}=${value}:${effect}` : `${key}:${effect}`, "label"));
}
