// SPDX-License-Identifier: Apache-2.0
// The lag of a group over time, as a line and as a sentence.
import { h, replace, setText, svg } from "../dom.js";
import { duration, number, short } from "../format.js";
import { onWidth, roundUp, scale, timeAxis, widthOf } from "./plot.js";

const HEIGHT = 170;
const LEFT = 52;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = HEIGHT - 22;

export class LagChart {
  #points = [];
  #shown = "";

  constructor() {
    this.drawing = h("div", { class: "chart lag-chart" });
    this.text = h("p", { class: "muted" });
    this.element = h("div", null, this.drawing, this.text);
    this.close = onWidth(this.drawing, () => this.#draw());
  }

  update(view) {
    const points = (view.totals.history ?? []).filter(([, lag]) => lag !== null);
    const shown = `${points.length} ${points[0]} ${points.at(-1)}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#points = points;
    setText(this.text, sentence(points));
    this.#draw();
  }

  #draw() {
    if (this.#points.length < 2) {
      replace(this.drawing);
      return;
    }
    const width = widthOf(this.drawing);
    const [from, to] = [this.#points[0][0], this.#points.at(-1)[0]];
    const most = roundUp(Math.max(1, ...this.#points.map(([, lag]) => lag)));
    const x = scale(from, to, LEFT, width - RIGHT);
    const y = scale(0, most, BOTTOM, TOP);
    const line = this.#points.map(([at, lag]) => `${x(at).toFixed(1)},${y(lag).toFixed(1)}`).join(" ");
    replace(this.drawing, svg("svg", { width, height: HEIGHT, role: "img", "aria-label": sentence(this.#points) },
      timeAxis(from, to, x, TOP, BOTTOM, width),
      [0, most / 2, most].map((lag) => [
        svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(lag), y2: y(lag) }),
        svg("text", { class: "axis", x: LEFT - 6, y: y(lag) + 4, "text-anchor": "end" }, short(lag)),
      ]),
      svg("polygon", { class: "area", points: `${x(from)},${BOTTOM} ${line} ${x(to)},${BOTTOM}` }),
      svg("polyline", { class: "line", points: line, fill: "none" }),
      svg("circle", { class: "point", cx: x(to), cy: y(this.#points.at(-1)[1]), r: 3.5 })));
  }
}

export function sentence(points) {
  if (points.length < 2) return "The history of the lag begins when it was measured twice: wait a moment.";
  const [[from, first], [to, last]] = [points[0], points.at(-1)];
  const change = last === first ? `stayed at ${number(last)} records` : `${last > first ? "rose" : "fell"} from ${number(first)} to ${number(last)} records`;
  const most = Math.max(...points.map(([, lag]) => lag));
  return `The lag ${change} in ${duration(to - from)}; at most it was ${number(most)}.`;
}
