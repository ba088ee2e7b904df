// SPDX-License-Identifier: Apache-2.0
// New records as they come: a sample, with what was passed over counted. Paused, it asks for nothing.
import { withQuery } from "./api.js";
import { h, setText } from "./dom.js";
import { count, number } from "./format.js";

const KEPT = 500;

export class Tail {
  // `onRecords(records)`: all that are kept, newest first; `onEnd()`: it was stopped.
  constructor(query, onRecords, onEnd) {
    this.query = query;
    this.onRecords = onRecords;
    this.records = [];
    this.counts = { shown: 0, notShown: 0, notLookedAt: 0, lookedAt: 0 };
    this.status = h("span", { role: "status", id: "tail-status" });
    this.pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.#pause() }, "Pause");
    this.element = h("div", { class: "toolbar panel tail" }, this.status, this.pause,
      h("button", { type: "button", onclick: () => onEnd() }, "Stop the live tail"));
    this.#start();
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  #start() {
    setText(this.status, "Connecting …");
    const source = new EventSource(withQuery("/api/messages/tail", this.query));
    this.source = source;
    source.addEventListener("started", () => this.#tell());
    source.addEventListener("records", (event) => this.#take(JSON.parse(event.data)));
    source.addEventListener("problem", (event) => {
      const problem = JSON.parse(event.data);
      setText(this.status, [problem.error, problem.next].filter(Boolean).join(". "));
    });
    source.addEventListener("end", (event) => {
      const end = JSON.parse(event.data);
      this.#stopped(`${end.text} ${end.next}`);
    });
    source.addEventListener("error", () => this.#stopped("The live tail was cut off. Resume it to see what comes from now on."));
  }

  #take(document) {
    this.records = [...document.records.toReversed(), ...this.records].slice(0, KEPT);
    this.counts.shown += document.records.length;
    this.counts.lookedAt += document.looked_at;
    this.counts.notShown += document.not_shown;
    this.counts.notLookedAt += document.not_looked_at;
    this.#tell();
    this.onRecords(this.records);
  }

  #tell() {
    const { shown, notShown, notLookedAt, lookedAt } = this.counts;
    const filtered = lookedAt - shown - notShown;
    const more = [
      filtered > 0 && `${number(filtered)} did not match`,
      notShown > 0 && `${number(notShown)} more matched`,
      notLookedAt > 0 && `${number(notLookedAt)} were passed over without a look`,
    ].filter(Boolean);
    setText(this.status, `Live: ${shown === 0 ? "no new record yet" : `${count(shown, "record")} shown`}${more.length ? `; ${more.join(", ")}` : ""}.`);
  }

  #pause() {
    if (this.source) {
      this.#stopped("Paused. Records that come meanwhile are not shown.");
      return;
    }
    this.pause.textContent = "Pause";
    this.pause.setAttribute("aria-pressed", "false");
    this.#start();
  }

  #stopped(text) {
    this.close();
    this.pause.textContent = "Resume";
    this.pause.setAttribute("aria-pressed", "true");
    setText(this.status, text);
  }
}
