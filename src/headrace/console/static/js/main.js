// SPDX-License-Identifier: Apache-2.0
// Starts the console: session, header, navigation, and the page of the address. Read next: page_host.js, pages.js.
import { Api } from "./api.js";
import { h, replace, setText } from "./dom.js";
import { listenToKeys } from "./keys.js";
import { showLogin } from "./login.js";
import { banner } from "./notices.js";
import { PageHost } from "./page_host.js";
import { PAGES } from "./pages.js";
import { Router } from "./router.js";
import { Search } from "./search.js";
import { themeButton } from "./theme.js";

const CONNECTION = { live: "Live", past: "Past", lost: "Connection lost, trying again …", waiting: "Connecting …", none: "" };
const TRY_AGAIN_MS = 2000;

const byId = (id) => document.getElementById(id);

class Console {
  constructor() {
    this.api = new Api();
    this.main = byId("main");
    this.state = null;
    this.host = new PageHost({
      main: this.main,
      api: this.api,
      router: null,
      session: () => this.state,
      connection: (state) => this.connection(state),
      engine: (name) => this.#showEngine(name),
      announce: (text) => setText(byId("announcer"), text),
      unauthorized: () => this.start(),
    });
    this.router = new Router((route) => this.#show(route));
    this.host.shell.router = this.router;
    this.search = new Search(this.api, (path) => this.router.navigate(path));
    this.#buildTop();
    this.#buildSide();
  }

  async start() {
    try {
      this.state = await this.api.session();
    } catch (problem) {
      replace(this.main, banner("error", problem.message, problem.next));
      setTimeout(() => this.start(), TRY_AGAIN_MS);
      return;
    }
    const locked = this.#locked();
    document.body.classList.toggle("locked", locked);
    this.user.textContent = this.state.user ?? "";
    this.out.hidden = !(this.state.login_required && this.state.logged_in);
    this.readOnly.hidden = !this.state.read_only;
    this.#showEngine(this.state.engine);
    if (locked) showLogin(this.main, this.api, this.state, () => this.start());
    else this.router.start();
  }

  connection(state) {
    this.dot.dataset.state = state;
    setText(this.dotText, CONNECTION[state]);
  }

  #showEngine(name) {
    setText(this.engine, { headrace: "", kafka: "on Apache Kafka" }[name] ?? "");
  }

  #locked() {
    return !this.state || (this.state.login_required && !this.state.logged_in);
  }

  #show(route) {
    if (this.#locked()) return;
    const here = route.page?.parent ?? route.page?.path;
    for (const link of byId("side").querySelectorAll("a")) {
      if (link.getAttribute("href") !== here) link.removeAttribute("aria-current");
      else {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    }
    this.connection("waiting");
    this.host.show(route);
  }

  #buildTop() {
    this.dotText = h("span", { class: "dot-text" });
    this.dot = h("span", { class: "connection", role: "status", id: "connection" }, h("i", { "aria-hidden": "true" }), this.dotText);
    this.user = h("span", { class: "user" });
    this.engine = h("span", { class: "muted engine" });
    this.readOnly = h("span", { class: "badge", hidden: true, title: "This console was started with --read-only" }, "read-only");
    this.out = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#logOut() }, "Log out");
    const help = h("button", { type: "button", class: "quiet", title: "Keys (?)", "aria-label": "Keys" }, "?");
    help.addEventListener("click", listenToKeys({ search: this.search, navigate: (path) => this.router.navigate(path) }));
    byId("top").append(
      h("a", { class: "brand", href: "/" }, h("img", { src: "/static/icon.svg", alt: "", width: 22, height: 22 }), h("span", null, "Headrace")),
      this.engine, this.readOnly, this.search.element, this.dot, this.user, this.out, themeButton(), help);
  }

  #buildSide() {
    const entries = PAGES.filter((page) => page.label);
    byId("side").append(
      h("ul", { class: "plain" }, entries.map((page) => h("li", null, h("a", { href: page.path, title: `g ${page.key}` }, page.label)))));
  }

  async #logOut() {
    await this.api.post("/logout").catch(() => {});
    location.assign("/");
  }
}

new Console().start();
window.addEventListener("pageshow", (event) => event.persisted && location.reload());
