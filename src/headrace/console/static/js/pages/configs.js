// SPDX-License-Identifier: Apache-2.0
// Settings: what is set anywhere, or all settings of one topic or node with their meaning.
import { AnswerNotice, badge, commandCell, filterField, panel } from "../admin_parts.js";
import { h, keyed, path, replace, setText } from "../dom.js";
import { count, number } from "../format.js";
import { banner } from "../notices.js";
import { Table } from "../table.js";

const SOURCES = {
  topic: "set for the topic", node: "set for this node", cluster: "set for all nodes", file: "node's file", default: "default", unknown: "not known",
};

export const configLink = (kind, name) => `/configs?${kind}=${encodeURIComponent(name)}`;
const sourceBadge = (source) => badge(source === "default" ? "" : "info", SOURCES[source] ?? source);
const shownValue = (each) =>
  each.sensitive ? h("em", { class: "muted" }, "secret") : each.value === null || each.value === "" ? h("em", { class: "muted" }, "empty") : h("code", { class: "value" }, each.value);

export const view = (params, query) => ({ name: "configs", params: { topic: query.topic ?? "", node: query.node ?? "", q: query.q ?? "" } });
export const title = () => "Configs";

const COLUMNS = [
  { name: "name", label: "Setting", value: (each) => each.name, cell: (each) => [h("span", { class: "mono" }, each.name), each.doc && h("p", { class: "muted doc" }, each.doc)] },
  { name: "value", label: "Value", value: (each) => each.value, cell: shownValue },
  { name: "source", label: "From", value: (each) => (each.changed ? each.source : "~"), cell: (each) => sourceBadge(each.source) },
  { name: "type", label: "Type", wide: true, value: (each) => each.type, cell: (each) => each.type },
  { name: "set", label: "Change", wide: true, cell: (each) => (each.set ? commandCell(each.set, "Command") : h("span", { class: "muted" }, "in the node's file")) },
];

const changedList = (changed) =>
  h("ul", { class: "plain settings" }, changed.map((each) =>
    h("li", null, h("span", { class: "mono" }, each.name), " = ", each.value === null ? h("em", { class: "muted" }, "secret") : h("code", { class: "value" }, each.value), " ", sourceBadge(each.source))));

export function mount(root, context) {
  const target = context.query.topic ? ["topic", context.query.topic] : context.query.node ? ["node", context.query.node] : null;
  const filter = filterField(context, target ? "Setting contains" : "Topic contains");
  const choice = h("select", { "aria-label": "Node", onchange: () => choice.value && context.navigate(configLink("node", choice.value)) }, h("option", { value: "" }, "choose a node"));
  const head = h("div", { class: "page-head" },
    h("h1", null, target ? `Configs of ${target[0]} ${target[1]}` : "Configs"),
    target && h("div", { class: "tabs" }, h("a", { href: "/configs" }, "All that is set"), target[0] === "topic" && h("a", { href: path("topics", target[1]) }, "The topic")));
  const toolbar = h("div", { class: "toolbar" }, filter.element, h("label", { class: "field" }, "Node", choice));
  const shown = target ? new OneTarget(context) : new Overview();
  replace(root, head, toolbar, shown.element);
  return {
    update(view) {
      keyed(choice, [null, ...view.nodes], (id) => String(id), (id) => (id === null ? h("option", { value: "" }, "choose a node") : h("option", { value: String(id) }, `node ${id}`)));
      if (target?.[0] === "node") choice.value = target[1];
      shown.update(view);
    },
    unmount: filter.close,
  };
}

class OneTarget {
  constructor() {
    this.notice = new AnswerNotice();
    this.total = h("p", { class: "muted", role: "status" });
    this.table = new Table({ columns: COLUMNS, key: (each) => each.name, caption: "Settings", empty: "No setting matches: clear the filter." });
    this.body = h("div", { class: "page" }, this.total, this.table.element);
    this.element = h("div", { class: "page" }, this.notice.element, this.body);
  }

  update(view) {
    this.body.hidden = !this.notice.update(view.answer);
    const changed = view.configs.filter((each) => each.changed).length;
    setText(this.total, `${count(view.configs.length, "setting")}, ${number(changed)} of them not at their default; these come first`);
    this.table.update(view.configs);
  }
}

class Overview {
  constructor() {
    this.differences = h("div");
    this.nodes = h("div", { class: "grid" });
    this.total = h("p", { class: "muted", role: "status" });
    this.topics = new Table({
      columns: [
        { name: "name", label: "Topic", value: (each) => each.name, cell: (each) => h("a", { href: configLink("topic", each.name) }, each.name) },
        { name: "changed", label: "Set for it", cell: (each) => changedList(each.changed) },
      ],
      key: (each) => each.name, caption: "Topics with settings of their own", sort: "name",
      empty: "No topic has settings of its own: all follow the nodes' settings.",
    });
    this.element = h("div", { class: "page" }, this.differences, panel("Topics with settings of their own", this.total, this.topics.element), this.nodes);
    this.seen = "";
  }

  update(view) {
    const { nodes, differences, topics, topics_read, topics_total } = view.overview;
    const text = `Settings were read of ${number(topics_read)} of ${count(topics_total, "topic")}`;
    setText(this.total, topics_read < topics_total ? `${text}: filter by name to see others` : text);
    this.topics.update(topics);
    const seen = JSON.stringify([nodes, differences]);
    if (seen === this.seen) return;
    this.seen = seen;
    replace(this.differences, differences.length > 0 && disagreement(differences));
    replace(this.nodes, nodes.map((node) =>
      h("section", { class: "panel" },
        h("h2", null, h("a", { href: configLink("node", node.id) }, `Node ${node.id}`)),
        node.problem ? banner("warning", node.problem, "See whether the node runs, and whether you may describe the cluster's configs.") : changedList(node.changed))));
  }
}

const disagreement = (differences) =>
  h("section", { class: "panel" },
    banner("warning", `The nodes do not agree on ${count(differences.length, "setting")}`, "Give all nodes the same value, unless the difference is meant."),
    h("dl", { class: "pairs" }, differences.map((each) => [
      h("dt", { class: "mono" }, each.name),
      h("dd", null, each.values.map(({ node, value }) => h("div", null, `node ${node}: `, h("code", { class: "value" }, value ?? "–")))),
    ])));
