// SPDX-License-Identifier: Apache-2.0
// The search box: "/" or Ctrl-K goes there, arrow keys choose, Enter opens. Asks /api/search.
import { h, replace } from "./dom.js";

const WAIT_MS = 120;

export class Search {
  #timer = 0;
  #asked = null;
  #results = [];
  #chosen = -1;

  constructor(api, navigate) {
    this.api = api;
    this.navigate = navigate;
    this.input = h("input", {
      type: "search", id: "search", placeholder: "Search", role: "combobox", autocomplete: "off", spellcheck: "false",
      "aria-label": "Search topics, groups and pages", "aria-expanded": "false", "aria-controls": "results",
      "aria-autocomplete": "list", maxlength: 249,
    });
    this.list = h("ul", { id: "results", role: "listbox", class: "results plain", hidden: true, "aria-label": "Found" });
    this.element = h("div", { class: "search", role: "search" }, this.input, h("kbd", { "aria-hidden": "true" }, "/"), this.list);
    this.input.addEventListener("input", () => this.#typed());
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.#close(), 150));
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  #typed() {
    clearTimeout(this.#timer);
    const text = this.input.value.trim();
    if (text) this.#timer = setTimeout(() => this.#ask(text), WAIT_MS);
    else this.#close();
  }

  async #ask(text) {
    this.#asked?.abort();
    const asked = new AbortController();
    this.#asked = asked;
    try {
      const { results } = await this.api.get("/search", { q: text }, asked.signal);
      this.#show(results, `Nothing is called “${text}”.`);
    } catch (problem) {
      if (problem.name !== "AbortError") this.#show([], problem.message);
    }
  }

  #show(results, otherwise) {
    this.#results = results;
    this.#chosen = results.length ? 0 : -1;
    const items = results.map((result, index) =>
      h("li", { role: "option", id: `result-${index}`, onmousedown: () => this.#open(index) },
        h("span", { class: "kind" }, result.kind), " ", h("span", null, result.name)));
    replace(this.list, items.length ? items : h("li", { class: "muted", role: "option", "aria-disabled": "true" }, otherwise));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.#mark();
  }

  #mark() {
    for (const [index, item] of [...this.list.children].entries()) {
      item.setAttribute("aria-selected", String(index === this.#chosen));
      if (index === this.#chosen) item.scrollIntoView({ block: "nearest" });
    }
    if (this.#chosen < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `result-${this.#chosen}`);
  }

  async #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.#results.length) {
      this.#chosen = (this.#chosen + step + this.#results.length) % this.#results.length;
      this.#mark();
    } else if (event.key === "Enter") {
      clearTimeout(this.#timer);
      if (this.list.hidden && this.input.value.trim()) await this.#ask(this.input.value.trim());
      if (this.#chosen >= 0) this.#open(this.#chosen);
    } else if (event.key === "Escape") {
      this.#close();
      this.input.value = "";
      this.input.blur();
    } else return;
    event.preventDefault();
  }

  #open(index) {
    const { path } = this.#results[index];
    this.input.value = "";
    this.#close();
    this.input.blur();
    this.navigate(path);
  }

  #close() {
    this.#asked?.abort();
    this.#results = [];
    this.#chosen = -1;
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
