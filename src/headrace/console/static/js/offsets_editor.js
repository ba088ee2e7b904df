// SPDX-License-Identifier: Apache-2.0
// The dialog that sets a group's committed offsets: choose, look at the preview, apply it once.
import { openDialog, whileBusy } from "./dialog.js";
import { h, replace } from "./dom.js";
import { count, number } from "./format.js";
import { banner, commandLine } from "./notices.js";

const SHOWN = 500;

// `document`: of the view "group", or null; `onDone(answer or null)` when the dialog is closed.
export function openOffsetsEditor(root, { group, session, api, onDone, document = null }) {
  const state = { answer: null };
  const body = h("div");
  const dialog = openDialog(root, `Change the offsets of ${group}`, () => body, () => onDone?.(state.answer));
  if (session?.read_only) {
    replace(body, banner("info", "This console is read-only.", "Start it without --read-only, or use headrace groups reset."), close(dialog));
    return;
  }
  const choice = new Choice(group, document?.partitions ?? []);
  const toChoice = () => {
    dialog.failed(null);
    const preview = h("button", { class: "primary" }, "Preview");
    replace(body, h("form", { onsubmit: async (event) => {
      event.preventDefault();
      const found = await whileBusy(dialog, [preview], async () => api.post("/groups/offsets/preview", choice.request()));
      if (found) toPreview(found);
    } }, choice.element, h("div", { class: "actions" }, h("button", { type: "button", onclick: dialog.close }, "Cancel"), preview)));
  };
  const toPreview = (found) => {
    const back = h("button", { type: "button", onclick: toChoice }, "Back");
    const apply = h("button", { type: "button", class: "danger", disabled: Boolean(found.blocked) || found.changes.length === 0 }, "Set these offsets");
    apply.addEventListener("click", async () => {
      const answer = await whileBusy(dialog, [apply, back], () => api.post("/groups/offsets", { token: found.token }));
      if (answer) {
        state.answer = answer;
        replace(body, banner("info", `The offsets of ${count(answer.applied, "partition")} were set.`, "Consumers of the group begin there when they start."), close(dialog));
        body.querySelector("button").focus();
      } else {
        apply.disabled = true; // its token is used up
        back.focus();
      }
    });
    replace(body, previewBox(found), h("div", { class: "actions" }, h("button", { type: "button", onclick: dialog.close }, "Cancel"), back, apply));
    (apply.disabled ? back : apply).focus();
  };
  toChoice();
}

const close = (dialog) => h("div", { class: "actions" }, h("button", { type: "button", class: "primary", onclick: dialog.close }, "Close"));

