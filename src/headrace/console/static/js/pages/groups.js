// SPDX-License-Identifier: Apache-2.0
// All consumer groups: which one lags, and whether it catches up.
import { h, path, setText } from "../dom.js";
import { behind, count, duration, number, rate } from "../format.js";
import { Table } from "../table.js";
import { topicLink, trendMark } from "../draw/consumers.js";

const LIMIT = 500;
const TOPICS_SHOWN = 3;
const TYPING_MS = 250;

const DEFAULT_SORT = "-lag";

export const view = (params, query) => ({ name: "groups", params: { q: query.q ?? "", sort: query.sort ?? DEFAULT_SORT, limit: LIMIT } });
export const title = () => "Consumer groups";

export const stateBadge = (state) => {
  const level = state === "Stable" ? "ok" : state === "Empty" || state === "Dead" ? "" : "warn";
  return h("span", { class: `badge ${level}` }, state || "not known");
};

export const clearText = (each) =>
  each.lag === 0 ? "now" : each.clear_in === null && each.trend === "growing" ? "never" : duration(each.clear_in);

function topicsCell(topics) {
  const links = topics.slice(0, TOPICS_SHOWN).map((topic, index) => [index > 0 && ", ", topicLink(topic)]);
  return h("span", null, links, topics.length > TOPICS_SHOWN && ` and ${topics.length - TOPICS_SHOWN} more`);
}

const COLUMNS = [
  { name: "id", label: "Group", value: (each) => each.id, cell: (each) => h("a", { href: path("groups", each.id) }, each.id) },
  { name: "state", label: "State", wide: true, value: (each) => each.state, cell: (each) => stateBadge(each.state) },
  { name: "members", label: "Consumers", wide: true, numeric: true, value: (each) => each.members, cell: (each) => number(each.members) },
  { name: "lag", label: "Lag", numeric: true, title: "Records between the committed offset and the log end", value: (each) => each.lag, cell: (each) => number(each.lag) },
  { name: "behind", label: "Behind", numeric: true, title: "How long the next record to be read has been in the log", value: (each) => each.behind, cell: (each) => behind(each.behind) },
  { name: "trend", label: "Trend", value: (each) => each.trend, cell: (each) => trendMark(each.trend) },
  { name: "clear_in", label: "Clear in", numeric: true, title: "When the lag is zero at the present rates; never: it grows", value: (each) => each.clear_in, cell: clearText },
  { name: "rate_in", label: "In", numeric: true, wide: true, title: "Records per second that producers write", value: (each) => each.rate_in, cell: (each) => rate(each.rate_in) },
  { name: "rate_out", label: "Out", numeric: true, wide: true, title: "Records per second that the group commits", value: (each) => each.rate_out, cell: (each) => rate(each.rate_out) },
  { name: "type", label: "Protocol", wide: true, value: (each) => each.type, cell: (each) => each.type },
  { name: "topics", label: "Topics", wide: true, value: (each) => each.topics.length, cell: (each) => topicsCell(each.topics) },
];

export function mount(root, context) {
  let shown = null;
  let timer = 0;
  const sort = context.query.sort ?? DEFAULT_SORT;
  const table = new Table({
    columns: COLUMNS,
    key: (each) => each.id,
    caption: "Consumer groups",
    sort: sort.replace("-", ""),
    down: sort.startsWith("-"),
    onSort: sortedBy,
    empty: "No group matches. A group appears when a consumer with that group.id subscribes; clear the filter to see all.",
  });
  const total = h("p", { class: "muted", role: "status" });
  const filter = h("input", { type: "search", value: context.query.q ?? "", oninput: typed, "aria-describedby": "groups-total", spellcheck: "false" });
  const state = h("select", { onchange: draw }, h("option", { value: "" }, "all"));
  total.id = "groups-total";
  root.classList.add("groups-page");
  root.append(
    h("div", { class: "page-head" }, h("h1", null, "Consumer groups")),
    h("div", { class: "toolbar" },
      h("label", { class: "field" }, "Name contains", filter),
      h("label", { class: "field" }, "State", state)),
    total, table.element);

  function typed() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      context.replaceQuery({ q: filter.value });
      context.setParams({ q: filter.value });
    }, TYPING_MS);
    draw();
  }

  // By the server, which knows all groups.
  function sortedBy(name, down) {
    const wanted = `${down ? "-" : ""}${name}`;
    context.replaceQuery({ sort: wanted === DEFAULT_SORT ? null : wanted });
    context.setParams({ sort: wanted });
  }

  function showStates() {
    const wanted = [...new Set(shown.groups.map((each) => each.state))].sort();
    const known = [...state.options].slice(1).map((option) => option.value);
    if (wanted.every((each) => known.includes(each))) return;
    const chosen = state.value;
    state.replaceChildren(state.options[0], ...[...new Set([...known, ...wanted])].sort().map((each) => h("option", { value: each }, each || "not known")));
    state.value = chosen;
  }

  function draw() {
    if (!shown) return;
    showStates();
    const wanted = filter.value.toLowerCase();
    const rows = shown.groups.filter((each) => each.id.toLowerCase().includes(wanted) && (!state.value || each.state === state.value));
    table.update(rows);
    const left = shown.total - shown.groups.length;
    setText(total, `${count(rows.length, "group")} shown${left > 0 ? `; ${count(left, "more group")} in the cluster: type a part of the name to find them` : ""}.`);
  }

  return {
    update(document) {
      shown = document;
      draw();
    },
    unmount: () => clearTimeout(timer),
  };
}
