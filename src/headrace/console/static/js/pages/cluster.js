// SPDX-License-Identifier: Apache-2.0
// The cluster: nodes as boxes with the partitions they lead and copy, what changed, and what needs attention.
import { ClusterMap } from "../draw/nodes.js";
import { h, keyed, path, setText } from "../dom.js";
import { count, duration, number, rate, time } from "../format.js";

const CHANGES_FIRST = 12;
const CHANGES_SENT = 150; // of leaders, nodes and topics: the view may have left some out
const NAMED = 3;
const NEWS_MS = 600_000;
const TOGETHER_MS = 60_000;

export const view = () => ({ name: "cluster", params: {} });
export const title = () => "Cluster";

const figure = (label, link) => {
  const value = h("b");
  const element = h(link ? "a" : "div", { class: "figure", href: link }, value, h("span", null, label));
  return { element, show: (text, level) => {
    setText(value, text);
    element.className = `figure ${level ?? ""}`.trim();
  } };
};

// The newest death of a node and who took over: {node, at, text} from the list of changes, or null.
export function takeover(changes) {
  const death = changes.find((change) => change.kind === "node_down");
  if (!death) return null;
  const taken = changes.filter((change) =>
    change.kind === "leader" && change.from === death.node && change.to !== null && Math.abs(change.at - death.at) < TOGETHER_MS);
  if (!taken.length) return null;
  const counts = new Map();
  for (const change of taken) counts.set(change.to, (counts.get(change.to) ?? 0) + 1);
  const least = changes.filter((change) => change.kind !== "isr").length >= CHANGES_SENT ? "at least " : "";
  const who = [...counts].sort((a, b) => b[1] - a[1])
    .map(([node, partitions]) => `node ${node} took over ${least}${count(partitions, "partition")}`);
  const times = taken.map((change) => change.took).filter((took) => took !== null && took !== undefined);
  const took = times.length ? ` It took ${duration(Math.max(...times))} from when it was found dead.` : "";
  return { node: death.node, at: death.at, text: `Node ${death.node} went down at ${time(death.at)}: ${who.join(", ")}.${took}` };
}

const sameMove = (a, b) =>
  a.kind === "leader" && b.kind === "leader" && a.from === b.from && a.to === b.to && a.to !== null && Math.abs(a.at - b.at) < TOGETHER_MS;

// Partitions whose leader moved from one node to another together are one entry.
export function merged(changes) {
  const entries = [];
  for (const change of changes) {
    const together = entries.find((entry) => sameMove(entry.changes[0], change));
    if (together) together.changes.push(change);
    else entries.push({ at: change.at, kind: change.kind, changes: [change] });
  }
  return entries.map((entry) => ({ ...entry, text: entryText(entry.changes) }));
}

function entryText(changes) {
  if (changes.length === 1) return changes[0].text;
  const [{ from, to }] = changes;
  const names = changes.slice(0, NAMED).map((change) => `${change.topic} ${change.partition}`).join(", ");
  const more = changes.length > NAMED ? ` and ${changes.length - NAMED} more` : "";
  const took = Math.max(...changes.map((change) => change.took ?? 0));
  return `Node ${to} leads ${count(changes.length, "partition")}${from === null ? "" : ` in place of node ${from}`}: ${names}${more}`
    + (took ? `; it took ${duration(took)}` : "");
}

class Changes {
  constructor() {
    this.list = h("ol", { class: "changes plain" });
    this.more = h("button", { type: "button", class: "quiet small", hidden: true, onclick: () => this.#showAll() });
    this.none = h("p", { class: "muted" }, "Nothing has changed since the cluster is watched.");
    this.element = h("section", { class: "panel" }, h("h2", null, "Changes"), this.list, this.none, this.more);
  }

  update(changes) {
    this.changes = changes;
    const entries = merged(changes);
    const shown = this.all ? entries : entries.slice(0, CHANGES_FIRST);
    keyed(this.list, shown, (change) => JSON.stringify([change.at, change.kind, change.text]), (change) =>
      h("li", { "data-kind": change.kind },
        h("time", { class: "num muted", datetime: new Date(change.at).toISOString() }, time(change.at)),
        h("span", null, change.text)));
    this.none.hidden = changes.length > 0;
    this.more.hidden = shown.length === entries.length;
    setText(this.more, `Show ${entries.length - shown.length} more`);
  }

  #showAll() {
    this.all = true;
    this.update(this.changes);
  }
}

export function mount(root, context) {
  const figures = {
    nodes: figure("nodes up"), leaderless: figure("without leader", "/topics?sort=-without_leader"),
    under: figure("under-replicated", "/topics?sort=-under_replicated"), partitions: figure("partitions"),
    topics: figure("topics", "/topics"), groups: figure("groups", "/groups"), rate: figure("records in"),
  };
  const map = new ClusterMap((topic) => context.navigate(path("topics", topic)));
  const changes = new Changes();
  const note = h("p", { class: "takeover", "aria-live": "polite", id: "takeover", hidden: true });
  root.append(
    h("div", { class: "page-head" }, h("h1", null, "Cluster"), h("span", { class: "muted mono", id: "cluster-id" })),
    h("div", { class: "figures" }, Object.values(figures).map((each) => each.element)),
    note, map.element, changes.element);
  return {
    update(view) {
      const up = view.nodes.filter((node) => node.state === "up").length;
      figures.nodes.show(`${up} of ${view.nodes.length}`, up < view.nodes.length ? "bad" : null);
      figures.leaderless.show(number(view.without_leader), view.without_leader ? "bad" : null);
      figures.under.show(number(view.under_replicated), view.under_replicated ? "warn" : null);
      figures.partitions.show(number(view.partitions));
      figures.topics.show(number(view.topics));
      figures.groups.show(number(view.groups));
      figures.rate.show(rate(view.rate_in));
      setText(root.querySelector("#cluster-id"), view.cluster_id ?? "");
      map.update(view.nodes);
      const taken = takeover(view.changes);
      const down = taken && view.nodes.some((node) => node.id === taken.node && node.state !== "up");
      note.hidden = !taken || !(down || view.at - taken.at < NEWS_MS);
      if (taken) setText(note, taken.text);
      changes.update(view.changes);
    },
  };
}
