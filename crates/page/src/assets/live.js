// The overview as it changes, and whether the server is there.

import { Refused, events } from "./api.js";
import { apply } from "./model.js";

/** @typedef {import("./model.js").Model} Model */
/** Hears of each newer state, with the places of tiles that changed: `null` if any may have. @typedef {(model: Model, changed: number[] | null) => void} Listener */

/** Times in milliseconds. The server sends something each 15 s. */
const SILENCE = 20_000;
/** A stream that ends is opened again before this time. */
const GRACE = 2_500;
const FIRST_RETRY = 500;
const LAST_RETRY = 5_000;
/** A page that nobody sees asks for nothing after this time. */
const HIDDEN = 60_000;

/** The stream of a tab. */
export class Live {
    constructor() {
        /** @type {Model | null} */
        this.model = null;
        /** @type {string | null} */
        this.problem = null;
        this.connected = false;
        /** When the server sent a newer state, by `performance.now()`. */
        this.heard = performance.now();
        /** How old the state was when it came, in seconds, by the clock of this computer. */
        this.behind = 0;
        /** @type {Set<Listener>} */
        this.listeners = new Set();
    }

    /** Seconds since the server sent a newer state. */
    age() {
        return Math.round((performance.now() - this.heard) / 1000);
    }

    /** Whether what is shown may be old. */
    stale() {
        return performance.now() - this.heard > (this.connected ? SILENCE : GRACE);
    }

    /** Follows the server for as long as the page is open. */
    async run() {
        for (let retry = FIRST_RETRY; ; retry = Math.min(2 * retry, LAST_RETRY)) {
            await seen();
            const hadAnswer = await this.follow();
            if (hadAnswer) retry = FIRST_RETRY;
            this.connected = false;
            await new Promise((resolve) => setTimeout(resolve, retry));
        }
    }

    /** Follows one stream. Returns whether it brought something. */
    async follow() {
        const stop = new AbortController();
        const began = performance.now();
        const watch = setInterval(() => {
            if (performance.now() - Math.max(began, this.heard) > SILENCE) stop.abort();
        }, 1_000);
        const hidden = whenHidden(() => stop.abort());
        let some = false;
        try {
            for await (const { kind, data } of events("stream", stop.signal)) {
                some = this.connected = true;
                this.problem = null;
                this.take(kind, data);
            }
        } catch (error) {
            this.problem = error instanceof Refused ? error.message : null;
        } finally {
            stop.abort();
            clearInterval(watch);
            hidden();
        }
        return some;
    }

    /** @param {string} kind @param {any} data */
    take(kind, data) {
        this.behind = (Date.now() - new Date(data.asOf).getTime()) / 1000;
        // A scheduler that hangs still has heartbeats, of a state that gets old.
        const isNewer = data.asOf !== this.model?.asOf;
        if (isNewer) this.heard = performance.now();
        /** @type {number[] | null} */
        let changed = [];
        if (kind === "snapshot") {
            this.model = data;
            changed = null;
        } else if (this.model && kind === "changes") {
            changed = apply(this.model, data);
        } else if (this.model) {
            this.model.asOf = data.asOf;
        }
        if (!this.model || (kind === "heartbeat" && !isNewer)) return;
        // The overview may be the same, and other answers not.
        for (const listener of this.listeners) listener(this.model, changed);
    }
}

/** Resolves once the page is visible. */
function seen() {
    return new Promise((resolve) => {
        const check = () => {
            if (document.visibilityState === "hidden") return;
            document.removeEventListener("visibilitychange", check);
            resolve(null);
        };
        document.addEventListener("visibilitychange", check);
        check();
    });
}

/** Calls `then` once the page has been hidden for long. Returns how to stop that. @param {() => void} then */
function whenHidden(then) {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const check = () => {
        clearTimeout(timer);
        if (document.visibilityState === "hidden") timer = setTimeout(then, HIDDEN);
    };
    document.addEventListener("visibilitychange", check);
    check();
    return () => {
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", check);
    };
}
