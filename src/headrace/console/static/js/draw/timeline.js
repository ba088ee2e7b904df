// SPDX-License-Identifier: Apache-2.0
// What happened in a group, in order of time: a drawing with one row for each kind, and the same as a list.
import { h, keyed, replace, setText, svg } from "../dom.js";
import { count, time } from "../format.js";
import { onWidth, scale, timeAxis, widthOf } from "./plot.js";

const ROWS = [
  { label: "joins", kinds: new Set(["join", "rejoin", "present"]), shape: "up" },
  { label: "leaves", kinds: new Set(["leave"]), shape: "down" },
  { label: "rebalances", kinds: new Set(["rebalance", "assigned", "target", "reconcile"]), shape: "diamond" },
  { label: "commits", kinds: new Set(["commit"]), shape: "tick" },
  { label: "other", kinds: null, shape: "dot" },
];
const ROW = 26;
const LEFT = 84;
const RIGHT = 12;
const TOP = 6;
const AXIS = 22;

const rowOf = (kind) => ROWS.findIndex((row) => !row.kinds || row.kinds.has(kind));

export class Timeline {
  #entries = [];
  #shown = "";

  constructor() {
    this.drawing = h("div", { class: "chart timeline" });
    this.empty = h("p", { class: "empty" }, "Nothing is known of this group's past yet.");
    this.items = h("ol", { class: "plain events" });
    this.summary = h("summary", null);
    this.list = h("details", null, this.summary, this.items);
    this.list.addEventListener("toggle", () => this.#showList());
    this.element = h("div", null, this.empty, this.drawing, this.list);
    this.close = onWidth(this.drawing, () => this.#draw());
  }

  update(view) {
    const entries = view.timeline ?? [];
    this.empty.hidden = entries.length > 0;
    this.list.hidden = entries.length === 0;
    const newest = entries.at(-1);
    const shown = `${entries.length} ${entries[0]?.at} ${newest?.at} ${newest?.text}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#entries = entries;
    setText(this.summary, `As a list: ${count(entries.length, "event")}`);
    this.#draw();
    this.#showList();
  }

  #draw() {
    if (this.#entries.length === 0) {
      replace(this.drawing);
      return;
    }
    const width = widthOf(this.drawing);
    const first = this.#entries[0].at;
    const last = Math.max(this.#entries.at(-1).at, first + 1000);
    const used = ROWS.filter((row, index) => row.kinds || this.#entries.some((each) => rowOf(each.kind) === index));
    const bottom = TOP + used.length * ROW;
    const x = scale(first, last, LEFT, width - RIGHT);
    replace(this.drawing, svg("svg", { width, height: bottom + AXIS, role: "img", "aria-label": `Events from ${time(first)} to ${time(last)}; the list below has them as text.` },
      timeAxis(first, last, x, TOP, bottom, width),
      used.map((row, index) => [
        svg("text", { class: "row-label", x: 0, y: TOP + index * ROW + ROW / 2 + 4 }, row.label),
        svg("line", { class: "row-line", x1: LEFT, x2: width - RIGHT, y1: TOP + index * ROW + ROW / 2, y2: TOP + index * ROW + ROW / 2 }),
      ]),
      this.#entries.map((each) => mark(each, x(each.at), TOP + used.indexOf(ROWS[rowOf(each.kind)]) * ROW + ROW / 2))));
  }

  #showList() {
    if (!this.list.open) return;
    keyed(this.items, [...this.#entries].reverse(), (each) => `${each.at} ${each.kind} ${each.text}`,
      (each) => h("li", null, h("time", null, time(each.at)), " ", each.text));
  }
}

const SHAPES = {
  up: (x, y) => svg("path", { d: `M${x - 6} ${y + 5} L${x} ${y - 7} L${x + 6} ${y + 5} Z` }),
  down: (x, y) => svg("path", { d: `M${x - 6} ${y - 5} L${x} ${y + 7} L${x + 6} ${y - 5} Z` }),
  diamond: (x, y) => svg("path", { d: `M${x} ${y - 8} L${x + 7} ${y} L${x} ${y + 8} L${x - 7} ${y} Z` }),
  tick: (x, y) => svg("path", { d: `M${x - 1} ${y - 7} h2 v14 h-2 Z` }),
  dot: (x, y) => svg("circle", { cx: x, cy: y, r: 5 }),
};

const mark = (each, x, y) =>
  svg("g", { class: "mark", "data-kind": each.kind },
    svg("title", null, `${time(each.at)} ${each.text}`),
    SHAPES[ROWS[rowOf(each.kind)].shape](Math.round(x), y));
