// The overview as it changes, and whether the server is there.

import { Refused, events } from "./api.js";
import { apply } from "./model.js";

/** @typedef {import("./model.js").Model} Model */
/**
 * Called with each newer state, and the places of tiles that changed: `null` if any may have.
 *
 * @typedef {(model: Model, changed: number[] | null) => void} Listener
 */
/** @typedef {{ steady: number, wall: number }} Moment */

/** Times in milliseconds. The server sends something each 15 s. */
const SILENCE = 20_000;
/** A stream that ends is opened again before this time. */
const GRACE = 2_500;
const FIRST_RETRY = 500;
const LAST_RETRY = 5_000;
/** A page that nobody sees asks for nothing after this time: a browser has few connections to a server. */
const HIDDEN = 10_000;

/** @returns {Moment} */
function now() {
    return { steady: performance.now(), wall: Date.now() };
}

/**
 * Milliseconds since then. One clock may stand still while the computer sleeps, and the other may
 * be set back.
 *
 * @param {Moment} then
 */
function since(then) {
    return Math.max(performance.now() - then.steady, Date.now() - then.wall);
}

/** The stream of a tab. */
export class Live {
    /** @param {boolean} isReplay Whether the state is newer only if a person moves through time. */
    constructor(isReplay = false) {
        this.isReplay = isReplay;
        /** @type {Model | null} */
        this.model = null;
        /** @type {string | null} */
        this.problem = null;
        this.connected = false;
        /** Whether a person wants to see the same for longer. Then there is no stream. */
        this.isPaused = false;
        /** Ends the stream, or a pause. */
        this.interrupt = () => {};
        /** When the server sent a newer state. */
        this.heard = now();
        /** When a stream that was current ended, or the page was seen again after that. */
        this.lost = this.heard;
        /** How old the state was when it came, in seconds, by the clock of this computer. */
        this.behind = 0;
        /** @type {Set<Listener>} */
        this.listeners = new Set();
    }

    /** Seconds since the server sent a newer state. */
    age() {
        return Math.round(since(this.heard) / 1000);
    }

    /** Stops changing what is shown, or shows the newest state again. @param {boolean} isPaused */
    pause(isPaused) {
        this.isPaused = isPaused;
        this.interrupt();
    }

    /** Whether what is shown may be old, and nobody wants that. */
    stale() {
        if (this.isPaused) return false;
        const heard = since(this.heard);
        return this.connected ? heard > SILENCE : Math.min(heard, since(this.lost)) > GRACE;
    }

    /** Follows the server for as long as the page is open. */
    async run() {
        for (let retry = FIRST_RETRY; ; retry = Math.min(2 * retry, LAST_RETRY)) {
            const wasStale = this.stale();
            const wasPaused = await this.continued();
            if ((await seen() || wasPaused) && !wasStale) this.lost = now();
            const hadAnswer = await this.follow();
            if (hadAnswer) retry = FIRST_RETRY;
            if (this.connected && !this.stale()) this.lost = now();
            this.connected = false;
            if (!this.isPaused) await new Promise((resolve) => setTimeout(resolve, retry));
        }
    }

    /** Resolves once there is no pause, with whether there was one. @returns {Promise<boolean>} */
    async continued() {
        const wasPaused = this.isPaused;
        while (this.isPaused) await new Promise((resolve) => { this.interrupt = () => resolve(undefined); });
        return wasPaused;
    }

    /** Follows one stream. Returns whether it brought something. */
    async follow() {
        const stop = new AbortController();
        const began = now();
        const watch = setInterval(() => {
            if (Math.min(since(began), since(this.heard)) > SILENCE) stop.abort();
        }, 1_000);
        const hidden = whenHidden(() => stop.abort());
        this.interrupt = () => stop.abort();
        let some = false;
        try {
            for await (const { kind, data } of events("stream", stop.signal)) {
                if (this.isPaused) break;
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
        if (isNewer || this.isReplay) this.heard = now();
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
        for (const listener of this.listeners) {
            try {
                listener(this.model, changed);
            } catch (error) {
                // The stream goes on for the others.
                reportError(error);
            }
        }
    }
}

/** Resolves once the page is visible, with whether it was hidden. @returns {Promise<boolean>} */
function seen() {
    const wasHidden = document.visibilityState === "hidden";
    return new Promise((resolve) => {
        const check = () => {
            if (document.visibilityState === "hidden") return;
            document.removeEventListener("visibilitychange", check);
            resolve(wasHidden);
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
