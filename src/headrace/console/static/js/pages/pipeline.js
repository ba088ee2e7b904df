// SPDX-License-Identifier: Apache-2.0
// One Spark query: its micro-batches, where its time goes, its sources with their lag, its state and its last error.
import { fields, Figure, panel } from "../admin_parts.js";
import { h, path, replace, setText } from "../dom.js";
import { ago, bytes, duration, number, rate, time } from "../format.js";
import { Table } from "../table.js";
import { BatchChart } from "../draw/batches.js";
import { lagOf, stateBadge } from "./pipelines.js";

const PARTS = {
  addBatch: "reading, computing and writing", commitOffsets: "noting that it is finished", getBatch: "planning what to read",
  latestOffset: "asking for the ends of the logs", queryPlanning: "planning the query", walCommit: "noting what it will read", commitBatch: "noting the state",
};

export const view = (params) => ({ name: "pipeline", params: { name: params.pipeline } });
export const title = (params) => `Query ${params.pipeline}`;

const BEHIND = [
  { name: "partition", label: "Partition", value: (each) => `${each.topic}-${String(each.partition).padStart(6, "0")}`, cell: (each) => h("a", { href: path("topics", each.topic) }, `${each.topic}-${each.partition}`) },
  { name: "lag", label: "Behind the log end", numeric: true, value: (each) => each.lag, cell: (each) => number(each.lag) },
];

export function mount(root, context) {
  const state = h("span");
  const [lag, took, rows, stateRows, stateBytes, late] = ["records behind", "last micro-batch", "records per second", "rows of state", "state", "records too late"].map((label) => new Figure(label));
  const chart = new BatchChart();
  const parts = h("div", { class: "kinds" });
  const error = h("pre", { class: "error-text" });
  const errorBox = h("section", { class: "panel", hidden: true }, h("h2", null, "Last error"), error);
  const about = h("div");
  const behind = new Table({ columns: BEHIND, key: (each) => `${each.topic}/${each.partition}`, caption: "Partitions by lag", sort: "lag", empty: "It is not known how far its partitions are behind: its next micro-batch tells it." });
  const said = h("p", { class: "muted", role: "status" });
  const body = h("div", { class: "page", hidden: true },
    h("div", { class: "figures" }, [lag, took, rows, stateRows, stateBytes, late].map((each) => each.element)),
    errorBox, panel("Micro-batches", chart.element),
    h("div", { class: "columns" }, panel("Where the time of the last one went", parts), panel("About it", about)),
    panel("Partitions", said, behind.element));
  replace(root, h("div", { class: "page-head" }, h("h1", null, `Query ${context.params.pipeline}`), state, h("div", { class: "tabs" }, h("a", { href: "/pipelines" }, "All queries"))), body);
  let seen = "";
  return {
    update(view) {
      const each = view.pipeline;
      body.hidden = false;
      lag.set(number(lagOf(each)));
      took.set(duration(each.batch_ms));
      rows.set(rate(each.rows_out), each.rows_in > each.rows_out && each.rows_out ? "warn" : "");
      stateRows.set(number(each.state_rows));
      stateBytes.set(bytes(each.state_bytes));
      late.set(number(each.late), each.late > 0 ? "warn" : "");
      chart.update(each.recent);
      errorBox.hidden = !each.error;
      setText(error, each.error ?? "");
      setText(said, each.group ? `Group ${each.group} shows the same lag as of now; here it is as of the last micro-batch.` : "As of the last micro-batch.");
      behind.update(each.sources.flatMap((source) => source.behind));
      const shown = JSON.stringify([each.state, each.batch_parts, each.batch, each.at, each.group, view.at - each.at > 60_000 && Math.floor(view.at / 10_000)]);
      if (shown === seen) return;
      seen = shown;
      replace(state, stateBadge(each.state));
      replace(parts, timeParts(each));
      replace(about, aboutIt(each, view.at));
    },
    unmount: () => chart.close(),
  };
}

function timeParts(each) {
  const found = Object.entries(each.batch_parts).filter(([name]) => name !== "triggerExecution").sort((a, b) => b[1] - a[1]);
  if (!found.length) return h("p", { class: "muted" }, "Its next micro-batch tells it.");
  const most = Math.max(1, ...found.map(([, took]) => took));
  return found.map(([name, took]) => {
    const bar = h("i");
    bar.style.width = `${(100 * took) / most}%`;
    return h("div", { class: "share" }, h("span", null, PARTS[name] ?? name, h("span", { class: "muted mono" }, ` ${name}`)), h("b", { class: "num" }, duration(took)), h("div", { class: "meter", "aria-hidden": "true" }, bar));
  });
}

const aboutIt = (each, now) =>
  fields([
    ["Reads", each.sources.map((source) => source.description).filter(Boolean).join(", ")],
    ["Writes", each.sink],
    ["Group", each.group && h("a", { href: path("groups", each.group) }, each.group)],
    ["Last micro-batch", each.batch === null ? null : `number ${number(each.batch)}, at ${time(each.batch_at)}, ${number(each.rows)} records`],
    ["Watermark", each.watermark],
    ["Driver", each.driver],
    ["Started", time(each.started)],
    ["Reported", `${time(each.at)} (${ago(each.at, now)})`],
    ["Query id", each.id && h("span", { class: "mono" }, each.id)],
  ]);
