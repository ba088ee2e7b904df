// SPDX-License-Identifier: Apache-2.0
// What of a topic is shown: the fields above the records, and the query of the page's address.
import { h } from "./dom.js";
import { banner } from "./notices.js";

const PLACES = [["newest", "the newest"], ["oldest", "the oldest"], ["offset", "an offset"], ["time", "a time"]];
const FORMATS = ["auto", "json", "avro", "text", "hex"];
const NAMES = ["from", "offset", "time", "partitions", "key", "key_as", "filter", "key_format", "value_format", "limit", "uncommitted"];
const EXAMPLES = [
  ["value.user.id == 42", "a field of JSON or Avro"],
  ['key ~ "order-*"', "* any letters, ? one letter; !~ for not"],
  ['header.trace exists and not value.status in ("ok", "done")', "and, or, not, parentheses"],
  ['timestamp >= "2026-01-31T12:00:00Z" and offset < 1000', "also partition and size"],
  ['value contains "error" or value.name starts with "A"', "contains, starts with, ends with"],
  ["value == null", "records without a value (tombstones)"],
];

const select = (options) => h("select", null, options.map(([value, text]) => h("option", { value }, text)));
const field = (label, input, more) => h("label", { class: `field ${more ?? ""}`.trim() }, label, input);
const two = (value) => String(value).padStart(2, "0");

// A moment as the browser's own field takes it, in local time.
const localTime = (text) => {
  const moment = new Date(/^\d+$/.test(text) ? Number(text) : text);
  if (Number.isNaN(moment.getTime())) return "";
  const day = [moment.getFullYear(), two(moment.getMonth() + 1), two(moment.getDate())].join("-");
  return `${day}T${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
};

export class MessageForm {
  // `onLoad(query)` when other records are asked for.
  constructor(query, onLoad) {
    this.onLoad = onLoad;
    this.place = select(PLACES);
    this.place.addEventListener("change", () => this.#showPlace(true));
    this.offset = h("input", { type: "number", min: 0, step: 1, inputmode: "numeric" });
    this.time = h("input", { type: "datetime-local", step: 1 });
    this.partitions = h("input", { placeholder: "all", pattern: "[0-9]+(,[0-9]+)*", title: "numbers, such as 0,2", size: 8 });
    this.filter = h("input", { class: "mono", placeholder: 'value.user.id == 42 and key ~ "ab*"', spellcheck: "false", autocapitalize: "off", maxlength: 2000, id: "messages-filter" });
    this.key = h("input", { class: "mono", placeholder: "exact key", spellcheck: "false" });
    this.keyAs = select([["", "text"], ["hex", "hex"]]);
    this.keyFormat = select(FORMATS.map((each) => [each, each]));
    this.valueFormat = select(FORMATS.map((each) => [each, each]));
    this.limit = select([["", "50"], ["100", "100"], ["500", "500"]]);
    this.uncommitted = h("input", { type: "checkbox" });
    this.problem = h("div", { "aria-live": "polite", id: "filter-problem" });
    this.#fill(query);
    this.element = this.#build();
    this.#showPlace(false);
  }

  // Only what differs from the defaults: it becomes the address.
  get query() {
    const place = this.place.value;
    const time = place === "time" && this.time.value ? new Date(this.time.value).toISOString() : "";
    const all = {
      from: place === "newest" ? "" : place, offset: place === "offset" ? this.offset.value || "0" : "", time,
      partitions: this.partitions.value.replaceAll(" ", ""), key: this.key.value, key_as: this.key.value ? this.keyAs.value : "", filter: this.filter.value.trim(),
      key_format: this.keyFormat.value === "auto" ? "" : this.keyFormat.value,
      value_format: this.valueFormat.value === "auto" ? "" : this.valueFormat.value,
      limit: this.limit.value, uncommitted: this.uncommitted.checked ? "1" : "",
    };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ""));
  }

  // A filter that the server does not understand, at its field.
  refused(error) {
    const isFilter = Boolean(error) && /^the filter /.test(error.message);
    if (isFilter) this.filter.setAttribute("aria-invalid", "true");
    else this.filter.removeAttribute("aria-invalid");
    this.problem.replaceChildren(...(error ? [banner("error", error.message, error.next)] : []));
    if (!isFilter) return;
    const place = Number(/character (\d+)/.exec(error.message)?.[1] ?? 1) - 1;
    this.filter.focus();
    this.filter.setSelectionRange(place, this.filter.value.length);
  }

  #fill(query) {
    this.place.value = PLACES.some(([each]) => each === query.from) ? query.from : "newest";
    this.offset.value = query.offset ?? "";
    this.time.value = localTime(query.time ?? "");
    this.partitions.value = query.partitions ?? "";
    this.filter.value = query.filter ?? "";
    this.key.value = query.key ?? "";
    this.keyAs.value = query.key_as === "hex" ? "hex" : "";
    this.keyFormat.value = FORMATS.includes(query.key_format) ? query.key_format : "auto";
    this.valueFormat.value = FORMATS.includes(query.value_format) ? query.value_format : "auto";
    if (query.limit && ![...this.limit.options].some((option) => option.value === query.limit)) {
      this.limit.append(h("option", { value: query.limit }, query.limit));
    }
    this.limit.value = query.limit ?? "";
    this.uncommitted.checked = query.uncommitted === "1";
  }

  #build() {
    const more = h("details", { class: "more-fields", open: ["key", "key_format", "value_format", "uncommitted"].some((name) => this.query[name]) },
      h("summary", null, "Key, formats, transactions"),
      h("div", { class: "toolbar" },
        field("Key", this.key), field("given as", this.keyAs), field("Show keys as", this.keyFormat), field("Show values as", this.valueFormat), field("Records", this.limit),
        h("label", { class: "field inline" }, this.uncommitted, "also of aborted and open transactions")));
    const help = h("details", { class: "more-fields" }, h("summary", null, "How to write a filter"),
      h("dl", { class: "record-facts" }, EXAMPLES.map(([text, meaning]) => [
        h("dt", null, h("button", { type: "button", class: "small mono example", onclick: () => this.#example(text) }, text)), h("dd", { class: "muted" }, meaning),
      ])),
      h("p", { class: "muted" }, "A field that is not there matches nothing but != and not. Names with other letters go in quotes: value[\"its name\"]. Times without a zone are UTC."));
    this.offsetField = field("Offset", this.offset);
    this.timeField = field("Time (of this browser)", this.time);
    return h("form", { class: "message-form panel", role: "search", "aria-label": "Which messages", onsubmit: (event) => this.#submit(event) },
      h("div", { class: "toolbar" },
        field("From", this.place), this.offsetField, this.timeField, field("Partitions", this.partitions),
        field("Filter", this.filter, "grow"), h("button", { class: "primary" }, "Show")),
      this.problem, more, help);
  }

  #example(text) {
    this.filter.value = text;
    this.filter.focus();
  }

  #showPlace(focus) {
    this.offsetField.hidden = this.place.value !== "offset";
    this.timeField.hidden = this.place.value !== "time";
    if (focus && !this.offsetField.hidden) this.offset.focus();
    if (focus && !this.timeField.hidden) this.time.focus();
  }

  #submit(event) {
    event.preventDefault();
    this.refused(null);
    this.onLoad(this.query);
  }
}

export const formPart = (query) => Object.fromEntries(NAMES.filter((name) => query[name]).map((name) => [name, query[name]]));
export const EMPTY = Object.fromEntries([...NAMES, "partition", "cursor", "direction", "open", "tail"].map((name) => [name, null]));
