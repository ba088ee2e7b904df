// SPDX-License-Identifier: Apache-2.0
// Horizontal bars with a label and a value: rows of {label, value, text}.
import { h } from "../dom.js";

export function bars(rows) {
  const largest = Math.max(1, ...rows.map((row) => row.value));
  return h("ul", { class: "bars plain" }, rows.map(({ label, value, text }) => {
    const bar = h("i");
    bar.style.width = `${(value / largest) * 100}%`;
    return h("li", null, h("span", { class: "bar-label truncate", title: label }, label), h("span", { class: "bar" }, bar), h("span", { class: "num" }, text));
  }));
}
