// The overview of a cluster, and its changes. `changes.rs` tests the same steps.

/** @typedef {{ names: string[], cpu: number[], memory: number[], pods: number[], nodes: number[], cordoned: number[] }} Tiles */
/** @typedef {{ zone: string, pool: string, tiles: number }} Block */
/** @typedef {{ requested: number, allocatable: number }} Usage */
/** @typedef {{ active: number, backoff: number, unschedulable: number, gated: number }} Queue */
/** @typedef {{ nodes: number, cordoned: number, pods: number, cpu: Usage, memory: Usage, queue: Queue, reasons: { plugins: string[], pods: number }[] }} Summary */
/** @typedef {{ sequence: number, asOf: string, grouped: boolean, summary: Summary, blocks: Block[], tiles: Tiles }} Model */
/** @typedef {"cpu" | "memory" | "pods"} Property */

const COLUMNS = /** @type {const} */ (["names", "cpu", "memory", "pods", "nodes", "cordoned"]);

/**
 * Applies changes. Returns the places of tiles that show something else; `null` if tiles came or
 * went.
 *
 * @param {Model} model
 * @param {any} changes
 * @returns {number[] | null}
 */
export function apply(model, changes) {
    model.sequence = changes.sequence;
    model.asOf = changes.asOf;
    model.summary = changes.summary;
    for (const column of COLUMNS) {
        /** @type {(string | number)[]} */
        const values = model.tiles[column];
        for (const at of [...(changes.removed ?? [])].reverse()) values.splice(at, 1);
        (changes.added?.at ?? []).forEach((/** @type {number} */ at, /** @type {number} */ i) =>
            values.splice(at, 0, changes.added[column][i]));
        if (column !== "names") {
            changes.changed.at.forEach((/** @type {number} */ at, /** @type {number} */ i) => {
                values[at] = changes.changed[column][i];
            });
        }
    }
    if (!changes.blocks) return changes.changed.at;
    model.blocks = changes.blocks;
    return null;
}

/** The number of pods without a node. @param {Summary} summary */
export function waiting({ queue }) {
    return queue.active + queue.backoff + queue.unschedulable + queue.gated;
}
