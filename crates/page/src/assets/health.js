// Whether the scheduler keeps up, and what this page costs.

import { count, el, patch, section, set, table, time } from "./dom.js";
import { waiting } from "./model.js";

/** @param {import("./main.js").Context} context */
export function health({ live, root, signal }) {
    const headline = el("h1", {}, "Waiting for the scheduler …");
    const place = el("div", { class: "answer" });
    root.append(headline, place);
    const show = () => {
        const { model } = live;
        const wait = model ? waiting(model.summary) : 0;
        set(headline, live.stale() ? `Last update ${live.age()} s ago` : model ? `The scheduler answers; ${wait === 0 ? "its queue is empty" : `${count(wait, "pod")} in its queue`}` : "Waiting for the scheduler …");
        if (!model) return;
        const { queue } = model.summary;
        const rows = [
            ["Active (activeQ)", queue.active],
            ["In backoff (backoffQ)", queue.backoff],
            ["Unschedulable, until an event may help (unschedulableEntities)", queue.unschedulable],
            ["Gated", queue.gated],
        ];
        const page = [
            ["Time of the state", time(model.asOf)],
            ...(live.isReplay ? [] : [["Its age by the clock of this computer", `${live.behind.toFixed(1)} s`]]),
            ["Overviews so far", model.sequence.toLocaleString("en")],
            ...(live.isReplay ? [] : [["Last update", `${live.age()} s ago`]]),
        ];
        const cells = (/** @type {(string | number)[]} */ row) => row;
        patch(place, el("div", { class: "answer" },
            section("Queue", table("Pods without a node", [{ name: "Where" }, { name: "Pods", number: true }], rows, cells)),
            section("This page", table("How current it is", [{ name: "What" }, { name: "Value", number: true }], page, cells)),
            el("p", { class: "quiet" }, "The page reads copies of the scheduler's state. Copying takes at most 1 % of the scheduler's time, however many pages are open.")));
    };
    const timer = setInterval(() => {
        if (!live.isPaused) show();
    }, 1_000);
    signal.addEventListener("abort", () => clearInterval(timer));
    show();
}
