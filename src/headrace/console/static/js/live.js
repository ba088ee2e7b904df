// SPDX-License-Identifier: Apache-2.0
// One live view: server-sent events, connected again after a loss, at most one update for each frame drawn.
import { withQuery } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;

// Listeners: document(view), problem({error, next}), lost(), connected(), refused(Problem), ended(): a played past
// has reached its end.
export class Live {
  #source = null;
  #timer = 0;
  #frame = 0;
  #newest = null;
  #wait = FIRST_WAIT_MS;
  #closed = false;

  constructor(api, view, params, listeners) {
    this.api = api;
    this.view = view;
    this.params = params;
    this.listeners = listeners;
    this.#open();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
    this.#source?.close();
  }

  #open() {
    const source = new EventSource(withQuery(`/api/live/${encodeURIComponent(this.view)}`, this.params));
    this.#source = source;
    source.addEventListener("open", () => {
      this.#wait = FIRST_WAIT_MS;
      this.listeners.connected();
    });
    source.addEventListener("view", (event) => this.#keep(JSON.parse(event.data)));
    source.addEventListener("problem", (event) => this.listeners.problem(JSON.parse(event.data)));
    source.addEventListener("error", () => this.#failed());
  }

  #keep(document) {
    this.#newest = document;
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (!this.#closed) this.listeners.document(this.#newest);
    });
  }

  // A stream that ends tells no reason: one request for the same view does.
  async #failed() {
    this.#source.close();
    if (this.#closed) return;
    clearTimeout(this.#timer);
    if (this.params.at && this.#newest) {
      this.listeners.ended();
      return;
    }
    try {
      await this.api.get(`/views/${encodeURIComponent(this.view)}`, this.params);
      this.#wait = FIRST_WAIT_MS;
    } catch (problem) {
      if (this.#closed) return;
      if (problem.status >= 400 && problem.status < 500 && problem.status !== 429) {
        this.listeners.refused(problem);
        return;
      }
      this.listeners.lost();
    }
    if (this.#closed) return;
    this.#timer = setTimeout(() => this.#open(), this.#wait);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
  }
}
