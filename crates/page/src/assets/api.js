// Requests to the scheduler.

/** @typedef {{ data: any, asOf: string }} Answer `asOf` is the time of the state; empty if it is unknown. */

const KEY = "supercargo-token";
/** A question ends without an answer after this time, in milliseconds. The server's limit is less. */
const LIMIT = 60_000;

/** The token of a session, if the page is served on loopback. @type {string | null} */
let token = null;

/** No answer, for a reason. */
export class Refused extends Error {
    /** @param {number} status @param {string} text */
    constructor(status, text) {
        super(text);
        this.status = status;
    }
}

/**
 * What the browser keeps, or `null`. A browser may forbid its storage; the page works without it.
 *
 * @param {"localStorage" | "sessionStorage"} area
 * @param {string} key
 */
export function stored(area, key) {
    try {
        return window[area].getItem(key);
    } catch {
        return null;
    }
}

/** @param {"localStorage" | "sessionStorage"} area @param {string} key @param {string} value */
export function store(area, key, value) {
    try {
        window[area].setItem(key, value);
    } catch {
        // It is forgotten with the page.
    }
}

/** The secret in the address, which a link of the command has. */
export function secret() {
    return new URLSearchParams(location.hash.slice(1)).get("secret");
}

/** Trades the secret of the link for a token, and takes it out of the address. */
export async function begin() {
    token = stored("sessionStorage", KEY);
    const traded = secret();
    if (!traded) return;
    const response = await request("/session", { headers: { "supercargo-secret": traded } });
    // Not before there is an answer, so that a reload can try again.
    history.replaceState(null, "", location.pathname);
    if (response.ok) {
        token = await response.text();
        // Kept per tab, so that a reload works.
        store("sessionStorage", KEY, token);
    }
}

/** @param {string} url @param {RequestInit} options */
async function request(url, options) {
    try {
        return await fetch(url, { ...options, cache: "no-store" });
    } catch (error) {
        if (options.signal?.aborted) throw error;
        throw new Error("The server cannot be reached.", { cause: error });
    }
}

/** @param {string} path @param {Iterable<[string, string]>} parameters @param {AbortSignal} signal */
async function send(path, parameters, signal) {
    const query = new URLSearchParams([...parameters]).toString();
    const headers = token === null ? undefined : { authorization: `Bearer ${token}` };
    const response = await request(query ? `${path}?${query}` : path, { headers, signal });
    if (!response.ok) {
        const text = reason(await response.text());
        throw new Refused(response.status, text || `the server answers ${response.status}`);
    }
    return response;
}

/** The reason in a refusal, which may be a `Status` of the Kubernetes API. @param {string} text */
function reason(text) {
    try {
        const { message } = JSON.parse(text);
        if (typeof message === "string") return message;
    } catch {
        // It is a plain text.
    }
    return text.trim().replace(/^error: /, "");
}

/**
 * Asks a question.
 *
 * @param {string} path
 * @param {Iterable<[string, string]>} parameters
 * @param {AbortSignal} signal
 * @returns {Promise<Answer>}
 */
export async function ask(path, parameters, signal) {
    const limit = AbortSignal.timeout(LIMIT);
    try {
        const response = await send(path, [...parameters, ["output", "json"]], AbortSignal.any([signal, limit]));
        const data = await response.json();
        return { data, asOf: response.headers.get("supercargo-as-of") || data.asOf || "" };
    } catch (error) {
        throw limit.aborted ? new Error("The server did not answer in time.", { cause: error }) : error;
    }
}

/**
 * Server-sent events. `EventSource` cannot send a token.
 *
 * @param {string} path
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<{ kind: string, data: any }>}
 */
export async function* events(path, signal) {
    const response = await send(path, [], signal);
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        text += value;
        for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
            yield event(text.slice(0, end));
            text = text.slice(end + 2);
        }
    }
}

/** @param {string} text */
function event(text) {
    let kind = "message";
    let data = "";
    for (const line of text.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        if (line.startsWith("data: ")) data += line.slice(6);
    }
    return { kind, data: data ? JSON.parse(data) : null };
}
