// SPDX-License-Identifier: Apache-2.0
// Looks at the open page as a person with a screen reader, a keyboard or weak eyes would, and returns what is wrong
// as sentences. Contrast is computed from the styles that the browser has computed (WCAG 2.2: 1.4.3, 1.4.11).
// Evaluated by __init__.py; defines window.accessibility.
(() => {
  const CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button], [role=link], "
    + "[role=tab], [role=checkbox], [role=slider], [role=switch], [role=option], [tabindex]";
  const TEXT_RATIO = 4.5, LARGE_RATIO = 3, SHAPE_RATIO = 3;

  const shown = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })
    && element.getClientRects().length > 0 && !element.closest("[aria-hidden=true]");

  const named = (element) => {
    const text = (element.textContent || "").trim().slice(0, 40);
    const id = element.id ? `#${element.id}` : "";
    const kind = typeof element.className === "string" && element.className ? `.${element.className.split(" ")[0]}` : "";
    return `<${element.tagName.toLowerCase()}${id}${kind}>${text ? ` "${text}"` : ""}`;
  };

  const nameOf = (element) => {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    const own = element.getAttribute("aria-label");
    if (own?.trim()) return own.trim();
    if (element.labels?.length) return [...element.labels].map((label) => label.textContent).join(" ").trim();
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName)) return (element.title || "").trim();
    const drawn = element.querySelector("svg > title, img[alt]");
    return (element.textContent.trim() || drawn?.textContent || drawn?.alt || element.getAttribute("title") || "").trim();
  };

  // -- colours --

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const cache = new Map();
  const colour = (text) => {
    if (!cache.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = "rgba(0,0,0,0)";
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      cache.set(text, { r, g, b, a: a / 255 });
    }
    return cache.get(text);
  };
  const over = (top, under, opacity = 1) => {
    const a = top.a * opacity;
    const mix = (x, y) => x * a + y * (1 - a);
    return { r: mix(top.r, under.r), g: mix(top.g, under.g), b: mix(top.b, under.b), a: 1 };
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };

  const backgroundBehind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      if (each.ownerSVGElement) continue;
      const style = getComputedStyle(each);
      layers.push([colour(style.backgroundColor), 1]);
      if (colour(style.backgroundColor).a === 1) break;
    }
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    let found = dark ? { r: 18, g: 18, b: 18, a: 1 } : { r: 255, g: 255, b: 255, a: 1 };
    for (const [layer, opacity] of layers.reverse()) found = over(layer, found, opacity);
    return found;
  };

  const opacityOf = (element) => {
    let opacity = 1;
    for (let each = element; each; each = each.parentElement) opacity *= Number(getComputedStyle(each).opacity);
    return opacity;
  };

  // What a text of a drawing stands on: the last filled shape drawn before it that covers its middle.
  const behindInDrawing = (text) => {
    const svg = text.ownerSVGElement;
    const outer = svg.closest("body svg");
    let found = backgroundBehind(outer.parentElement);
    found = over(colour(getComputedStyle(outer).backgroundColor), found);
    const box = text.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    for (const shape of outer.querySelectorAll("rect, circle, ellipse, path, polygon")) {
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) break;
      if (shape.closest("defs, clipPath, pattern")) continue;
      const style = getComputedStyle(shape);
      const area = shape.getBoundingClientRect();
      const covers = area.left <= x && x <= area.right && area.top <= y && y <= area.bottom;
      if (!covers || style.fill === "none" || style.fill.startsWith("url") || style.visibility === "hidden") continue;
      found = over(colour(style.fill), found, Number(style.fillOpacity) * opacityOf(shape));
    }
    return found;
  };

  const isLarge = (style) => {
    const size = parseFloat(style.fontSize);
    return size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  };

  const textContrast = function* () {
    const seen = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || seen.has(element) || !shown(element)) continue;
      seen.add(element);
      if (element.closest("script, style, noscript, title, option, :disabled, [aria-disabled=true], .vh")) continue;
      const style = getComputedStyle(element);
      const drawn = Boolean(element.ownerSVGElement);
      const behind = drawn ? behindInDrawing(element) : backgroundBehind(element);
      const ink = over(colour(drawn ? style.fill : style.color), behind, opacityOf(element));
      const least = isLarge(style) ? LARGE_RATIO : TEXT_RATIO;
      const found = ratio(ink, behind);
      if (found < least) yield `contrast ${found.toFixed(2)} of ${least}: ${named(element)}`;
    }
  };

  // A field or a tile must stand out from what is around it, by its border or by its fill.
  const shapeContrast = function* () {
    for (const element of document.querySelectorAll("input, select, textarea, [data-tile]")) {
      if (!shown(element) || element.disabled || /^(checkbox|radio|range|file)$/.test(element.type)) continue;
      const style = getComputedStyle(element);
      const drawn = Boolean(element.ownerSVGElement);
      const around = drawn ? behindInDrawing(element) : backgroundBehind(element.parentElement);
      const inks = drawn ? [style.fill, style.stroke] : [style.backgroundColor];
      if (!drawn && parseFloat(style.borderTopWidth) > 0) inks.push(style.borderTopColor, style.borderBottomColor);
      if (!drawn && parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none") inks.push(style.outlineColor);
      if (drawn && element.tagName === "g") {
        for (const part of element.querySelectorAll("rect, circle, path, polygon")) {
          inks.push(getComputedStyle(part).fill, getComputedStyle(part).stroke);
        }
      }
      const best = Math.max(...inks.filter((ink) => ink && ink !== "none")
        .map((ink) => ratio(over(colour(ink), around, opacityOf(element)), around)), 1);
      if (best < SHAPE_RATIO) yield `shape contrast ${best.toFixed(2)} of ${SHAPE_RATIO}: ${named(element)}`;
    }
  };

  // -- structure --

  const structure = function* () {
    if (!document.documentElement.lang) yield "the document has no language";
    if (!document.title.trim()) yield "the document has no title";
    const heads = [...document.querySelectorAll("h1")].filter(shown);
    if (heads.length !== 1) yield `${heads.length} headings of level 1: ${heads.map(named).join(", ")}`;
    let level = 1;
    for (const head of [...document.querySelectorAll("main :is(h1, h2, h3, h4, h5, h6)")].filter(shown)) {
      const own = Number(head.tagName[1]);
      if (own > level + 1) yield `heading of level ${own} after level ${level}: ${named(head)}`;
      level = own;
    }
    for (const [selector, what] of [["main", "main"], ["header, [role=banner]", "banner"], ["nav", "navigation"]]) {
      if (![...document.querySelectorAll(selector)].some(shown)) yield `there is no landmark ${what}`;
    }
    if ([...document.querySelectorAll("main")].filter(shown).length > 1) yield "more than one main";
    const navs = [...document.querySelectorAll("nav")].filter(shown);
    for (const nav of navs) if (navs.length > 1 && !nameOf2(nav)) yield `a navigation of several has no name: ${named(nav)}`;
    const ids = new Map();
    for (const { id } of document.querySelectorAll("[id]")) ids.set(id, (ids.get(id) ?? 0) + 1);
    for (const [id, count] of ids) if (count > 1) yield `${count} elements have the id ${id}`;
    for (const table of [...document.querySelectorAll("table")].filter(shown)) {
      if (!table.querySelector("th")) yield `a table has no header cells: ${named(table)}`;
    }
  };
  const nameOf2 = (element) => element.getAttribute("aria-label") || element.getAttribute("aria-labelledby");

  const names = function* () {
    for (const element of document.querySelectorAll(CONTROLS)) {
      if (!shown(element) || element.matches("main[tabindex='-1']")) continue;
      if (element.getAttribute("tabindex") === "-1" && !element.matches("a, button, input, select, textarea")) continue;
      if (!nameOf(element)) yield `no name: ${named(element)}`;
    }
    for (const drawing of document.querySelectorAll("svg, [role=img], img")) {
      if (!shown(drawing) || drawing.ownerSVGElement || drawing.closest("button, a")) continue;
      const title = drawing.querySelector?.(":scope > title")?.textContent ?? drawing.getAttribute("alt") ?? "";
      if (!title.trim() && !nameOf2(drawing)) yield `a drawing has no name: ${named(drawing)}`;
    }
  };

  // Tiles of different roles must differ in more than their colour.
  const tiles = function* () {
    const looks = new Map();
    for (const tile of document.querySelectorAll("[data-tile]")) {
      if (!shown(tile)) continue;
      const told = `${nameOf(tile)} ${tile.getAttribute("title") ?? ""} ${tile.querySelector("title")?.textContent ?? ""}`;
      if (!told.trim()) yield `a tile says nothing: ${tile.dataset.tile}`;
      if (!tile.dataset.role) continue;
      const parts = [tile, ...tile.querySelectorAll("*")];
      const look = parts.map((part) => {
        const style = getComputedStyle(part), before = getComputedStyle(part, "::before");
        return [part.tagName, style.borderStyle, style.borderWidth, style.borderRadius, style.clipPath, style.transform,
          style.strokeDasharray, style.width, style.height, before.content, style.backgroundImage !== "none",
          part.getAttribute("rx"), part.getAttribute("d")].join();
      }).join(";") + tile.textContent.replace(/\d+/g, "#");
      const state = [tile.dataset.role, tile.dataset.sync, tile.dataset.state].join();
      for (const [other, seen] of looks) {
        if (other !== state && seen.has(look)) yield `tiles of ${state} and ${other} differ by colour alone`;
      }
      looks.set(state, (looks.get(state) ?? new Set()).add(look));
    }
  };

  const focusable = () => [...document.querySelectorAll(CONTROLS)].filter((element) =>
    shown(element) && !element.disabled && element.tabIndex >= 0 && element.getAttribute("aria-disabled") !== "true");

  const ring = (element) => {
    const style = getComputedStyle(element);
    return [style.outlineStyle, style.outlineWidth, style.boxShadow, style.borderColor, style.backgroundColor].join("|");
  };

  window.accessibility = {
    findings: () => [...new Set([...structure(), ...names(), ...textContrast(), ...shapeContrast(), ...tiles()])],
    // Marks everything that the Tab key must reach; `reached` says what it has not.
    expect() {
      this.rest = new Map(focusable().map((element) => [element, ring(element)]));
      this.unseen = [];
      document.activeElement?.blur();
    },
    step() {
      const element = document.activeElement;
      if (this.rest.has(element)) {
        if (ring(element) === this.rest.get(element)) this.unseen.push(named(element));
        this.rest.delete(element);
      }
      return this.rest.size;
    },
    unreached() {
      const still = [...this.rest.keys()].filter((element) => element.isConnected && shown(element));
      return [...still.map((element) => `Tab does not reach ${named(element)}`),
        ...this.unseen.map((name) => `focus is not visible: ${name}`)];
    },
  };
})();
