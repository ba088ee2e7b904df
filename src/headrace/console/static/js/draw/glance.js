// SPDX-License-Identifier: Apache-2.0
// The four questions about a group, answered in words: lag, slowest consumer, last rebalance, one consumer more.
import { h, setText } from "../dom.js";
import { behind, count, duration, number, time } from "../format.js";
import { memberNames, nameOf, partitionName, trendMark } from "./consumers.js";
import { factsOf } from "./rebalance.js";
import { whyRebalanced } from "./reasons.js";

const card = (name, question) => {
  const [answer, more] = [h("p", { class: "answer" }), h("p", { class: "muted" })];
  return { element: h("div", { class: "card", "data-answer": name }, h("h2", null, question), answer, more), answer, more };
};

export class Glance {
  constructor() {
    this.lag = card("lag", "How far behind?");
    this.trend = h("p");
    this.lag.answer.after(this.trend);
    this.slowest = card("slowest", "Which consumer is slowest?");
    this.rebalance = card("rebalance", "Why the last rebalance?");
    this.oneMore = card("one-more", "One consumer more?");
    this.element = h("section", { class: "glance", "aria-label": "At a glance" },
      [this.lag, this.slowest, this.rebalance, this.oneMore].map((each) => each.element));
  }

  update(view) {
    this.#showLag(view.totals);
    say(this.slowest, slowestText(view));
    this.slowest.element.classList.toggle("warned", view.members.some((member) => member.slow));
    say(this.rebalance, rebalanceText(view));
    say(this.oneMore, oneMoreText(view));
  }

  #showLag(totals) {
    say(this.lag, [
      totals.lag === null ? "not known" : count(totals.lag, "record"),
      [
        totals.behind !== null && totals.lag !== 0 && `the oldest has waited ${behind(totals.behind, totals.behind_at_least)}`,
        totals.clear_in !== null && totals.lag > 0 && `clear in ${duration(totals.clear_in)}`,
        totals.rate_in !== null && totals.rate_out !== null && `${number(totals.rate_in)} records/s arrive, ${number(totals.rate_out)}/s are read`,
      ].filter(Boolean).join("; "),
    ]);
    if (this.trend.dataset.shown !== String(totals.trend)) {
      this.trend.dataset.shown = String(totals.trend);
      this.trend.replaceChildren(trendMark(totals.trend));
    }
  }
}

function say(card, [answer, more]) {
  setText(card.answer, answer);
  setText(card.more, more ?? "");
  card.more.hidden = !more;
}

function slowestText(view) {
  const slow = view.members.find((member) => member.slow);
  if (view.members.length === 0) return ["no consumer runs", view.totals.lag > 0 ? "The lag stays until one is started." : null];
  if (!slow) return ["none", "No consumer is falling behind."];
  const since = slow.behind_since;
  return [
    nameOf(memberNames(view.members), slow.member_id),
    `${count(slow.lag, "record")} behind${since === null ? "" : `, since ${time(since)} (${duration(Math.max(0, view.at - since))})`}. ` +
      `It reads ${partitionsText(slow.partitions)}.`,
  ];
}

const partitionsText = (partitions) =>
  partitions.length > 3 ? count(partitions.length, "partition") : partitions.map(partitionName).join(", ") || "nothing";

function rebalanceText(view) {
  const [latest] = view.rebalances;
  if (!latest) return ["none is known", null];
  const names = memberNames(view.members, [...(latest.before ?? []), ...(latest.after ?? [])]);
  return [whyRebalanced(view, 0, names), `${time(latest.at)} · ${factsOf(latest)}`];
}

// Which partitions, and whether that helps the consumer that needs it.
function movesText(view) {
  const { moves } = view.what_if;
  const slow = view.members.find((member) => member.slow);
  const names = memberNames(view.members);
  const taken = moves.length > 0 && moves.length <= 3
    && moves.map((each) => `${partitionName(each)} from ${nameOf(names, each.from)}`).join(", ");
  const helps = slow && (moves.some((each) => each.from === slow.member_id)
    ? `It takes work from ${nameOf(names, slow.member_id)}.`
    : `${nameOf(names, slow.member_id)}, the slowest, would keep all of its partitions.`);
  return [taken && `${taken}.`, helps].filter(Boolean).join(" ");
}

function oneMoreText(view) {
  const wanted = view.what_if;
  if (!wanted) return [view.members.length ? "not known" : "it would read everything", null];
  const idle = wanted.idle > 0 && `${count(wanted.idle, "consumer")} would have no partition.`;
  return [wanted.text, [movesText(view), idle].filter(Boolean).join(" ")];
}
