// SPDX-License-Identifier: Apache-2.0
// Numbers of consumers as bars: how busy each is, how many partitions each has, and which number is needed.
import { h, replace, svg } from "../dom.js";
import { percent } from "../format.js";
import { choice } from "../plan_formula.js";
import { onWidth, widthOf } from "./plot.js";

const ROW = 30;
const LEFT = 132;
const RIGHT = 138;
const MOST_ROWS = 12;
const FULL = 1;
const WIDEST_LOAD = 2;

export class Choices {
  #last = null;

  constructor() {
    this.element = h("div", { class: "chart plan-bars" });
    this.close = onWidth(this.element, () => this.#draw());
  }

  update(situation, plan) {
    this.#last = [situation, plan];
    this.#draw();
  }

  #draw() {
    if (!this.#last) return;
    const [situation, plan] = this.#last;
    const width = widthOf(this.element);
    const counts = numbers(situation, plan);
    const x = (load) => LEFT + (Math.min(load, WIDEST_LOAD) / WIDEST_LOAD) * (width - LEFT - RIGHT);
    const height = counts.length * ROW + 26;
    const label = counts.map((each) => `${each} consumers: ${percent(choice(situation, each).load)}`).join(", ");
    replace(this.element, svg("svg", { width, height, role: "img", "aria-label": `Load of each consumer. ${label}` },
      svg("line", { class: "full", x1: x(FULL), x2: x(FULL), y1: 4, y2: height - 20 }),
      svg("text", { class: "axis", x: x(FULL), y: height - 6, "text-anchor": "middle" }, "100 %: no more time"),
      counts.map((each, index) => bar(situation, plan, each, index * ROW + 4, x))));
  }
}

function bar(situation, plan, consumers, top, x) {
  const { load } = choice(situation, consumers);
  const level = load > FULL ? "bad" : consumers >= plan.consumers_with_spare ? "ok" : "warn";
  const idle = consumers > plan.partitions ? " (some idle)" : "";
  const sign = load > FULL ? "lag grows" : consumers >= plan.consumers_with_spare ? "one may fail" : "just enough";
  const text = `${consumers} ${consumers === 1 ? "consumer" : "consumers"}${consumers === situation.consumers ? ", now" : ""}`;
  return svg("g", { class: `bar ${level}`, "data-consumers": consumers },
    svg("text", { class: "name", x: LEFT - 8, y: top + 15, "text-anchor": "end" }, text),
    svg("rect", { x: LEFT, y: top, width: Math.max(2, x(load) - LEFT), height: ROW - 10, rx: 3 }),
    svg("text", { class: "axis", x: x(WIDEST_LOAD) + 8, y: top + 15 }, `${percent(load)} ${sign}${idle}`));
}

// Around what is needed, what is spare and what there is now; not more than fit.
function numbers(situation, plan) {
  const first = Math.max(1, plan.consumers - 2);
  const near = Array.from({ length: plan.consumers_with_spare + 3 - first }, (_, index) => first + index);
  const chosen = new Set([...near, ...(situation.consumers ? [situation.consumers] : [])]);
  return [...chosen].sort((a, b) => a - b).slice(0, MOST_ROWS);
}
