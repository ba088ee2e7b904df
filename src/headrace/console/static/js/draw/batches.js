// SPDX-License-Identifier: Apache-2.0
// The last micro-batches of a query as bars: how long each took. A thin line where there was nothing to read.
import { h, replace, svg } from "../dom.js";
import { count, duration, number, time } from "../format.js";
import { onWidth, roundUp, widthOf } from "./plot.js";

const HEIGHT = 180;
const LEFT = 58;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = HEIGHT - 22;
const WIDEST = 24;

// A batch is [at, number, rows, milliseconds].
export class BatchChart {
  #shown = "";
  #batches = [];

  constructor() {
    this.drawing = h("div", { class: "chart batches" });
    this.text = h("p", { class: "muted" });
    this.element = h("div", null, this.drawing, this.text);
    this.close = onWidth(this.drawing, () => this.#draw());
  }

  update(batches) {
    const shown = JSON.stringify([batches.length, batches[0], batches.at(-1)]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#batches = batches;
    this.text.textContent = sentence(batches);
    this.#draw();
  }

  #draw() {
    if (this.#batches.length === 0) {
      replace(this.drawing);
      return;
    }
    const width = widthOf(this.drawing);
    const most = roundUp(Math.max(1, ...this.#batches.map(([, , , took]) => took)));
    const step = (width - LEFT - RIGHT) / this.#batches.length;
    const y = (took) => BOTTOM - ((BOTTOM - TOP) * took) / most;
    const [from, to] = [this.#batches[0][0], this.#batches.at(-1)[0]];
    replace(this.drawing, svg("svg", { width, height: HEIGHT, role: "img", "aria-label": sentence(this.#batches) },
      [0, most / 2, most].map((took) => [
        svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(took), y2: y(took) }),
        svg("text", { class: "axis", x: LEFT - 6, y: y(took) + 4, "text-anchor": "end" }, duration(took)),
      ]),
      this.#batches.map(([at, batch, rows, took], index) =>
        svg("rect", { class: rows === 0 ? "empty-batch" : null, "data-batch": batch, x: LEFT + index * step + step * 0.1, y: y(took), width: Math.min(WIDEST, step * 0.8), height: Math.max(1, BOTTOM - y(took)) },
          svg("title", null, `batch ${batch} at ${time(at)}: ${count(rows, "record")} in ${duration(took)}`))),
      svg("text", { class: "axis", x: LEFT, y: HEIGHT - 6 }, time(from)),
      svg("text", { class: "axis", x: width - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, time(to))));
  }
}

export function sentence(batches) {
  if (batches.length === 0) return "No micro-batch was reported yet.";
  const took = batches.map((batch) => batch[3]).sort((a, b) => a - b);
  const rows = batches.reduce((sum, batch) => sum + batch[2], 0);
  return `The last ${count(batches.length, "micro-batch", "micro-batches")} read ${count(rows, "record")}; half of them took at most ${duration(took[Math.floor((took.length - 1) / 2)])}, the longest ${duration(took.at(-1))} (${number(batches.at(-1)[1])} is the newest).`;
}

// The same in a row of a table, without axes.
export function spark(batches, width = 120, height = 24) {
  if (batches.length === 0) return "–";
  const shown = batches.slice(-30);
  const most = Math.max(1, ...shown.map((batch) => batch[3]));
  const step = width / 30;
  return h("span", { class: "spark batches" }, svg("svg", { width, height, role: "img", "aria-label": sentence(shown) },
    shown.map(([, , rows, took], index) => svg("rect", {
      class: rows === 0 ? "empty-batch" : null, x: (index * step).toFixed(1), y: (height - Math.max(1, (height * took) / most)).toFixed(1), width: (step * 0.75).toFixed(1), height: Math.max(1, (height * took) / most).toFixed(1),
    }))));
}
