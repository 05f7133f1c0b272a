// What is pending, by reason.

import { follow } from "./asked.js";
import { bar, count, el, fragment, go, name, podLinkOf, printable } from "./dom.js";

/** The most workloads of a reason that are named. */
const MOST_WORKLOADS = 5;

/** @param {import("./main.js").Context} context */
export function pending(context) {
    const namespace = context.place.parameters.get("namespace") ?? "";
    const field = /** @type {HTMLInputElement} */ (el("input", { name: "namespace", value: printable(namespace), autocomplete: "off", spellcheck: "false" }));
    const form = el("form", { class: "ask" }, el("label", {}, "Namespace ", field), el("button", { type: "submit" }, "Show"));
    form.addEventListener("submit", (event) => {
        event.preventDefault();
        go(fragment(["pending"], { namespace: field.value.trim() }));
    });
    return follow(context, {
        path: "pending",
        parameters: namespace ? [["namespace", namespace]] : [],
        words: ["pending", ...(namespace ? [`--namespace=${namespace}`] : [])],
        show: ({ headline, reasons }) => ({
            headline,
            parts: {
                reasons: reasons.length > 0 ? el("ol", { class: "board" }, ...reasons.map((/** @type {any} */ reason) => row(reason, reasons[0].pods))) : el("p", { class: "quiet" }, "Every pod has a node."),
            },
        }),
    }, [form]);
}

/** @param {any} reason @param {number} most */
function row({ reason, pods, workloads, example, fix }, most) {
    const named = Object.entries(workloads).sort(([, one], [, other]) => other - one);
    const rest = named.length - MOST_WORKLOADS;
    const names = named.slice(0, MOST_WORKLOADS).map(([workload, number]) => el("li", {}, name(workload), number > 1 ? ` × ${number}` : ""));
    return el("li", {},
        el("div", { class: "amount" }, pods.toLocaleString("en")),
        el("div", {},
            el("h2", {}, reason),
            bar(pods, most),
            fix ? el("p", { class: "fix" }, el("strong", {}, "Helps: "), fix) : null,
            el("ul", { class: "workloads", "aria-label": "Workloads" }, ...names, rest > 0 ? el("li", {}, `and ${count(rest, "other")}`) : null),
            el("p", {}, "For example ", podLinkOf(example))));
}
