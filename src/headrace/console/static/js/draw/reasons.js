// SPDX-License-Identifier: Apache-2.0
// Why a group was rebalanced, in words: who joined or left since the rebalance before, else the coordinator's reason.
import { nameOf } from "./consumers.js";

const CAUSES = new Set(["join", "rejoin", "leave"]);
const SHOWN = 3;
const NAMED = 5;
const SOON_MS = 5_000;
const LOOK_BACK_MS = 60_000;
const ID = /\S+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;
const READABLE = [
  [/; client reason: .*$/, ""],
  [/^adding new member (.+)$/, "$1 joined"],
  [/^removing member (.+) on heartbeat expiration$/, "$1 was lost: its session expired"],
  [/^explicit `LeaveGroup` request for \((.+)\) members$/, "$1 left"],
  [/^(?:updating metadata of|leader) (?:member )?(.+?)(?: re-joining)?$/, "$1 joined again, with other topics or fewer partitions than before"],
  [/: left$/, " left"],
];

export function whyRebalanced(view, index, names) {
  const rebalance = view.rebalances[index];
  const after = Math.max(view.rebalances[index + 1]?.at ?? 0, rebalance.at - LOOK_BACK_MS);
  const causes = (view.timeline ?? []).filter((each) => CAUSES.has(each.kind) && each.at > after && each.at <= rebalance.at);
  if (causes.length === 0 && isSecondStep(rebalance, view.rebalances[index + 1])) {
    return `${whyRebalanced(view, index + 1, names)} (second step: consumers get what others gave up)`;
  }
  if (causes.length === 0) return readable(rebalance.reason, names) || rebalance.text;
  const texts = causeTexts(causes, names);
  return texts.slice(0, SHOWN).join("; ") + (texts.length > SHOWN ? ` and ${texts.length - SHOWN} more changes` : "");
}

// "3 consumers joined: a, b, c" where the same happened to several.
function causeTexts(causes, names) {
  const found = new Map();
  for (const each of causes) {
    const [name, what] = cause(each, names);
    found.set(what, [...(found.get(what) ?? []), name]);
  }
  return [...found].map(([what, who]) => (who.length === 1 ? `${who[0]} ${what}` : `${who.length} consumers ${what}: ${listed(who)}`));
}

const listed = (who) => who.slice(0, NAMED).join(", ") + (who.length > NAMED ? " …" : "");

// A cooperative rebalance has two: in the first one partitions are given up, in the second they find their consumers.
const isSecondStep = (rebalance, before) => before?.taken > 0 && rebalance.at - (rebalance.took ?? 0) - before.at < SOON_MS;

function cause(event, names) {
  const name = names.get(event.member_id) ?? event.client_id ?? nameOf(names, event.member_id);
  if (event.kind === "join") return [name, "joined"];
  if (event.kind === "rejoin") return [name, "came back"];
  const [, reason = ""] = event.text.split(/ left: /);
  const other = event.client_id && !event.text.includes(" left") && event.text.startsWith(`${event.client_id} `);
  if (other) return [name, event.text.slice(event.client_id.length + 1)];
  const silent = /^silent for (\d+) ms/.exec(reason);
  if (silent) return [name, `was lost: silent for ${Math.round(silent[1] / 100) / 10} s, its session expired`];
  return [name, reason && !["left", "not provided"].includes(reason) ? `left: ${reason}` : "left"];
}

function readable(reason, names) {
  if (!reason) return "";
  const text = READABLE.reduce((before, [pattern, words]) => before.replace(pattern, words), reason);
  return text.replace(ID, (id) => names.get(id) ?? id.slice(0, -37));
}
