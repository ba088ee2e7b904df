// SPDX-License-Identifier: Apache-2.0
// All topics as a table: filter, sort, sizes, rates, lag and problems.
import { h, path, setText } from "../dom.js";
import { bytes, number, rate, short } from "../format.js";
import { Table } from "../table.js";

const LIMIT = 200;
const TYPING_MS = 200;

const asked = (query) => ({ q: query.q ?? "", sort: query.sort ?? "name", limit: LIMIT });

export const view = (params, query) => ({ name: "topics", params: asked(query) });
export const title = () => "Topics";

const problems = (topic) => [
  topic.without_leader > 0 && h("span", { class: "badge bad" }, `${number(topic.without_leader)} without leader`),
  topic.under_replicated > 0 && h("span", { class: "badge warn" }, `${number(topic.under_replicated)} under-replicated`),
].filter(Boolean);

const COLUMNS = [
  { name: "name", label: "Topic", value: (topic) => topic.name, cell: (topic) => [
    h("a", { href: path("topics", topic.name) }, topic.name),
    topic.internal && [" ", h("span", { class: "badge" }, "internal")],
    topic.range_partitioned && [" ", h("span", { class: "badge info", title: "Each partition has a range of keys" }, "key ranges")],
  ] },
  { name: "under_replicated", label: "Problems", biggestFirst: true, value: (topic) => topic.under_replicated, cell: problems },
  { name: "partitions", label: "Partitions", wide: true, numeric: true, value: (topic) => topic.partitions, cell: (topic) => number(topic.partitions) },
  { name: "replication", label: "Replicas", title: "Replicas of each partition", wide: true, numeric: true, value: (topic) => topic.replication, cell: (topic) => number(topic.replication) },
  { name: "records", label: "Records", wide: true, numeric: true, value: (topic) => topic.records, cell: (topic) => short(topic.records) },
  { name: "size_bytes", label: "Size", wide: true, numeric: true, value: (topic) => topic.size_bytes, cell: (topic) => bytes(topic.size_bytes) },
  { name: "rate_in", label: "Records in", wide: true, numeric: true, value: (topic) => topic.rate_in, cell: (topic) => rate(topic.rate_in) },
  { name: "groups", label: "Groups", wide: true, numeric: true, value: (topic) => topic.groups, cell: (topic) => number(topic.groups) },
  { name: "lag", label: "Lag", title: "The largest lag of its groups, in records", numeric: true, value: (topic) => topic.lag, cell: (topic) => short(topic.lag) },
];

export function mount(root, context) {
  const params = asked(context.query);
  const filter = h("input", { type: "search", value: params.q, "aria-label": "Filter by name", placeholder: "Filter by name", maxlength: 249 });
  const counted = h("span", { class: "muted num", role: "status" });
  const table = new Table({
    columns: COLUMNS, key: (topic) => topic.name, caption: "Topics",
    sort: params.sort.replace(/^-/, ""), down: params.sort.startsWith("-"),
    onSort: (name, down) => change({ sort: (down ? "-" : "") + name }),
  });
  let timer = 0;
  const change = (changes) => {
    Object.assign(params, changes);
    context.replaceQuery({ q: params.q, sort: params.sort === "name" ? null : params.sort });
    context.setParams(params);
  };
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ q: filter.value.trim() }), TYPING_MS);
  });
  root.append(
    h("div", { class: "page-head" }, h("h1", null, "Topics"), counted),
    h("div", { class: "toolbar" }, filter),
    table.element);
  return {
    update(document) {
      const { total, topics } = document;
      setText(counted, topics.length < total ? `the first ${number(topics.length)} of ${number(total)}: filter by name for others` : number(total));
      setText(table.empty, params.q ? `No topic has “${params.q}” in its name.` : "There is no topic yet. Create one: headrace topics create NAME");
      table.update(topics);
    },
    unmount: () => clearTimeout(timer),
  };
}
