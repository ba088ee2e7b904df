// SPDX-License-Identifier: Apache-2.0
// Records as a table; a row opens to show everything of its record.
import { h, keyed } from "./dom.js";
import { bytes, count, time } from "./format.js";
import { isoTime, recordDetail } from "./record_detail.js";

const SHOWN = 300;
const COLUMNS = 6;

const keyOf = (record) => `${record.partition}:${record.offset}`;

const oneLine = (part) => {
  if (part.form === "null") return h("em", { class: "muted" }, "null");
  const text = part.text.slice(0, SHOWN).replace(/\s+/g, " ");
  return [part.form === "hex" && h("span", { class: "badge" }, "hex"), part.form === "hex" && " ", text, part.text.length > SHOWN && " …"];
};

// With milliseconds: records of one second keep their order visible.
const moment = (milliseconds) => (milliseconds === null ? time(null) : `${time(milliseconds)}.${String(milliseconds % 1000).padStart(3, "0")}`);

const marks = (record) => [
  record.transaction === "aborted" && h("span", { class: "badge bad" }, "aborted"),
  record.transaction === "open" && h("span", { class: "badge warn" }, "open transaction"),
  record.headers.length > 0 && h("span", { class: "badge" }, count(record.headers.length + record.headers_more, "header")),
  record.value.cut && h("span", { class: "badge info" }, bytes(record.value.size)),
];

export class MessageList {
  // `again(record)` or null; `onOpen(key or null)`: which record is open, for the address.
  constructor({ topic, again, onOpen, open }) {
    this.topic = topic;
    this.again = again;
    this.onOpen = onOpen;
    this.open = open ?? null;
    this.body = h("tbody");
    this.element = h("div", { class: "table-box", tabindex: 0, role: "region", "aria-label": "Messages" },
      h("table", { class: "table messages" }, h("caption", { class: "vh" }, "Messages"),
        h("thead", null, h("tr", null,
          h("th", null, h("span", { class: "vh" }, "Open")), h("th", null, "Time"), h("th", { class: "num" }, "Partition"),
          h("th", { class: "num" }, "Offset"), h("th", null, "Key"), h("th", null, "Value"))),
        this.body));
    this.body.addEventListener("keydown", (event) => this.#move(event));
  }

  update(records) {
    this.element.hidden = records.length === 0;
    const rows = records.flatMap((record) =>
      keyOf(record) === this.open ? [{ record, detail: false }, { record, detail: true }] : [{ record, detail: false }]);
    this.records = records;
    keyed(this.body, rows, (row) => `${row.detail ? "d" : "r"}${keyOf(row.record)}`,
      (row) => (row.detail ? this.#detail(row.record) : this.#row(row.record)), (element, row) => this.#mark(element, row));
  }

  #row(record) {
    const key = keyOf(record);
    const button = h("button", {
      type: "button", class: "small quiet", "aria-label": `Record ${record.offset} of partition ${record.partition}`, onclick: () => this.#toggle(key),
    }, "▸");
    const row = h("tr", { class: "message", "data-record": key },
      h("td", null, button), h("td", { class: "num nowrap", title: isoTime(record.timestamp) }, moment(record.timestamp)),
      h("td", { class: "num" }, record.partition), h("td", { class: "num" }, record.offset),
      h("td", { class: "mono cut key" }, oneLine(record.key)), h("td", { class: "mono cut value" }, marks(record), " ", oneLine(record.value)));
    row.addEventListener("click", (event) => {
      if (!event.target.closest("button, a") && getSelection().isCollapsed) this.#toggle(key);
    });
    return row;
  }

  #detail(record) {
    return h("tr", { class: "message-detail", id: `detail-${keyOf(record)}` },
      h("td", { colspan: COLUMNS }, recordDetail(this.topic, record, this.again)));
  }

  #mark(element, row) {
    if (row.detail) return;
    const key = keyOf(row.record);
    const button = element.querySelector("button");
    const isOpen = key === this.open;
    button.textContent = isOpen ? "▾" : "▸";
    button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) button.setAttribute("aria-controls", `detail-${key}`);
    else button.removeAttribute("aria-controls");
  }

  #toggle(key) {
    this.open = this.open === key ? null : key;
    this.onOpen(this.open);
    this.update(this.records);
  }

  // Arrow keys go from record to record.
  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest?.("tr.message");
    if (!step || !row || event.target.tagName !== "BUTTON") return;
    const rows = [...this.body.querySelectorAll("tr.message")];
    rows[rows.indexOf(row) + step]?.querySelector("button").focus();
    event.preventDefault();
  }
}