class Choice {
  constructor(group, partitions) {
    this.group = group;
    this.partitions = partitions;
    this.offset = h("input", { type: "number", min: 0, step: 1, value: 0, "aria-label": "Offset" });
    this.time = h("input", { type: "datetime-local", step: 1, "aria-label": "Time" });
    this.shift = h("input", { type: "number", step: 1, value: -100, "aria-label": "Records, negative for back" });
    this.topics = [...new Set(partitions.map((each) => each.topic))].sort();
    this.boxes = this.topics.map((topic) => h("input", { type: "checkbox", value: topic, checked: true }));
    this.edits = new Map();
    this.element = h("div", { class: "page" },
      this.topics.length > 1 && h("fieldset", { class: "choices" }, h("legend", null, "Topics"),
        this.topics.map((topic, place) => h("label", null, this.boxes[place], topic))),
      h("fieldset", { class: "choices", onchange: () => this.#show() }, h("legend", null, "Read next from"),
        this.#kind("earliest", "the beginning", null, true), this.#kind("latest", "the end: skip what is there now"),
        this.#kind("time", "the first record at or after", this.time), this.#kind("shift", "so many records further; back with −", this.shift),
        this.#kind("offset", "this offset in every partition", this.offset),
        partitions.length > 0 && this.#kind("set", "an offset for each partition")),
      this.#table());
    this.#show();
  }

  request() {
    const kind = this.element.querySelector("input[type=radio]:checked").value;
    const topics = this.boxes.length > 1 ? this.boxes.filter((box) => box.checked).map((box) => box.value) : this.topics;
    const chosen = this.topics.length && topics.length < this.topics.length ? topics.map((topic) => ({ topic, partitions: null })) : null;
    return { group: this.group, topics: chosen, strategy: { kind, ...this.#value(kind, new Set(topics)) } };
  }

  #value(kind, topics) {
    if (kind === "offset") return { value: Number(this.offset.value) };
    if (kind === "shift") return { value: Number(this.shift.value) };
    if (kind === "time") return { value: this.time.value ? new Date(this.time.value).getTime() : null };
    if (kind !== "set") return {};
    const offsets = [];
    for (const [each, input] of this.edits) {
      const changed = input.value !== "" && Number(input.value) !== each.committed;
      if (changed && topics.has(each.topic)) offsets.push({ topic: each.topic, partition: each.partition, offset: Number(input.value) });
    }
    return { offsets };
  }

  #kind(value, text, input = null, checked = false) {
    const radio = h("input", { type: "radio", name: "offsets-kind", value, checked });
    input?.addEventListener("focus", () => {
      radio.checked = true;
      this.#show();
    });
    return h("label", null, radio, text, input);
  }

  #table() {
    this.byHand = h("div", { class: "offsets-table", tabindex: 0, role: "region", "aria-label": "Offset of each partition" }, h("table", { class: "table" },
      h("thead", null, h("tr", null, ["Topic", "Partition", "First", "Committed", "End", "New offset"].map((text, place) => h("th", { class: place ? "num" : null }, text)))),
      h("tbody", null, this.partitions.slice(0, SHOWN).map((each) => {
        const input = h("input", { type: "number", min: 0, step: 1, value: each.committed ?? each.end ?? 0, "aria-label": `New offset of partition ${each.partition} of ${each.topic}` });
        this.edits.set(each, input);
        return h("tr", null, h("td", null, each.topic), h("td", { class: "num" }, each.partition), h("td", { class: "num" }, number(each.start)),
          h("td", { class: "num" }, number(each.committed)), h("td", { class: "num" }, number(each.end)), h("td", { class: "num" }, input));
      }))));
    return this.byHand;
  }

  #show() {
    this.byHand.hidden = this.element?.querySelector("input[value=set]")?.checked !== true;
  }
}

const moved = (change) => {
  if (change.read_again === null) return h("span", { class: "muted" }, "first offset");
  if (change.read_again > 0) return h("span", { class: "change back" }, `${number(change.read_again)} again`);
  return change.skipped > 0 ? h("span", { class: "change forward" }, `${number(change.skipped)} skipped`) : h("span", { class: "muted" }, "stays");
};

function previewBox(found) {
  const outside = found.changes.filter((change) => change.outside).length;
  return h("div", { class: "page", id: "offsets-preview" },
    found.blocked && banner("error", `This cannot be done now: ${found.blocked.text}.`, found.blocked.next),
    h("div", { class: "figures" },
      figure(number(found.read_again), "records read again", found.read_again > 0 ? "warn" : ""),
      figure(number(found.skipped), "records skipped", found.skipped > 0 ? "bad" : ""),
      figure(number(found.changes.length), "partitions"),
      found.new > 0 && figure(number(found.new), "without an offset so far")),
    outside > 0 && banner("warning", `${count(outside, "partition does", "partitions do")} not hold the offset asked for.`, "The nearest one there is will be used."),
    found.missing.length > 0 && banner("warning", `${count(found.missing.length, "partition")} of deleted topics left out.`),
    h("div", { class: "offsets-table", tabindex: 0, role: "region", "aria-label": "Preview" }, h("table", { class: "table" },
      h("thead", null, h("tr", null, ["Topic", "Partition", "From", "To", "Records"].map((text, place) => h("th", { class: place ? "num" : null }, text)))),
      h("tbody", null, found.changes.slice(0, SHOWN).map((change) => h("tr", null, h("td", null, change.topic), h("td", { class: "num" }, change.partition),
        h("td", { class: "num" }, number(change.from)), h("td", { class: "num" }, h("b", null, number(change.to))), h("td", { class: "num" }, moved(change))))))),
    found.changes.length > SHOWN && h("p", { class: "muted" }, `${number(found.changes.length - SHOWN)} more partitions are not shown.`),
    found.commands.map((each) => h("details", { class: "commands" }, h("summary", null, "The same on the command line"), commandLine(each.command))));
}

const figure = (value, text, level) => h("div", { class: `figure ${level ?? ""}`.trim() }, h("b", null, value), h("span", null, text));
