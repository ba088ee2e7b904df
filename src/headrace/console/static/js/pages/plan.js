// SPDX-License-Identifier: Apache-2.0
// How many consumers and partitions a topic needs: measured figures, sliders over them, and what they mean as bars.
import { Figure, panel } from "../admin_parts.js";
import { h, keyed, replace, setText } from "../dom.js";
import { count, duration, number, percent, rate } from "../format.js";
import { banner } from "../notices.js";
import { choice, makePlan } from "../plan_formula.js";
import { Choices } from "../draw/plan_bars.js";

const STEPS = 1000;

// A slider over several powers of ten: its position is the logarithm.
const scaled = (from, to) => ({
  toPosition: (value) => (STEPS * Math.log(Math.min(Math.max(value, from), to) / from)) / Math.log(to / from),
  toValue: (position) => from * (to / from) ** (position / STEPS),
});
const even = (from, to) => ({ toPosition: (value) => (STEPS * (value - from)) / (to - from), toValue: (position) => from + ((to - from) * position) / STEPS });
const neat = (value) => Number(value.toPrecision(3));
const perRecord = (milliseconds) => (milliseconds < 1 ? `${Math.round(milliseconds * 1000)} µs` : `${neat(milliseconds)} ms`);

const SLIDERS = {
  produce: { label: "Records of all producers", scale: scaled(1, 1e6), text: rate },
  peak: { label: "Peak, as a multiple of that", scale: even(1, 10), text: (value) => `× ${neat(value)}`, start: () => 1 },
  work: { label: "Time one consumer needs for a record", scale: scaled(0.005, 10_000), text: (value) => `${perRecord(value)} (${rate(1000 / value)})` },
  headroom: { label: "Partitions for each consumer, at least", scale: even(1, 10), text: (value) => `× ${neat(value)}` },
  session: { label: "Until a failed consumer is noticed (session.timeout.ms)", scale: scaled(1000, 300_000), text: duration },
};

export const view = (params, query) => ({ name: "plan", params: { topic: query.topic ?? "", group: query.group ?? "" } });
export const title = () => "Plan";

const address = (topic, group) => `/plan?topic=${encodeURIComponent(topic)}${group ? `&group=${encodeURIComponent(group)}` : ""}`;
const startOf = (situation) => ({
  produce: situation.produce_rate?.value ?? 100,
  peak: 1,
  work: 1000 / (situation.consume_rate?.value ?? 100),
  headroom: situation.headroom.value,
  session: situation.session_timeout_ms.value,
});

// The situation that the sliders describe: what they do not have stays as measured.
function assumed(situation, chosen) {
  const given = (value) => ({ value, source: "given", how: "slider" });
  const rate = neat(chosen.produce) * neat(chosen.peak);
  const factor = rate / situation.produce_rate.value;
  return {
    ...situation,
    produce_rate: given(rate),
    consume_rate: given(1000 / neat(chosen.work)),
    headroom: given(neat(chosen.headroom)),
    session_timeout_ms: given(neat(chosen.session)),
    busiest_partition_rate: situation.busiest_partition_rate === null ? null : situation.busiest_partition_rate * factor,
  };
}

export function mount(root, context) {
  const { topic, group } = context.query;
  const topics = h("select", { onchange: () => topics.value && context.navigate(address(topics.value)) }, h("option", { value: "" }, "choose a topic"));
  const groups = h("select", { disabled: true, onchange: () => context.navigate(address(topic, groups.value)) }, h("option", { value: "" }, "no group"));
  const missing = h("div");
  const sum = new Sum();
  sum.element.hidden = true;
  replace(root, h("div", { class: "page-head" }, h("h1", null, topic ? `Plan for ${topic}` : "Plan")),
    h("div", { class: "toolbar" }, h("label", { class: "field" }, "Topic", topics), h("label", { class: "field" }, "Group that reads it", groups)),
    missing, sum.element);
  let told = null;
  return {
    update(view) {
      keyed(topics, [{ name: "" }, ...view.topics], (each) => each.name, (each) => h("option", { value: each.name }, each.name || "choose a topic"));
      topics.value = topic ?? "";
      keyed(groups, ["", ...view.groups], (each) => each, (each) => h("option", { value: each }, each || "no group"));
      groups.value = view.group ?? group ?? "";
      groups.disabled = view.groups.length === 0;
      const text = JSON.stringify(view.missing);
      if (text !== told) replace(missing, view.missing.map((each) => banner("info", each.text, each.next)));
      told = text;
      sum.element.hidden = !view.topic;
      if (view.topic) sum.update(view);
    },
    unmount: () => sum.close(),
  };
}

class Sum {
  #touched = false;

