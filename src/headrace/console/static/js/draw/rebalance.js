// SPDX-License-Identifier: Apache-2.0
// Rebalances as before → after, and what one consumer more would change, drawn in the same way.
import { h, keyed, path, replace, setText } from "../dom.js";
import { count, duration, time } from "../format.js";
import { byName, byPartition, lane, memberNames, nameOf, partitionName } from "./consumers.js";
import { whyRebalanced } from "./reasons.js";

const LANES = 24;
const MOVES = 40;
const BEFORE_MS = 1500;

// The newest is open; the others open on demand, and are drawn only then.
export class Rebalances {
  constructor(group) {
    this.group = group;
    this.list = h("div", { class: "rebalances" });
    this.empty = h("p", { class: "empty" }, "No rebalance is known. One happens when a consumer joins, leaves or is lost, and when partitions are added.");
    this.element = h("div", null, this.empty, this.list);
  }

  update(view) {
    this.empty.hidden = view.rebalances.length > 0;
    const names = memberNames(view.members, view.rebalances.flatMap((each) => [...(each.before ?? []), ...(each.after ?? [])]));
    const newest = view.rebalances[0]?.at;
    const numbers = new Map(view.rebalances.map((each, index) => [each, index]));
    keyed(this.list, view.rebalances, (each) => each.at, (each) => this.#entry(each), (entry, each) => {
      const why = whyRebalanced(view, numbers.get(each), names);
      const text = why + JSON.stringify(each);
      if (entry.shown !== text) {
        entry.shown = text;
        entry.drawn = false;
        entry.rebalance = each;
        entry.names = names;
        setText(entry.querySelector(".when"), time(each.at));
        setText(entry.querySelector(".why"), why);
        setText(entry.querySelector(".facts"), factsOf(each));
      }
      if (!entry.touched) entry.open = each.at === newest;
      drawEntry(entry);
    });
  }

  #entry(each) {
    const body = h("div", { class: "rebalance-body" });
    const replay = h("a", { class: "button small", href: `${path("groups", this.group)}?at=${each.at - BEFORE_MS}&speed=1` }, "▶ Replay");
    const entry = h("details", { class: "rebalance", "data-rebalance": each.at },
      h("summary", { onclick: () => (entry.touched = true) }, h("time", { class: "when" }), " ", h("span", { class: "why" }), " ", h("span", { class: "facts muted" })),
      body, h("p", null, replay));
    entry.body = body;
    entry.addEventListener("toggle", () => drawEntry(entry));
    return entry;
  }
}

function drawEntry(entry) {
  if (!entry.open || entry.drawn) return;
  entry.drawn = true;
  const { rebalance, names } = entry;
  const moved = new Set(rebalance.moved.map(partitionName));
  replace(entry.body,
    h("div", { class: "before-after" },
      side("Before", "before", rebalance.before, names, moved, "moves"),
      h("div", { class: "arrow", "aria-hidden": "true" }, "→"),
      side("After", "after", rebalance.after, names, moved, "moved here")),
    rebalance.moved.length > 0 || rebalance.given > 0 || rebalance.taken > 0 ? movesList(rebalance.moved, names) : h("p", { class: "muted" }, "Every partition stayed where it was."));
}

// Entries of `moved` without an owner before or after are given or taken; the broker's counts where none are listed.
export function factsOf(rebalance) {
  const { moved, took } = rebalance;
  const changed = moved.filter((each) => each.from && each.to).length;
  const given = moved.length ? moved.filter((each) => !each.from).length : rebalance.given ?? 0;
  const taken = moved.length ? moved.filter((each) => !each.to).length : rebalance.taken ?? 0;
  const paused = moved.map((each) => each.paused).filter((each) => typeof each === "number");
  return [
    changed > 0 && `${count(changed, "partition")} moved`,
    given > 0 && `${count(given, "partition")} newly assigned`,
    taken > 0 && `${count(taken, "partition")} left without a consumer`,
    changed + given + taken === 0 && "no partition changed its consumer",
    took !== null && `took ${duration(took)}`,
    paused.length > 0 && `not read for at most ${duration(Math.max(...paused))}`,
  ].filter(Boolean).join(" · ");
}

function side(title, name, members, names, moved, word) {
  if (!members) return h("div", { class: "side-drawing" }, h("h3", null, title), h("p", { class: "muted" }, "Not known."));
  const sorted = [...members].sort(byName(names));
  return h("div", { class: "side-drawing" }, h("h3", null, title),
    sorted.length === 0 && h("p", { class: "muted" }, "No consumers."),
    sorted.slice(0, LANES).map((member) =>
      lane({ id: member.member_id, name: nameOf(names, member.member_id), partitions: member.partitions, marked: moved, word, side: name })),
    sorted.length > LANES && h("p", { class: "muted" }, `${count(sorted.length - LANES, "consumer")} more`));
}

function movesList(moves, names) {
  if (moves.length === 0) return null;
  return h("ul", { class: "moves" },
    [...moves].sort(byPartition).slice(0, MOVES).map((move) =>
      h("li", { "data-move": partitionName(move) },
        h("strong", null, partitionName(move)), ` ${nameOf(names, move.from)} → ${nameOf(names, move.to)}`,
        move.paused === undefined ? null : h("span", { class: "muted" }, move.paused === null ? ", how long it was not read is not known" : `, not read for ${duration(move.paused)}`))),
    moves.length > MOVES && h("li", { class: "muted" }, `${count(moves.length - MOVES, "partition")} more`));
}

// What one consumer more would change.
export class OneMore {
  #shown = "";

  constructor() {
    this.element = h("div", { class: "one-more" });
  }

  update(view) {
    const wanted = view.what_if;
    const text = JSON.stringify([wanted, view.members.map((member) => [member.member_id, member.client_id])]);
    if (text === this.#shown) return;
    this.#shown = text;
    if (!wanted) {
      replace(this.element, h("p", { class: "empty" }, unknownText(view)));
      return;
    }
    const here = new Set(view.members.map((member) => member.member_id));
    const names = memberNames(view.members);
    for (const each of wanted.after) if (!here.has(each.member_id)) names.set(each.member_id, "one consumer more");
    const moved = new Set(wanted.moves.map(partitionName));
    replace(this.element,
      h("p", null, wanted.text),
      h("div", null, [...wanted.after].sort(newLast(here, byName(names))).slice(0, LANES).map((each) =>
        lane({
          id: each.member_id, name: nameOf(names, each.member_id), partitions: each.partitions, marked: moved,
          word: "would move here", isNew: !here.has(each.member_id), side: "then",
        }))),
      movesList(wanted.moves, names));
  }
}

const newLast = (here, order) => (a, b) => Number(!here.has(a.member_id)) - Number(!here.has(b.member_id)) || order(a, b);

const unknownText = (view) =>
  view.members.length === 0
    ? "No consumer runs: the first one would read all partitions."
    : "Not known: the assignor of this group is not one that the console can run.";
