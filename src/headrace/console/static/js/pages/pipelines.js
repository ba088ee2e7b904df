// SPDX-License-Identifier: Apache-2.0
// Spark queries: which run, which failed or are silent, and how far each is behind.
import { badge, Figure, filterField, panel } from "../admin_parts.js";
import { h, path, replace, setText } from "../dom.js";
import { ago, count, duration, number, rate } from "../format.js";
import { commandLine } from "../notices.js";
import { Table } from "../table.js";
import { spark } from "../draw/batches.js";

const LEVELS = { running: "ok", idle: "ok", failed: "bad", silent: "warn", stopped: "" };
const WORDS = {
  running: "reads records now", idle: "has read all there is", failed: "ended with an error",
  silent: "has not reported for a while: its driver may be gone", stopped: "was stopped",
};

export const stateBadge = (state) => h("span", { class: `badge ${LEVELS[state] ?? ""}`, title: WORDS[state] }, state);
// As of now where the group tells it, else as of the last micro-batch.
export const lagOf = (each) => each.group_lag ?? each.lag;

export const view = (params, query) => ({ name: "pipelines", params: { q: query.q ?? "" } });
export const title = () => "Pipelines";

export function mount(root, context) {
  let now = Date.now();
  const columns = [
    { name: "name", label: "Query", value: (each) => each.name, cell: (each) => [h("a", { href: path("pipelines", each.name) }, each.name), each.error && h("p", { class: "doc bad-text" }, each.error.split("\n")[0].slice(0, 160))] },
    { name: "state", label: "State", value: (each) => each.state, cell: (each) => stateBadge(each.state) },
    { name: "batches", label: "Micro-batches", wide: true, title: "How long the last ones took", cell: (each) => spark(each.recent) },
    { name: "took", label: "Took", numeric: true, title: "The last micro-batch", value: (each) => each.batch_ms, cell: (each) => duration(each.batch_ms) },
    { name: "rows", label: "Records", numeric: true, title: "Records per second that the last micro-batch read", value: (each) => each.rows_out, cell: (each) => rate(each.rows_out) },
    { name: "lag", label: "Lag", numeric: true, title: "Records it has not read yet", value: lagOf, cell: (each) => number(lagOf(each)) },
    { name: "state_rows", label: "State rows", numeric: true, wide: true, title: "Rows that its aggregations and joins keep", value: (each) => each.state_rows, cell: (each) => number(each.state_rows) },
    { name: "group", label: "Group", wide: true, value: (each) => each.group, cell: (each) => (each.group ? h("a", { href: path("groups", each.group) }, each.group) : "–") },
    { name: "at", label: "Reported", numeric: true, wide: true, value: (each) => each.at, cell: (each) => ago(each.at, now) },
  ];
  const filter = filterField(context, "Name contains");
  const [running, failed, silent] = [new Figure("running or idle"), new Figure("failed"), new Figure("silent")];
  const total = h("p", { class: "muted", role: "status" });
  const table = new Table({ columns, key: (each) => each.name, caption: "Spark queries", empty: "No query matches: clear the filter." });
  const reported = h("div", { class: "page" }, h("div", { class: "figures" }, running.element, failed.element, silent.element), total, table.element);
  const groups = new Table({
    columns: [
      { name: "id", label: "Group", value: (each) => each.id, cell: (each) => h("a", { href: path("groups", each.id) }, each.id) },
      { name: "lag", label: "Lag", numeric: true, value: (each) => each.lag, cell: (each) => number(each.lag) },
      { name: "topics", label: "Topics", cell: (each) => each.topics.join(", ") },
    ],
    key: (each) => each.id, caption: "Groups without members that move", sort: "lag", empty: "There is none.",
  });
  const others = panel("Groups that move without members", h("p", { class: "muted" }, "Each may be a query that does not report: a query commits its progress to a group and is no member of it."), groups.element);
  const start = panel("No query reports its progress yet",
    h("p", null, "A query that reports shows here its state, its micro-batches, its state's size and its last error."),
    commandLine("headrace pipeline run pipelines.toml --report"),
    h("p", null, "In a program of your own, after the session is made:"),
    commandLine('headrace.spark.report_progress(spark, "HOST:PORT")'));
  replace(root, h("div", { class: "page-head" }, h("h1", null, "Pipelines"), h("div", { class: "tabs" }, h("a", { href: "/dead-letters" }, "Dead letters"))),
    h("div", { class: "toolbar" }, filter.element), start, reported, others);
  for (const each of [start, reported, others]) each.hidden = true;
  return {
    update(view) {
      now = view.at;
      start.hidden = view.reported;
      reported.hidden = !view.reported;
      others.hidden = view.groups.length === 0;
      const inState = (...states) => view.pipelines.filter((each) => states.includes(each.state)).length;
      running.set(number(inState("running", "idle")));
      failed.set(number(inState("failed")), inState("failed") ? "bad" : "");
      silent.set(number(inState("silent")), inState("silent") ? "warn" : "");
      setText(total, count(view.total, "query", "queries") + (view.pipelines.length < view.total ? `; the first ${number(view.pipelines.length)} are shown` : ""));
      table.update(view.pipelines);
      groups.update(view.groups);
    },
    unmount: filter.close,
  };
}
