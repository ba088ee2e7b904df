// SPDX-License-Identifier: Apache-2.0
// How keys and sizes of a topic's records are distributed. Reads a sample, so only when it is asked for.
import { h, replace } from "../dom.js";
import { bytes, count, number, percent } from "../format.js";
import { banner } from "../notices.js";
import { bars } from "./bars.js";

function drawn(view) {
  const { sampled, partitions, sizes, keys } = view;
  const share = (records) => percent(sampled ? records / sampled : null);
  const column = (name, content) => h("div", null, h("h3", null, name), content);
  return [
    h("p", { class: "muted" }, `Of a sample of ${count(sampled, "record")}: ${count(keys.distinct, "different key")}, ${count(keys.none, "record")} without a key.`),
    h("div", { class: "grid" },
      column("By partition", bars(partitions.map((each) => ({ label: `Partition ${each.partition}`, value: each.records, text: percent(each.share) })))),
      column("By size", bars(sizes.map((each) => ({ label: each.up_to === null ? "larger" : `up to ${bytes(each.up_to)}`, value: each.count, text: number(each.count) })))),
      column("Most frequent keys", keys.top.length ? bars(keys.top.map((each) => ({ label: each.key, value: each.count, text: share(each.count) }))) : h("p", { class: "muted" }, "No record of the sample has a key."))),
  ];
}

export function distributionPanel(api, topic) {
  const content = h("div", { "aria-live": "polite" }, h("p", { class: "muted" }, "Reads a sample of the newest records."));
  const button = h("button", { type: "button", class: "small" }, "Sample keys and sizes");
  button.addEventListener("click", async () => {
    button.disabled = true;
    replace(content, h("p", { class: "muted" }, "Reading …"));
    try {
      const view = await api.get("/views/topic-distribution", { topic });
      replace(content, view.partitions.some((each) => each.records) ? drawn(view) : h("p", { class: "muted" }, "The topic has no records."));
    } catch (problem) {
      replace(content, banner("error", problem.message, problem.next));
    }
    button.disabled = false;
    button.textContent = "Sample again";
  });
  return h("section", { class: "panel", id: "distribution" }, h("div", { class: "panel-head" }, h("h2", null, "Keys and sizes"), button), content);
}
