// SPDX-License-Identifier: Apache-2.0
// Everything of one record: value, key, headers, and where it is. Values of strangers are shown as text only.
import { withQuery } from "./api.js";
import { h, path, replace } from "./dom.js";
import { bytes, number } from "./format.js";
import { fromHex, hexBlock } from "./hex_text.js";
import { jsonBlock } from "./json_text.js";
import { banner, copyButton } from "./notices.js";

export const isoTime = (milliseconds) => {
  const moment = milliseconds === null ? null : new Date(milliseconds);
  return moment === null || Number.isNaN(moment.getTime()) ? String(milliseconds ?? "not known") : moment.toISOString();
};

const bytesOf = (part) => (part.form === "hex" ? fromHex(part.text) : new TextEncoder().encode(part.text ?? ""));

// How a part can be looked at, the best way first.
function looks(part) {
  if (part.form === "null") return [];
  const text = ["Text", () => h("pre", { class: "record-text", tabindex: 0 }, part.text)];
  const hex = ["Hex", () => hexBlock(bytesOf(part))];
  if (part.form === "hex") return [hex];
  const pretty = ["Pretty", () => jsonBlock(part.text)];
  if (part.form === "avro") return [pretty, text];
  return part.form === "json" ? [pretty, text, hex] : [text, hex];
}

function partBox(title, part, download) {
  const body = h("div");
  const choices = looks(part);
  const buttons = choices.map(([name, show]) =>
    h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: (event) => choose(event.currentTarget, show) }, name));
  function choose(button, show) {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    replace(body, show());
  }
  if (choices.length) choose(buttons[0], choices[0][1]);
  else replace(body, h("p", { class: "muted" }, "null"));
  const whole = part.form !== "null" && download && h("a", { class: "button small", href: download, download: true }, part.cut ? `Download all ${bytes(part.size)}` : "Download");
  return h("section", { class: "record-part" },
    h("div", { class: "panel-head" }, h("h3", null, title), h("span", { class: "badge" }, part.form),
      h("span", { class: "muted" }, part.form === "null" ? "" : bytes(part.size)),
      h("span", { class: "tabs" }, buttons.length > 1 && buttons, part.text !== null && copyButton(body, part.text), whole)),
    part.problem && banner("warning", `This is not ${part.form === "hex" || part.form === "text" ? "shown as was asked for" : part.form}`, part.problem),
    part.cut && h("p", { class: "muted" }, `Only the first ${bytes(64 * 1024)} are shown.`),
    body);
}

const headersBox = (record) =>
  h("section", { class: "record-part" },
    h("h3", null, `Headers (${number(record.headers.length + record.headers_more)})`),
    h("dl", { class: "record-facts" }, record.headers.map((header) => [
      h("dt", { class: "mono" }, header.name),
      h("dd", { class: "mono" }, header.form === "null" ? "null" : header.text, header.form === "hex" && h("span", { class: "badge" }, "hex"), header.cut && " …"),
    ])),
    record.headers_more > 0 && h("p", { class: "muted" }, `${number(record.headers_more)} more are not shown.`));

const TRANSACTION = { committed: "committed", aborted: "aborted: readers of committed records skip it", open: "still open" };

export const recordLink = (topic, record) =>
  withQuery(path("topics", topic, "messages"), { from: "offset", offset: record.offset, partitions: record.partition, limit: 1, open: `${record.partition}:${record.offset}` });

// `again(record)`: opens the dialog that writes the same once more; null where nothing may be written.
export function recordDetail(topic, record, again) {
  const file = (part) => withQuery("/api/messages/record", { topic, partitions: record.partition, offset: record.offset, part });
  const facts = [
    ["Partition", record.partition], ["Offset", record.offset],
    ["Time", `${isoTime(record.timestamp)}${record.append_time ? " (set by the broker)" : ""}`], ["Size", bytes(record.size)],
    record.producer_id !== null && ["Producer id", record.producer_id],
    record.transaction && ["Transaction", TRANSACTION[record.transaction]],
  ].filter(Boolean);
  return h("div", { class: "record-detail" },
    h("dl", { class: "record-facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, String(value))])),
    partBox("Value", record.value, file("value")),
    partBox("Key", record.key, file("key")),
    headersBox(record),
    h("div", { class: "toolbar" },
      h("a", { class: "button small", href: recordLink(topic, record) }, "Link to this record"),
      again && h("button", { type: "button", class: "small", onclick: () => again(record) }, "Write it again …")));
}
