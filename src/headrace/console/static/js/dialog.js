// SPDX-License-Identifier: Apache-2.0
// A dialog over the page that says what went wrong inside itself, and gives the focus back when it is closed.
import { h, replace } from "./dom.js";
import { banner } from "./notices.js";

let made = 0;

// `content(dialog)` → nodes. Closing removes it; `onClose` runs once.
export function openDialog(root, title, content, onClose = () => {}) {
  const before = document.activeElement;
  const id = `dialog-${++made}`;
  const problem = h("div", { class: "dialog-problem", "aria-live": "assertive" });
  const element = h("dialog", { class: "dialog", "aria-labelledby": id });
  const dialog = {
    element,
    close: () => element.close(),
    failed: (error) => replace(problem, error && banner("error", error.message, error.next)),
  };
  element.append(h("h2", { id }, title), ...[content(dialog)].flat(Infinity).filter(Boolean), problem);
  element.addEventListener("close", () => {
    element.remove();
    before?.focus?.();
    onClose();
  });
  root.append(element);
  element.showModal();
  return dialog;
}

// Runs the request while the buttons of the dialog wait; a failure is shown in the dialog. → the answer, or null.
export async function whileBusy(dialog, buttons, request) {
  dialog.failed(null);
  for (const button of buttons) button.disabled = true;
  try {
    return await request();
  } catch (error) {
    dialog.failed(error);
    return null;
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}
