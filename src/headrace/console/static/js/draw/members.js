// SPDX-License-Identifier: Apache-2.0
// The consumers of a group as boxes with their partitions as tiles. In a rebalance, tiles glide to the new owner.
import { h, keyed, setText } from "../dom.js";
import { ago, behind, count, rate, short, time } from "../format.js";
import { byName, byPartition, consumerFigure, memberNames, nameOf, partitionName, topicLink } from "./consumers.js";
import { glide } from "./flip.js";

const BOXES = 100;
const TILES = 600;
const NOBODY = "";
const BETWEEN_MS = 10_000;

export class MembersDrawing {
  #tiles = new Map();
  #between = new Between();
  #owners = "";

  constructor() {
    this.boxes = h("div", { class: "members" });
    this.more = h("p", { class: "muted", hidden: true });
    this.empty = h("p", { class: "empty", hidden: true });
    this.element = h("div", null, this.empty, this.boxes, this.more);
  }

  update(view) {
    const lanes = lanesOf(view, this.#between.update(view));
    this.empty.hidden = lanes.length > 0;
    setText(this.empty, `No consumer runs, and no offset is committed. Start a consumer with group.id=${view.group.id}.`);
    const owners = JSON.stringify(lanes.map((each) => [each.id, each.partitions.map(partitionName)]));
    if (owners === this.#owners) this.#draw(lanes, view);
    else glide([...this.#tiles.values()], () => this.#draw(lanes, view));
    this.#owners = owners;
    this.#showMore(view, lanes);
  }

  #draw(lanes, view) {
    const lags = new Map(view.partitions.map((each) => [partitionName(each), each]));
    const kept = new Set();
    keyed(this.boxes, lanes, (each) => each.id, memberBox, (box, each) => {
      fillBox(box, each, view.at);
      const tiles = each.partitions.map((partition) => this.#tile(partition, lags));
      for (const tile of tiles) kept.add(tile);
      placeTiles(box.querySelector(".owned-list"), tiles);
    });
    for (const [key, tile] of this.#tiles) {
      if (kept.has(tile)) continue;
      tile.remove();
      this.#tiles.delete(key);
    }
  }

  #tile(partition, lags) {
    const key = partitionName(partition);
    let tile = this.#tiles.get(key);
    if (!tile) {
      tile = h("li", { class: "owned", "data-tile": key }, topicLink(partition.topic, h("span", { class: "owned-name" }, key)),
        h("span", { class: "owned-lag" }));
      this.#tiles.set(key, tile);
    }
    const known = lags.get(key);
    const lagging = Boolean(known?.lag);
    tile.classList.toggle("lagging", lagging);
    tile.title = known ? lagText(known) : "";
    setText(tile.querySelector(".owned-lag"), lagging ? `${short(known.lag)} behind` : known?.lag === 0 ? "up to date" : "lag not known");
    return tile;
  }

  #showMore(view, lanes) {
    const left = view.members.length - lanes.filter((each) => each.id !== NOBODY).length;
    this.more.hidden = left <= 0;
    setText(this.more, `${count(left, "consumer")} more: see the table of partitions.`);
  }
}

const lagText = (partition) =>
  `${partitionName(partition)}: ${count(partition.lag, "record")} behind, ${behind(partition.behind, partition.behind_at_least)}`;

// Partitions between two consumers: taken from one and not yet given to the next. Without a committed offset the view
// does not list them then, and their tiles would vanish for that moment.
class Between {
  #seen = new Map();
  #at = 0;

  update(view) {
    const assigned = view.members.flatMap((member) => member.partitions);
    if (Math.abs(view.at - this.#at) > BETWEEN_MS) this.#seen.clear(); // another moment was chosen
    this.#at = view.at;
    for (const each of [...assigned, ...view.partitions]) this.#seen.set(partitionName(each), { topic: each.topic, partition: each.partition, at: view.at });
    for (const [key, each] of this.#seen) if (view.at - each.at > BETWEEN_MS || each.at > view.at) this.#seen.delete(key);
    return [...this.#seen.values()].filter((each) => each.at < view.at);
  }
}

// The slow one is always drawn; partitions that nobody reads come last.
function lanesOf(view, between) {
  const names = memberNames(view.members);
  const members = [...view.members].sort((a, b) => Number(b.slow) - Number(a.slow)).slice(0, BOXES).sort(byName(names));
  let room = TILES;
  const lanes = members.map((member) => {
    const partitions = [...member.partitions].sort(byPartition).slice(0, room);
    room -= partitions.length;
    return { id: member.member_id, name: nameOf(names, member.member_id), member, partitions, more: member.partitions.length - partitions.length };
  });
  const free = [...view.partitions.filter((each) => each.member_id === null), ...between];
  if (free.length) {
    const partitions = [...free].sort(byPartition).slice(0, room);
    lanes.push({ id: NOBODY, name: "Nobody reads these", member: null, partitions, more: free.length - partitions.length });
  }
  return lanes;
}

function memberBox(each) {
  const facts = each.member && h("p", { class: "facts muted" });
  return h("section", {
    class: each.member ? "member" : "member nobody", "data-member": each.id, "data-client": each.member?.client_id, "aria-label": each.name,
  },
    h("h3", null, each.member && consumerFigure(), h("span", { class: "name" }), h("span", { class: "badge warn slow", hidden: true }, "▲ slowest")),
    facts, h("ul", { class: "owned-list plain" }), h("p", { class: "muted more", hidden: true }));
}

function fillBox(box, each, at) {
  setText(box.querySelector(".name"), each.name);
  const { member } = each;
  if (member) {
    box.classList.toggle("is-slow", member.slow);
    box.querySelector(".slow").hidden = !member.slow;
    const facts = [
      member.host && member.host.replace(/^\//, ""),
      member.lag === null ? "lag not known" : `${count(member.lag, "record")} behind`,
      member.rate_out !== null && `reads ${rate(member.rate_out)}`,
      member.last_commit !== null && `committed ${ago(member.last_commit, at)}`,
      member.joined !== null && `joined ${time(member.joined)}`,
    ];
    setText(box.querySelector(".facts"), facts.filter(Boolean).join(" · "));
  }
  const more = box.querySelector(".more");
  const none = each.partitions.length === 0;
  more.hidden = !none && !each.more;
  setText(more, none ? "no partitions: it waits" : `${count(each.more, "partition")} more`);
}

// Tiles that are where they belong are not touched.
function placeTiles(list, tiles) {
  let place = list.firstChild;
  for (const tile of tiles) {
    if (tile === place) place = place.nextSibling;
    else list.insertBefore(tile, place);
  }
}

