// SPDX-License-Identifier: Apache-2.0
// Writes one record: key, value, headers and partition, each as text, JSON, hex or null.
import { openDialog, whileBusy } from "./dialog.js";
import { h, replace } from "./dom.js";
import { number } from "./format.js";
import { banner, commandLine } from "./notices.js";

const FORMS = [["text", "text"], ["json", "JSON"], ["hex", "hex"], ["null", "null"]];

class PartField {
  constructor(label, part, rows) {
    this.form = h("select", { "aria-label": `${label}: form`, onchange: () => this.#show() },
      FORMS.map(([value, text]) => h("option", { value }, text)));
    this.text = h("textarea", { rows, class: "mono", spellcheck: "false", "aria-label": label });
    this.form.value = part?.form ?? "text";
    this.text.value = part?.text ?? "";
    this.element = h("div", { class: "part-field" }, h("div", { class: "panel-head" }, h("strong", null, label), this.form), this.text);
    this.#show();
  }

  get value() {
    return { form: this.form.value, text: this.form.value === "null" ? "" : this.text.value };
  }

  #show() {
    this.text.hidden = this.form.value === "null";
  }
}

class HeaderFields {
  constructor(headers) {
    this.list = h("ul", { class: "plain header-fields" });
    const add = h("button", { type: "button", class: "small", onclick: () => this.#add({ name: "", form: "text", text: "" }, true) }, "Add a header");
    this.element = h("div", null, h("strong", null, "Headers"), this.list, add);
    for (const header of headers) this.#add(header, false);
  }

  get value() {
    return [...this.list.children].map((row) => row.read()).filter((header) => header.name !== "");
  }

  #add(header, focus) {
    const name = h("input", { "aria-label": "Name of the header", placeholder: "name", value: header.name });
    const value = h("input", { "aria-label": "Value of the header", placeholder: "value", class: "mono", value: header.text ?? "" });
    const form = h("select", { "aria-label": "Form of the header's value" }, FORMS.map(([key, text]) => h("option", { value: key }, text)));
    form.value = FORMS.some(([key]) => key === header.form) ? header.form : "text";
    const row = h("li", null, name, form, value,
      h("button", { type: "button", class: "small quiet", "aria-label": "Remove this header", onclick: () => row.remove() }, "✕"));
    row.read = () => ({ name: name.value, value: { form: form.value, text: value.value } });
    this.list.append(row);
    if (focus) name.focus();
  }
}

// What the record was, in forms that the server takes; Avro is written as the JSON text that it shows.
const editable = (part) => (part ? { form: part.form === "avro" ? "json" : part.form, text: part.text ?? "" } : null);

// `record`: what to begin with, or null. `onDone({partition, offset})` after each record that was written.
export function openProduce(root, { topic, api, record, onDone }) {
  const key = new PartField("Key", editable(record?.key) ?? { form: "null" }, 2);
  const value = new PartField("Value", editable(record?.value), 8);
  const headers = new HeaderFields(record?.headers ?? []);
  const partition = h("input", { type: "number", min: 0, step: 1, inputmode: "numeric", placeholder: "chosen by the key" });
  const result = h("div", { "aria-live": "polite" });
  const isCut = record && [record.key, record.value, ...record.headers].some((part) => part.cut);
  const send = h("button", { class: "primary" }, "Write the record");
  const dialog = openDialog(root, `Write a record to ${topic}`, (own) =>
    h("form", { class: "produce", onsubmit: submit },
      isCut && banner("warning", "The record is longer than what is shown.", "What you would write is only its beginning."),
      key.element, value.element, headers.element,
      h("label", { class: "field" }, "Partition", partition), result,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => own.close() }, "Close"), send)));

  async function submit(event) {
    event.preventDefault();
    replace(result);
    const body = {
      topic, key: key.value, value: value.value, headers: headers.value,
      partition: partition.value === "" ? null : Number(partition.value),
    };
    const answer = await whileBusy(dialog, [send], () => api.post("/messages", body));
    if (!answer) return;
    replace(result,
      banner("info", `Written to partition ${answer.partition}, offset ${number(answer.offset)}.`),
      answer.commands.map((each) => [h("p", { class: "muted" }, each.label), commandLine(each.command)]));
    onDone?.(answer);
  }
}
