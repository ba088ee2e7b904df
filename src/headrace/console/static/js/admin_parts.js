// SPDX-License-Identifier: Apache-2.0
// What the pages of administration share: refused answers, filters, badges, figures, commands in a table.
import { openDialog } from "./dialog.js";
import { h, replace, setText } from "./dom.js";
import { banner, commandLine } from "./notices.js";

const TYPING_MS = 250;
const LEVELS = { off: "info", refused: "warning", failed: "error" };

// Shows why there is no answer and what to do; takes no room when there is one.
export class AnswerNotice {
  #shown = "";

  constructor() {
    this.element = h("div", { class: "answer" });
  }

  // Whether there is an answer.
  update(answer) {
    const ok = !answer || answer.state === "ok";
    const shown = ok ? "" : `${answer.state}${answer.text}`;
    if (shown !== this.#shown) replace(this.element, !ok && banner(LEVELS[answer.state] ?? "error", answer.text, answer.next));
    this.#shown = shown;
    this.element.hidden = ok;
    return ok;
  }
}

// A field that filters on the server; `q` stays in the address.
export function filterField(context, label) {
  let timer = 0;
  const field = h("input", {
    type: "search", value: context.query.q ?? "", spellcheck: "false",
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        context.replaceQuery({ q: field.value });
        context.setParams({ q: field.value });
      }, TYPING_MS);
    },
  });
  return { element: h("label", { class: "field" }, label, field), close: () => clearTimeout(timer) };
}

export const badge = (level, text) => h("span", { class: `badge ${level}` }, text);

// A box over the page. Rows of a table are made anew when they change, so that what unfolds is not in them.
// It is in <main>: another page takes it away.
export const showBox = (title, ...content) =>
  openDialog(document.getElementById("main"), title, (dialog) => [
    content, h("div", { class: "actions" }, h("button", { type: "button", class: "primary", onclick: dialog.close }, "Close")),
  ]);

export const commandCell = (command, label) =>
  command
    ? h("button", { type: "button", class: "small", title: command, onclick: () => showBox(`${label} on the command line`, commandLine(command)) }, label)
    : "–";

// <div class="figure"> whose number changes; level: "", "warn" or "bad".
export class Figure {
  constructor(label) {
    this.number = h("b", null, "–");
    this.element = h("div", { class: "figure" }, this.number, h("span", null, label));
  }

  set(text, level = "") {
    setText(this.number, text);
    this.element.className = `figure ${level}`.trim();
  }
}

export const panel = (title, ...content) => h("section", { class: "panel" }, h("h2", null, title), content);

export const fields = (pairs) =>
  h("dl", { class: "pairs" }, pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value ?? "–")]));
