// SPDX-License-Identifier: Apache-2.0
// One consumer group: who reads what and how far behind, why it was rebalanced, what one consumer more would change.
import { h, setText } from "../dom.js";
import { behind, count, number, rate } from "../format.js";
import { Table } from "../table.js";
import { memberNames, nameOf, partitionName, topicLink, trendMark } from "../draw/consumers.js";
import { Glance } from "../draw/glance.js";
import { LagChart } from "../draw/lag_chart.js";
import { MembersDrawing } from "../draw/members.js";
import { OneMore, Rebalances } from "../draw/rebalance.js";
import { Timeline } from "../draw/timeline.js";
import { clearText, stateBadge } from "./groups.js";

export const view = (params) => ({ name: "group", params: { group: params.group } });
export const title = (params) => `Group ${params.group}`;

const SETTLED = new Set(["Stable", "Empty", "Dead", ""]);

const columns = (nameIn) => [
  { name: "partition", label: "Partition", value: (each) => `${each.topic} ${String(each.partition).padStart(8, "0")}`, cell: (each) => topicLink(each.topic, partitionName(each)) },
  { name: "consumer", label: "Consumer", value: nameIn, cell: nameIn },
  { name: "lag", label: "Lag", numeric: true, title: "Records between the committed offset and the log end", value: (each) => each.lag, cell: (each) => number(each.lag) },
  { name: "behind", label: "Behind", numeric: true, title: "How long the next record to be read has been in the log", value: (each) => each.behind, cell: (each) => behind(each.behind, each.behind_at_least) },
  { name: "trend", label: "Trend", value: (each) => each.trend, cell: (each) => trendMark(each.trend) },
  { name: "clear", label: "Clear in", numeric: true, value: (each) => each.clear_in, cell: clearText },
  { name: "committed", label: "Committed", numeric: true, wide: true, title: "Where the group goes on after a restart", value: (each) => each.committed, cell: (each) => number(each.committed) },
  { name: "position", label: "Position", numeric: true, wide: true, title: "What the consumer's last fetch asked for", value: (each) => each.position, cell: (each) => number(each.position) },
  { name: "end", label: "End", numeric: true, wide: true, value: (each) => each.end, cell: (each) => number(each.end) },
  { name: "rate_in", label: "In", numeric: true, wide: true, value: (each) => each.rate_in, cell: (each) => rate(each.rate_in) },
  { name: "rate_out", label: "Out", numeric: true, wide: true, value: (each) => each.rate_out, cell: (each) => rate(each.rate_out) },
];

const panel = (heading, ...content) => h("section", { class: "panel", "aria-label": heading }, h("h2", null, heading), content);

export function mount(root, context) {
  const { group } = context.params;
  let names = new Map();
  let shown = null;
  const parts = {
    glance: new Glance(), members: new MembersDrawing(), more: new OneMore(), lag: new LagChart(),
    rebalances: new Rebalances(group), timeline: new Timeline(),
  };
  const table = new Table({
    columns: columns((each) => nameOf(names, each.member_id)),
    key: partitionName,
    caption: "Partitions of the group",
    sort: "lag",
    empty: "The group reads no partition and has committed no offset yet.",
  });
  const offsets = offsetsButton(context, () => shown);
  const [state, facts] = [h("span"), h("span", { class: "muted" })];
  const settling = h("p", { class: "notice info", hidden: true, role: "status" });
  root.classList.add("group-page");
  root.append(
    h("div", { class: "page-head" }, h("h1", null, group), state, facts, offsets.element),
    parts.glance.element,
    panel("Who reads what", settling, parts.members.element),
    h("div", { class: "columns" }, panel("Lag", parts.lag.element), panel("One consumer more", parts.more.element)),
    panel("Rebalances", parts.rebalances.element),
    panel("What happened", parts.timeline.element),
    panel("Partitions", table.element));

  return {
    update(document) {
      shown = document;
      names = memberNames(document.members);
      if (state.textContent !== document.group.state) state.replaceChildren(stateBadge(document.group.state));
      setText(facts, factsOf(document));
      settling.hidden = SETTLED.has(document.group.state);
      setText(settling, "The group is being rebalanced: partitions find their new consumers now.");
      for (const part of Object.values(parts)) part.update(document);
      table.update(document.partitions);
      offsets.update(document);
    },
    unmount() {
      parts.lag.close();
      parts.timeline.close();
    },
  };
}

const factsOf = ({ group, members }) =>
  [
    count(members.length, "consumer"),
    `${group.type} protocol`,
    group.assignor && `assignor ${group.assignor}`,
    group.epoch !== null && `epoch ${group.epoch}`,
    group.coordinator !== null && `coordinator: node ${group.coordinator}`,
  ].filter(Boolean).join(" · ");

// Says why it cannot be used, where it cannot.
function offsetsButton({ params, session, api }, shown) {
  const reason = h("span", { class: "muted", id: "offsets-reason" });
  const button = h("button", { type: "button", disabled: true, "aria-describedby": "offsets-reason", onclick: open }, "Change offsets …");
  const dialogs = h("div");
  const element = h("div", { class: "offsets" }, button, reason, dialogs);

  async function open() {
    const { openOffsetsEditor } = await import("../offsets_editor.js");
    openOffsetsEditor(dialogs, { group: params.group, session, api, onDone: () => button.focus(), document: shown() });
  }

  return {
    element,
    update(document) {
      const why = whyNot(document, session);
      button.disabled = why !== "";
      setText(reason, why);
    },
  };
}

function whyNot({ members, live }, session) {
  if (session?.read_only) return "This console is read-only.";
  if (!live) return "Go back to live first.";
  if (members.length) return members.length === 1 ? "Stop the consumer first: offsets cannot be changed while it runs." : `Stop the ${members.length} consumers first: offsets cannot be changed while they run.`;
  return "";
}
