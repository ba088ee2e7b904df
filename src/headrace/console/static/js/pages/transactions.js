// SPDX-License-Identifier: Apache-2.0
// Open transactions, how long they have been open, and the partitions whose readers wait for them.
import { AnswerNotice, badge, commandCell, Figure } from "../admin_parts.js";
import { h, path, replace, setText } from "../dom.js";
import { count, duration, number, time } from "../format.js";
import { Table } from "../table.js";

const LEVEL = { hanging: "bad", ongoing: "warn", ending: "info" };
const partitionLink = (each) => h("a", { href: path("topics", each.topic) }, `${each.topic}-${each.partition}`);

export const view = () => ({ name: "transactions", params: {} });
export const title = () => "Transactions";

// Age as a share of the time-out: what is over the half deserves a look.
function ageBar(each) {
  const share = each.age_ms === null ? 0 : Math.min(1, each.age_ms / Math.max(1, each.timeout_ms));
  const bar = h("i");
  bar.style.width = `${(share * 100).toFixed(1)}%`;
  const text = `${duration(each.age_ms)} of ${duration(each.timeout_ms)}`;
  return h("div", { class: "age" }, h("span", null, text), h("div", { class: `meter ${share > 0.5 ? "warn" : ""}`, "aria-hidden": "true" }, bar));
}

const partitionsCell = (each) => {
  const more = each.partitions_total - each.partitions.length;
  return h("span", null, each.partitions.map((one, index) => [index > 0 && ", ", partitionLink(one)]), more > 0 && ` and ${more} more`);
};

const OPEN = [
  { name: "id", label: "Transactional id", value: (each) => each.transactional_id, cell: (each) => h("span", { class: "mono" }, each.transactional_id) },
  { name: "state", label: "State", value: (each) => each.state, cell: (each) => badge(each.state === "Ongoing" ? "info" : "warn", each.state) },
  { name: "age", label: "Open for", numeric: true, value: (each) => each.age_ms, cell: ageBar },
  { name: "holds", label: "Holds up", numeric: true, title: "Partitions whose readers of committed records wait for it", value: (each) => each.holds, cell: (each) => count(each.holds, "partition") },
  { name: "partitions", label: "Writes to", wide: true, cell: partitionsCell },
  { name: "producer", label: "Producer", wide: true, value: (each) => each.producer_id, cell: (each) => `${each.producer_id}, epoch ${each.producer_epoch}` },
  { name: "coordinator", label: "Coordinator", wide: true, value: (each) => each.coordinator, cell: (each) => `node ${each.coordinator}` },
  { name: "command", label: "End it", cell: (each) => commandCell(each.command, each.state === "Ongoing" ? "Terminate" : "Describe") },
];

const BLOCKED = [
  { name: "partition", label: "Partition", value: (each) => `${each.topic}-${String(each.partition).padStart(6, "0")}`, cell: partitionLink },
  { name: "waiting", label: "Not readable yet", numeric: true, title: "Records after the last stable offset", value: (each) => each.waiting, cell: (each) => count(each.waiting, "record") },
  { name: "stable", label: "Readable to", numeric: true, wide: true, title: "Last stable offset", value: (each) => each.last_stable, cell: (each) => number(each.last_stable) },
  { name: "verdict", label: "Why", value: (each) => each.verdict, cell: (each) => [badge(LEVEL[each.verdict] ?? "", each.verdict ?? "ended"), h("p", { class: "muted doc" }, each.why)] },
  { name: "who", label: "Held by", value: (each) => each.transactional_id, cell: (each) => each.transactional_id ?? (each.producer_id === null ? "–" : `producer ${each.producer_id}, epoch ${each.producer_epoch}`) },
  { name: "last", label: "Last record", wide: true, numeric: true, value: (each) => each.last_record_at, cell: (each) => time(each.last_record_at) },
  { name: "command", label: "End it", cell: (each) => commandCell(each.command, each.verdict === "hanging" ? "Abort" : "Command") },
];

export function mount(root) {
  const notice = new AnswerNotice();
  const [open, blocked, oldest] = [new Figure("open transactions"), new Figure("partitions held up"), new Figure("the oldest")];
  const searched = h("p", { class: "muted", role: "status" });
  const blockedTable = new Table({ columns: BLOCKED, key: (each) => `${each.topic}/${each.partition}`, caption: "Partitions that are held up", empty: "No reader of committed records waits for a transaction." });
  const openTable = new Table({ columns: OPEN, key: (each) => each.transactional_id, caption: "Open transactions", empty: "No transaction is open now." });
  const body = h("div", { class: "page" },
    h("div", { class: "figures" }, open.element, blocked.element, oldest.element),
    h("h2", null, "Partitions that are held up"), searched, blockedTable.element,
    h("h2", null, "Open transactions"), openTable.element);
  replace(root, h("div", { class: "page-head" }, h("h1", null, "Transactions")), notice.element, body);
  return {
    update(view) {
      const ok = notice.update(view.answer);
      body.hidden = !ok;
      if (!ok) return;
      const late = view.transactions.some((each) => each.age_ms * 2 > each.timeout_ms);
      open.set(number(view.transactions.length + view.left_out));
      blocked.set(number(view.blocked.length), view.blocked.some((each) => each.verdict === "hanging") ? "bad" : "");
      oldest.set(duration(view.transactions.length ? Math.max(...view.transactions.map((each) => each.age_ms ?? 0)) : null), late ? "warn" : "");
      setText(searched, view.searched < view.partitions ? `${number(view.searched)} of ${count(view.partitions, "partition")} were looked at; headrace transactions explain TOPIC looks at others.` : `All ${count(view.partitions, "partition")} were looked at.`);
      blockedTable.update(view.blocked);
      openTable.update(view.transactions);
    },
  };
}
