// Whether the scheduler keeps up, and what this page costs.

import { count, el, section, table } from "./dom.js";
import { waiting } from "./model.js";

/** @param {import("./main.js").Context} context */
export function health({ live, root, signal }) {
    const headline = el("h1", {}, "Waiting for the scheduler …");
    const place = el("div", { class: "answer" });
    root.append(headline, place);
    let drawn = "";
    const show = () => {
        const { model } = live;
        const wait = model ? waiting(model.summary) : 0;
        headline.textContent = live.stale() ? `The scheduler was heard ${live.age()} s ago` : `The scheduler answers; ${wait === 0 ? "its queue is empty" : `${count(wait, "pod")} in its queue`}`;
        if (!model) return;
        const { queue } = model.summary;
        const rows = [
            ["Wait for their turn (activeQ)", queue.active],
            ["Wait for the end of their backoff (backoffQ)", queue.backoff],
            ["Wait for an event that may help (unschedulableEntities)", queue.unschedulable],
            ["Held before the queue (gates)", queue.gated],
        ];
        const page = [
            ["State of the scheduler shown", new Date(model.asOf).toLocaleTimeString()],
            ["Its age by the clock of this computer", `${live.behind.toFixed(1)} s`],
            ["Overviews so far", model.sequence.toLocaleString("en")],
            ["Heard", `${live.age()} s ago`],
        ];
        const text = JSON.stringify([rows, page]);
        if (text === drawn) return;
        drawn = text;
        place.replaceChildren(
            section("Queue", table("Pods without a node", [{ name: "Where" }, { name: "Pods", number: true }], rows)),
            section("This page", table("How current it is", [{ name: "What" }, { name: "Value", number: true }], page)),
            el("p", { class: "quiet" }, "The page reads copies of the scheduler's state. Copying takes at most 1 % of the scheduler's time, however many pages are open."));
    };
    const timer = setInterval(show, 1_000);
    signal.addEventListener("abort", () => clearInterval(timer));
    show();
}
