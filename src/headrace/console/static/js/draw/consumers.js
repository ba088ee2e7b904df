// SPDX-License-Identifier: Apache-2.0
// What the drawings of a group share: names of consumers and partitions, figures, lanes with tiles, trends in words.
import { h, path, svg } from "../dom.js";

const LONGEST_ID = 28;

export const partitionName = ({ topic, partition }) => `${topic}-${partition}`;

export const byPartition = (a, b) => (a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1);

const shortId = (id) => (id.length > LONGEST_ID ? `${id.slice(0, LONGEST_ID - 1)}…` : id);

const ownName = (member) => member.instance_id || member.client_id || shortId(member.member_id);

// Names by member id. Several with one client id get numbers, in the order of their member ids; of members that are
// gone (`gone`), those that share a name with one that is here are "earlier".
export function memberNames(members, gone = []) {
  const names = new Map();
  const taken = new Map();
  const add = (member, note) => {
    if (names.has(member.member_id)) return;
    const name = ownName(member) + (taken.has(ownName(member)) ? note : "");
    const number = (taken.get(name) ?? 0) + 1;
    taken.set(name, number);
    names.set(member.member_id, number === 1 ? name : `${name} (${number})`);
  };
  for (const member of byId(members)) add(member, "");
  for (const member of byId(gone)) add(member, " (earlier)");
  return names;
}

const byId = (members) => [...members].sort((a, b) => (a.member_id < b.member_id ? -1 : 1));

export const nameOf = (names, id) => (id ? names.get(id) ?? shortId(id) : "nobody");

export const byName = (names) => (a, b) => {
  const [x, y] = [nameOf(names, a.member_id), nameOf(names, b.member_id)];
  return x.localeCompare(y, "en", { numeric: true }) || (a.member_id < b.member_id ? -1 : 1);
};

const TRENDS = {
  growing: ["↑", "growing"],
  shrinking: ["↓", "shrinking"],
  steady: ["=", "steady"],
  none: ["✓", "no lag"],
};

// An arrow and a word, so that neither colour nor shape alone carries the meaning.
export const trendMark = (trend) => {
  const [sign, word] = TRENDS[trend] ?? ["", "not known"];
  return h("span", { class: "trend", "data-trend": trend ?? "unknown" }, sign && h("span", { "aria-hidden": "true" }, `${sign} `), word);
};

export const consumerFigure = () =>
  svg("svg", { class: "person", viewBox: "0 0 20 24", width: 20, height: 24, "aria-hidden": "true" },
    svg("circle", { cx: 10, cy: 6, r: 4.5 }),
    svg("path", { d: "M2 23 v-4 a8 6 0 0 1 16 0 v4" }));

export const topicLink = (topic, text = topic) => h("a", { href: path("topics", topic) }, text);

// One consumer with its partitions, standing still: of the drawings of the past and of what would be.
// `marked`: keys of partitions to point out, with the words for it.
export const lane = ({ name, partitions, marked, word, isNew, side, id }) =>
  h("div", { class: isNew ? "consumer-lane new" : "consumer-lane", "data-lane": id, "data-side": side },
    h("div", { class: "consumer-lane-name" }, consumerFigure(), h("span", null, name)),
    h("ul", { class: "owned-list plain" },
      partitions.length === 0 && h("li", { class: "muted none" }, "no partitions"),
      [...partitions].sort(byPartition).map((each) => {
        const key = partitionName(each);
        const moved = marked.has(key);
        return h("li", { class: moved ? "owned marked" : "owned", "data-drawn": key },
          h("span", { class: "owned-name" }, key), moved && h("span", { class: "owned-note" }, word));
      })));
