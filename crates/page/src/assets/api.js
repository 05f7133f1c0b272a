// Requests to the scheduler.

/** @typedef {{ data: any, good: boolean }} Answer */

const KEY = "supercargo-token";

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

/** Trades the secret of the link for a token, and takes it out of the address. */
export async function begin() {
    token = sessionStorage.getItem(KEY);
    const secret = new URLSearchParams(location.hash.slice(1)).get("secret");
    if (!secret) return;
    history.replaceState(null, "", location.pathname);
    const response = await fetch("/session", { headers: { "supercargo-secret": secret }, cache: "no-store" });
    if (response.ok) {
        token = await response.text();
        // Of this tab, so that it can be loaded again.
        sessionStorage.setItem(KEY, token);
    }
}

/** @param {string} path @param {Iterable<[string, string]>} parameters @param {AbortSignal} [signal] */
async function send(path, parameters, signal) {
    const query = new URLSearchParams([...parameters]).toString();
    const headers = token === null ? undefined : { authorization: `Bearer ${token}` };
    const response = await fetch(query ? `${path}?${query}` : path, { headers, signal, cache: "no-store" });
    if (!response.ok) {
        const text = (await response.text()).trim().replace(/^error: /, "");
        throw new Refused(response.status, text || `the server answers ${response.status}`);
    }
    return response;
}

/**
 * Asks a question.
 *
 * @param {string} path
 * @param {Iterable<[string, string]>} [parameters]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Answer>}
 */
export async function ask(path, parameters = [], signal = undefined) {
    const response = await send(path, [...parameters, ["output", "json"]], signal);
    return { data: await response.json(), good: response.headers.get("supercargo-good") !== "false" };
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
