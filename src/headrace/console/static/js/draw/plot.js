// SPDX-License-Identifier: Apache-2.0
// What the charts of a group share: the width that there is, an axis of time, round numbers.
import { svg } from "../dom.js";
import { time } from "../format.js";

const NARROWEST = 260;
const STEPS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400];
const LABEL_WIDTH = 90;

// Draws again when the width changes.
export function onWidth(element, draw) {
  const observer = new ResizeObserver(() => draw(Math.max(NARROWEST, element.clientWidth)));
  observer.observe(element);
  return () => observer.disconnect();
}

export const widthOf = (element) => Math.max(NARROWEST, element.clientWidth || 0);

export const scale = (from, to, left, right) => (value) => left + ((value - from) / Math.max(1, to - from)) * (right - left);

// Moments at round times, as many as fit.
export function moments(from, to, width) {
  const fit = Math.max(2, Math.floor(width / LABEL_WIDTH));
  const step = 1000 * (STEPS_S.find((each) => (to - from) / (each * 1000) <= fit) ?? 7 * 86_400);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

export const timeAxis = (from, to, x, top, bottom, width) =>
  moments(from, to, width).map((at) => [
    svg("line", { class: "grid", x1: x(at), x2: x(at), y1: top, y2: bottom }),
    svg("text", { class: "axis", x: x(at), y: bottom + 14, "text-anchor": x(at) < 40 ? "start" : x(at) > width - 30 ? "end" : "middle" }, time(at)),
  ]);

// The next number of 1, 2 or 5 times a power of ten.
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}
