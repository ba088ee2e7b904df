// SPDX-License-Identifier: Apache-2.0
// From the address to a page of pages.js, and clicks on links to the page without loading it again.
import { PAGES } from "./pages.js";

const parts = (path) => path.split("/").filter(Boolean);

function matched(page, names) {
  const pattern = parts(page.path);
  if (pattern.length !== names.length) return null;
  const params = {};
  for (const [index, part] of pattern.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = names[index];
    else if (part !== names[index]) return null;
  }
  return params;
}

// {page, params, query}; page is null where there is none.
export function resolve(address) {
  const query = Object.fromEntries(new URLSearchParams(address.search));
  try {
    const names = parts(address.pathname).map(decodeURIComponent);
    for (const page of PAGES) {
      const params = matched(page, names);
      if (params) return { page, params, query };
    }
  } catch {
    // A path that is not valid percent-encoding is no page.
  }
  return { page: null, params: {}, query };
}

export class Router {
  constructor(show) {
    this.show = show;
    window.addEventListener("popstate", () => show(resolve(location)));
    document.addEventListener("click", (event) => this.#clicked(event));
  }

  start() {
    this.show(resolve(location));
  }

  navigate(path) {
    history.pushState(null, "", path);
    this.show(resolve(location));
  }

  // The address of what is already shown: a moment, a filter.
  replaceQuery(changes) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") query.delete(name);
      else query.set(name, value);
    }
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  }

  #clicked(event) {
    const link = event.target.closest?.("a[href^='/']");
    const other = event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
    if (!link || other || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    event.preventDefault();
    this.navigate(link.getAttribute("href"));
  }
}
