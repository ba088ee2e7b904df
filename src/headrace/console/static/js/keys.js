// SPDX-License-Identifier: Apache-2.0
// Keys of the whole console: "/" searches, "?" shows the keys, "g" and a letter opens a page.
import { h } from "./dom.js";
import { PAGES } from "./pages.js";

const TOGETHER_MS = 1500;

const inField = (target) => target.closest?.("input, textarea, select, [contenteditable]");

function helpDialog(pages) {
  const row = (keys, text) =>
    h("tr", null, h("td", null, keys.map((key) => [h("kbd", null, key), " "])), h("td", null, text));
  const dialog = h("dialog", { id: "keys", "aria-labelledby": "keys-title" },
    h("h2", { id: "keys-title" }, "Keys"),
    h("table", { class: "keys" }, h("tbody", null,
      row(["/"], "search (also Ctrl-K)"),
      row(["?"], "this list"),
      row(["Esc"], "close"),
      pages.map((page) => row(["g", page.key], page.label)))),
    h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

export function listenToKeys({ search, navigate }) {
  const pages = PAGES.filter((page) => page.key);
  const dialog = helpDialog(pages);
  document.body.append(dialog);
  let went = 0;
  document.addEventListener("keydown", (event) => {
    if (event.key === "k" && (event.ctrlKey || event.metaKey)) search.focus();
    else if (event.ctrlKey || event.metaKey || event.altKey || inField(event.target)) return;
    else if (document.querySelector("dialog[open]")) return;
    else if (event.key === "/") search.focus();
    else if (event.key === "?") dialog.showModal();
    else if (event.key === "g" && Date.now() - went > TOGETHER_MS) {
      went = Date.now();
      return;
    } else {
      const page = Date.now() - went <= TOGETHER_MS && pages.find((each) => each.key === event.key);
      went = 0;
      if (!page) return;
      navigate(page.path);
    }
    event.preventDefault();
  });
  return () => dialog.showModal();
}
