// SPDX-License-Identifier: Apache-2.0
// Requests to the console's server. A failed one throws Problem: what was wrong, and what to do next.
export class Problem extends Error {
  constructor(text, next, status) {
    super(text);
    this.next = next ?? null;
    this.status = status ?? 0;
  }
}

export const withQuery = (path, params) => {
  const pairs = Object.entries(params ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
};

export class Api {
  #token = "";

  async session() {
    const session = await this.get("/session");
    this.#token = session.csrf ?? "";
    return session;
  }

  // get("/views/topic", {topic: "orders"}); `signal` ends it early.
  get(path, params, signal) {
    return this.#ask(withQuery(path, params), { signal });
  }

  post(path, body, signal) {
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": this.#token };
    return this.#ask(path, { method: "POST", headers, body: JSON.stringify(body ?? {}), signal });
  }

  async #ask(path, options) {
    let response;
    try {
      response = await fetch(`/api${path}`, { credentials: "same-origin", cache: "no-store", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("The console's server does not answer.", "See whether headrace console still runs.");
    }
    const document = await response.json().catch(() => null);
    if (response.ok && document !== null) return document;
    throw new Problem(
      document?.error ?? `The console's server answered with status ${response.status}.`,
      document?.next,
      response.status,
    );
  }
}
