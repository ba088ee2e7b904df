// SPDX-License-Identifier: Apache-2.0
// Sets the stored theme before the first paint. Not a module: modules run too late. See theme.js.
(() => {
  try {
    const chosen = localStorage.getItem("headrace.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is switched off: the system's theme it is.
  }
})();