  constructor() {
    this.fields = Object.fromEntries(Object.entries(SLIDERS).map(([name, each]) => [name, this.#slider(name, each)]));
    this.source = h("p", { class: "muted", role: "status" });
    this.reset = h("button", { type: "button", class: "small", disabled: true, onclick: () => this.#reset() }, "Back to what was measured");
    this.needed = new Figure("consumers needed");
    this.spare = new Figure("so that one may fail");
    this.partitions = new Figure("partitions");
    this.load = new Figure("load with them");
    this.limits = h("ul", { class: "limits" });
    this.choices = new Choices();
    this.failure = h("p");
    this.unknown = h("ul", { class: "limits muted" });
    this.element = h("div", { class: "page" },
      h("div", { class: "figures", "aria-live": "polite" }, this.needed.element, this.spare.element, this.partitions.element, this.load.element),
      h("div", { class: "columns" },
        panel("What it is worked out from", Object.values(this.fields).map((each) => each.element), this.source, this.reset),
        panel("Load of each consumer, by their number", this.choices.element, this.failure)),
      panel("What limits it", this.limits, this.unknown),
      h("p", { class: "muted" }, "Consumers = records of all producers ÷ records of one consumer, rounded up; partitions ≥ consumers. A consumer works at most so many partitions as it has time for."));
  }

  update(view) {
    this.view = view;
    this.measured = view.situation ?? this.#empty(view);
    setText(this.source, this.#sources(view));
    if (!this.#touched) this.#put(startOf(this.measured));
    this.#draw();
  }

  close() {
    this.choices.close();
  }

  // Nothing is measured yet: the sliders begin at plain numbers, and the notices say so.
  #empty(view) {
    const topic = view.topics.find((each) => each.name === view.topic);
    const figure = (value) => ({ value, source: "assumed", how: "" });
    return {
      topic: view.topic, produce_rate: figure(topic?.rate_in || 100), consume_rate: figure(100), headroom: figure(1.5), session_timeout_ms: figure(45_000),
      rebalance_ms: null, node_down_ms: null, node_share: 1, busiest_partition_rate: null, partitions: topic?.partitions ?? 1, consumers: null,
    };
  }

  #sources(view) {
    if (!view.situation) return "Nothing is measured yet: these are examples.";
    const { produce_rate, consume_rate, consume_rate_is_floor } = view.situation;
    return `Measured: ${rate(produce_rate.value)} come in; one consumer did ${rate(consume_rate.value)} (${consume_rate.how})` +
      (consume_rate_is_floor ? ". They all kept up, so one can do at least that." : ".");
  }

  #slider(name, { label, text }) {
    const output = h("output", { class: "num" });
    const input = h("input", { type: "range", "aria-label": label, min: 0, max: STEPS, step: 1, name, oninput: () => this.#moved() });
    const element = h("label", { class: "slide" }, h("span", null, label), output, input);
    return { element, input, output, text };
  }

  #put(values) {
    for (const [name, field] of Object.entries(this.fields)) field.input.value = String(SLIDERS[name].scale.toPosition(values[name]));
  }

  #moved() {
    this.#touched = true;
    this.reset.disabled = false;
    this.#draw();
  }

  #reset() {
    this.#touched = false;
    this.reset.disabled = true;
    this.#put(startOf(this.measured));
    this.#draw();
  }

  #draw() {
    const chosen = this.#touched ? this.#values() : startOf(this.measured);
    for (const [name, { input, output, text }] of Object.entries(this.fields)) {
      setText(output, text(chosen[name]));
      input.setAttribute("aria-valuetext", text(chosen[name]));
    }
    const situation = this.#touched ? assumed(this.measured, chosen) : this.measured;
    const plan = makePlan(situation);
    const spare = choice(situation, plan.consumers_with_spare);
    this.needed.set(number(plan.consumers));
    this.spare.set(number(plan.consumers_with_spare));
    this.partitions.set(plan.partitions > situation.partitions ? `${number(situation.partitions)} → ${number(plan.partitions)}` : number(plan.partitions), plan.partitions > situation.partitions ? "warn" : "");
    this.load.set(percent(spare.load), spare.load > 1 ? "bad" : "");
    this.choices.update(situation, plan);
    setText(this.failure, failureText(spare, situation));
    keyed(this.limits, plan.limits, (text) => text, (text) => h("li", null, text));
    keyed(this.unknown, unknownTexts(situation), (text) => text, (text) => h("li", null, text));
  }

  #values() {
    return Object.fromEntries(Object.entries(this.fields).map(([name, { input }]) => [name, neat(SLIDERS[name].scale.toValue(Number(input.value)))]));
  }
}

function failureText(spare, situation) {
  const { lag, caught_up_ms } = spare.consumer_dies;
  const start = `With ${count(spare.consumers, "consumer")}, when one fails ${count(lag, "record")} wait until it is noticed after ${duration(situation.session_timeout_ms.value)}`;
  return caught_up_ms === null ? `${start}, and the others do not catch up.` : `${start}; ${duration(caught_up_ms)} after the failure all are read.`;
}

const unknownTexts = (situation) =>
  [
    situation.rebalance_ms === null && "How long a rebalance takes is not known, so it is not in these figures.",
    situation.node_down_ms === null && "How long partitions are without a leader when a node fails is not in these figures.",
  ].filter(Boolean);
