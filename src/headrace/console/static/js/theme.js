// SPDX-License-Identifier: Apache-2.0
// The button that changes between the system's theme, light and dark. The choice is kept in this browser.
import { h } from "./dom.js";

const KEY = "headrace.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const SIGN = { system: "◐", light: "☀", dark: "☾" };

const stored = () => document.documentElement.dataset.theme ?? "system";

function choose(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is switched off: the choice lasts until the page is closed.
  }
}

export function themeButton() {
  const button = h("button", { type: "button", class: "quiet", id: "theme" });
  const show = () => {
    button.textContent = SIGN[stored()];
    const text = `Theme: ${stored()}. Change to ${NEXT[stored()]}`;
    button.title = text;
    button.setAttribute("aria-label", text);
  };
  button.addEventListener("click", () => {
    choose(NEXT[stored()]);
    show();
  });
  show();
  return button;
}
