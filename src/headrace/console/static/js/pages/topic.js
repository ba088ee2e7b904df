// SPDX-License-Identifier: Apache-2.0
// A topic: its partitions as logs, who writes and who reads, its groups, keys and sizes, and its configs.
import { trendMark } from "../draw/consumers.js";
import { distributionPanel } from "../draw/distribution.js";
import { Lane } from "../draw/log.js";
import { scaleOf } from "../draw/scale.js";
import { h, keyed, path, setText } from "../dom.js";
import { behind, bytes, count, number, rate, short } from "../format.js";
import { Table } from "../table.js";

const COMPACT_FROM = 13;
const GROUPS_DRAWN = 6;
const COLORS = 8;
const LANES_AT_MOST = 500;

export const view = (params) => ({ name: "topic", params: { topic: params.topic } });
export const title = (params) => `Topic ${params.topic}`;

// Each group's letter and colour, and whether it is drawn.
class Series {
  #groups = new Map();

  add(ids) {
    for (const id of ids) {
      if (this.#groups.has(id)) continue;
      const index = this.#groups.size;
      this.#groups.set(id, { letter: String.fromCharCode(65 + (index % 26)), color: (index % COLORS) + 1, drawn: index < GROUPS_DRAWN });
    }
  }

  of(id) {
    return this.#groups.get(id);
  }

  drawn = (id) => {
    const group = this.#groups.get(id);
    return group?.drawn ? group : null;
  };
}

class GroupTable {
  constructor(series, changed) {
    const toggle = (group) => {
      const mine = series.of(group.id);
      return h("button", {
        type: "button", class: "small letter-button", "data-series": mine.color, "aria-pressed": String(mine.drawn),
        title: mine.drawn ? "Drawn in the logs; click to leave it out" : "Not drawn; click to draw it",
        "aria-label": `Draw ${group.id}`,
        onclick: () => {
          mine.drawn = !mine.drawn;
          changed();
        },
      }, mine.letter);
    };
    this.table = new Table({
      caption: "Groups of this topic", key: (group) => group.id, sort: "lag", down: true, empty: "No group reads this topic.",
      columns: [
        { name: "id", label: "Group", value: (group) => group.id, cell: (group) => [toggle(group), " ", h("a", { href: path("groups", group.id) }, group.id)] },
        { name: "state", label: "State", value: (group) => group.state, cell: (group) => group.state || "–" },
        { name: "lag", label: "Lag", numeric: true, value: (group) => group.lag, cell: (group) => number(group.lag) },
        { name: "behind", label: "Behind", numeric: true, value: (group) => group.behind, cell: (group) => behind(group.behind) },
        { name: "trend", label: "Trend", wide: true, value: (group) => group.trend, cell: (group) => trendMark(group.trend) },
      ],
    });
    this.element = h("section", { class: "panel" }, h("h2", null, "Groups"), this.table.element);
  }
}

class Logs {
  #open = new Set();
  #mode = "whole";
  #last = null;

  constructor() {
    this.series = new Series();
    this.lanes = new Map();
    this.list = h("div", { class: "lanes" });
    this.more = h("p", { class: "muted", hidden: true });
    this.modes = ["whole", "newest"].map((mode) =>
      h("button", { type: "button", "data-mode": mode, onclick: () => this.#choose(mode) }, mode === "whole" ? "Whole log" : "Newest records"));
    const key = (name, text) => h("li", null, h("i", { class: `key ${name}`, "aria-hidden": "true" }), text);
    this.element = h("section", { class: "panel" },
      h("div", { class: "panel-head" }, h("h2", null, "Partitions"), h("div", { class: "tabs", role: "group", "aria-label": "What is drawn" }, this.modes)),
      this.list, this.more,
      h("ul", { class: "legend plain" },
        key("segment", "segment"), key("deleted-next", "deleted next"), key("transaction", "open transaction"),
        key("last-stable", "last stable offset"), key("committed", "committed"), key("position", "reads here")));
    this.#showMode();
  }

  update(view) {
    this.#last = view;
    this.series.add(view.groups.map((group) => group.id));
    this.series.add(view.partitions.flatMap((each) => each.readers.map((reader) => reader.group)));
    const shown = view.partitions.slice(0, LANES_AT_MOST);
    const scale = scaleOf(this.#mode, shown);
    this.list.classList.toggle("compact", shown.length >= COMPACT_FROM);
    keyed(this.list, shown, (each) => each.partition, (each) => this.#lane(each.partition),
      (_, each) => this.lanes.get(each.partition).update(each, scale, this.#open.has(each.partition), view.at));
    this.more.hidden = shown.length === view.partitions.length;
    setText(this.more, `${count(view.partitions.length - shown.length, "partition")} more are not drawn.`);
  }

  redraw() {
    if (this.#last) this.update(this.#last);
  }

  #lane(partition) {
    const lane = new Lane(partition, this.series.drawn, (which) => {
      if (!this.#open.delete(which)) this.#open.add(which);
      this.redraw();
    });
    this.lanes.set(partition, lane);
    return lane.element;
  }

  #choose(mode) {
    this.#mode = mode;
    this.#showMode();
    this.redraw();
  }

  #showMode() {
    for (const button of this.modes) button.setAttribute("aria-pressed", String(button.dataset.mode === this.#mode));
  }
}

export function mount(root, context) {
  const { topic } = context.params;
  const facts = h("p", { class: "muted num" });
  const badges = h("span", { class: "badges" });
  const logs = new Logs();
  const groups = new GroupTable(logs.series, () => {
    logs.redraw();
    groups.table.update(groups.table.rows);
  });
  const configs = h("dl", { class: "configs" });
  root.append(
    h("div", { class: "page-head" }, h("h1", null, topic), badges,
      h("div", { class: "tabs" },
        h("a", { href: path("topics", topic), "aria-current": "page" }, "Partitions"),
        h("a", { href: path("topics", topic, "messages") }, "Messages"),
        h("a", { href: `/configs?topic=${encodeURIComponent(topic)}` }, "Configs"))),
    facts, logs.element, groups.element,
    distributionPanel(context.api, topic),
    h("section", { class: "panel" }, h("h2", null, "Configs"), configs));
  return {
    update(view) {
      setText(facts, [
        count(view.partitions.length, "partition"), `${number(view.topic.replication)} replicas each`,
        `${short(view.records)} records`, bytes(view.size_bytes), `${rate(view.rate_in)} in`].join(" · "));
      keyed(badges, view.topic.internal ? ["internal"] : [], (text) => text, (text) => h("span", { class: "badge" }, text));
      logs.update(view);
      groups.table.update(view.groups);
      keyed(configs, Object.entries(view.topic.configs ?? {}), ([name, value]) => `${name}=${value}`,
        ([name, value]) => h("div", null, h("dt", { class: "mono" }, name), h("dd", { class: "mono" }, String(value))));
      configs.parentNode.hidden = !configs.children.length;
    },
  };
}
