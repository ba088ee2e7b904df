// SPDX-License-Identifier: Apache-2.0
// Shows one page: loads its module, mounts it, feeds it documents, live or of a moment of the past.
// What a page module exports is described in docs/design/console.md.
import { h, replace } from "./dom.js";
import { Live } from "./live.js";
import { banner, Notices } from "./notices.js";
import { Slider } from "./slider.js";

const WITH_TIME = new Set(["cluster", "topic", "group"]);

const moment = (query) => {
  const at = Number(query.at);
  const speed = Number(query.speed);
  return at > 0 ? { at: Math.round(at), speed: speed > 0 ? speed : 0 } : { at: null, speed: 0 };
};

export class PageHost {
  #shown = 0;
  #leave = () => {};

  // `shell`: {main, api, router, session(), connection(state), engine(name), announce(text),
  // unauthorized()}
  constructor(shell) {
    this.shell = shell;
  }

  async show(route) {
    this.#leave();
    this.#leave = () => {};
    const mine = ++this.#shown;
    const { main } = this.shell;
    if (!route.page) {
      this.#fail(mine, "There is no such page.", "Choose one on the left, or search.");
      return;
    }
    let module;
    try {
      module = await import(`./pages/${route.page.module}.js`);
    } catch (error) {
      console.info(String(error));
      this.#fail(mine, `The page ${route.page.module} could not be loaded.`, "Load the page again. If that does not help, install headrace again.");
      return;
    }
    if (mine !== this.#shown) return;
    const open = new OpenPage(this.shell, module, route);
    this.#leave = () => open.close();
    const title = module.title?.(route.params) ?? route.page.label ?? "Headrace";
    document.title = `${title} – Headrace`;
    this.shell.announce(title);
    replace(main, open.frame);
    open.start();
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }

  #fail(mine, text, next) {
    if (mine !== this.#shown) return;
    document.title = "Headrace";
    replace(this.shell.main, h("h1", null, "Headrace"), banner("error", text, next));
  }
}

class OpenPage {
  #data = { close() {} };
  #passing = { busy: false, next: null };
  #closed = false;

  constructor(shell, module, route) {
    const { api, router } = shell;
    this.shell = shell;
    this.wanted = module.view?.(route.params, route.query) ?? null;
    this.module = module;
    this.notices = new Notices();
    this.root = h("div", { class: "page", "data-page": route.page.module, "aria-busy": String(Boolean(this.wanted)) });
    this.slider = WITH_TIME.has(this.wanted?.name) ? new Slider(api, moment(route.query), (to) => this.#moved(to)) : null;
    this.frame = h("div", { class: "frame" },
      this.slider?.element, this.notices.above, this.root, this.notices.below);
    this.context = {
      params: route.params,
      query: route.query,
      session: shell.session(),
      api,
      slider: this.slider,
      navigate: (path) => router.navigate(path),
      replaceQuery: (changes) => router.replaceQuery(changes),
      // Shows the view with other parameters (a filter, a sort order) without building the page again.
      setParams: (params) => this.#setParams(params),
    };
  }

  start() {
    this.page = this.module.mount(this.root, this.context) ?? {};
    if (this.wanted) this.#open(this.slider ?? { at: null, speed: 0 });
    else this.shell.connection("none"); // it asks when it is told to
  }

  close() {
    this.#closed = true;
    this.#data.close();
    this.slider?.close();
    this.page?.unmount?.();
  }

  #setParams(params) {
    this.wanted = { ...this.wanted, params: { ...this.wanted.params, ...params } };
    this.#open(this.slider ?? { at: null, speed: 0 });
  }

  #moved({ at, speed, passing }) {
    if (passing) {
      this.#data.close();
      this.#pass(at);
      return;
    }
    this.shell.router.replaceQuery({ at, speed: speed || null });
    this.#open({ at, speed });
  }

  #open({ at, speed }) {
    this.#data.close();
    this.#passing.next = null;
    if (at !== null && !speed) {
      this.#data = { close() {} };
      this.shell.connection("past");
      this.#pass(at);
      return;
    }
    const params = at === null ? this.wanted.params : { ...this.wanted.params, at, speed };
    this.#data = new Live(this.shell.api, this.wanted.name, params, {
      document: (view) => this.#show(view),
      problem: (problem) => this.notices.update({ problem, unknown: [], alarms: [], commands: [] }),
      connected: () => this.shell.connection(at === null ? "live" : "past"),
      lost: () => this.shell.connection("lost"),
      refused: (problem) => this.#refused(problem),
      ended: () => this.slider?.ended(),
    });
  }

  // One document after the other while the slider is dragged: the newest moment, one request at a time.
  async #pass(at) {
    this.#passing.next = at;
    if (this.#passing.busy) return;
    this.#passing.busy = true;
    while (this.#passing.next !== null && !this.#closed) {
      const next = this.#passing.next;
      this.#passing.next = null;
      try {
        const view = await this.shell.api.get(`/views/${this.wanted.name}`, { ...this.wanted.params, at: next });
        if (!this.#closed && this.slider.at !== null) this.#show(view);
      } catch (problem) {
        this.#refused(problem);
      }
    }
    this.#passing.busy = false;
  }

  #show(view) {
    if (this.#closed) return;
    this.root.setAttribute("aria-busy", "false");
    this.notices.update(view);
    this.shell.engine(view.engine);
    this.slider?.showing(view);
    this.page.update?.(view);
  }

  #refused(problem) {
    if (this.#closed) return;
    this.root.setAttribute("aria-busy", "false");
    if (problem.status === 401) this.shell.unauthorized();
    else this.notices.update({ problem: { error: problem.message, next: problem.next }, unknown: [], alarms: [], commands: [] });
  }
}

