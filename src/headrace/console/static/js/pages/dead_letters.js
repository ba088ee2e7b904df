// SPDX-License-Identifier: Apache-2.0
// Records whose handling failed: the topics that hold them, by error, and the records of one topic.
import { AnswerNotice, badge, fields, Figure, panel, showBox } from "../admin_parts.js";
import { openReplay } from "../dead_letter_actions.js";
import { h, keyed, path, replace, setText } from "../dom.js";
import { ago, bytes, count, number, rate, time } from "../format.js";
import { Table } from "../table.js";

export const view = (params, query) => ({ name: "dead-letters", params: { topic: params.topic ?? "", error: query.error ?? "" } });
export const title = (params) => (params.topic ? `Dead letters in ${params.topic}` : "Dead letters");
export const mount = (root, context) => (context.params.topic ? mountTopic(root, context) : mountList(root));

const topicLinks = (topics) => h("span", null, topics.map((topic, index) => [index > 0 && ", ", h("a", { href: path("topics", topic) }, topic)]));
const groupLinks = (groups) => h("span", null, groups.map((group, index) => [index > 0 && ", ", h("a", { href: path("groups", group) }, group)]));

function mountList(root) {
  let now = Date.now();
  const columns = [
    { name: "name", label: "Topic", value: (each) => each.name, cell: (each) => h("a", { href: path("dead-letters", each.name) }, each.name) },
    { name: "records", label: "Records", numeric: true, value: (each) => each.records, cell: (each) => number(each.records) },
    { name: "rate", label: "Come in", numeric: true, value: (each) => each.rate_in, cell: (each) => rate(each.rate_in) },
    { name: "error", label: "Most frequent error", value: (each) => each.errors[0]?.error, cell: (each) => (each.errors.length ? [h("span", { class: "mono" }, each.errors[0].error), h("p", { class: "muted doc" }, `${number(each.errors[0].count)} of the newest ${number(each.sampled)}`)] : "–") },
    { name: "sources", label: "Came from", wide: true, cell: (each) => topicLinks(each.sources) },
    { name: "groups", label: "Group", wide: true, cell: (each) => groupLinks(each.groups) },
    { name: "newest", label: "Newest", numeric: true, wide: true, value: (each) => each.newest_at, cell: (each) => ago(each.newest_at, now) },
  ];
  const notice = new AnswerNotice();
  const total = h("p", { class: "muted", role: "status" });
  const table = new Table({
    columns, key: (each) => each.name, caption: "Topics of dead letters", sort: "records",
    empty: "No dead letters are there. headrace consume --exec … --dead-letter TOPIC and Spark's rejectsTopic write some when a record cannot be handled.",
  });
  replace(root, h("div", { class: "page-head" }, h("h1", null, "Dead letters")), notice.element, total, table.element);
  return {
    update(view) {
      now = view.at;
      notice.update(view.answer);
      setText(total, `The newest records of ${number(view.looked_at)} of ${count(view.candidates, "topic")} with records were looked at` + (view.looked_at < view.candidates ? ", those first whose name is one of dead letters. Any other topic: /dead-letters/NAME." : "."));
      table.update(view.topics);
    },
  };
}

function mountTopic(root, context) {
  const { topic } = context.params;
  const notice = new AnswerNotice();
  const [records, coming, kinds] = ["records", "come in", "kinds of errors"].map((label) => new Figure(label));
  const errors = h("div", { class: "kinds" });
  const all = h("a", { href: path("dead-letters", topic), hidden: !context.query.error }, "Show all errors");
  const from = h("p", { class: "muted" });
  const columns = [
    { name: "place", label: "Record", numeric: true, value: (each) => each.at, cell: (each) => `${each.partition} / ${number(each.offset)}` },
    { name: "at", label: "Written", value: (each) => each.at, cell: (each) => time(each.at) },
    { name: "error", label: "Error", value: (each) => each.error, cell: (each) => h("span", { class: "mono" }, each.error) },
    { name: "origin", label: "Came from", value: (each) => each.origin?.topic, cell: originCell },
    { name: "attempts", label: "Attempts", numeric: true, wide: true, value: (each) => each.attempts, cell: (each) => number(each.attempts) },
    { name: "key", label: "Key", wide: true, value: (each) => each.key, cell: (each) => each.key ?? h("em", { class: "muted" }, "none") },
    { name: "size", label: "Value", numeric: true, value: (each) => each.value_bytes, cell: (each) => h("button", { type: "button", class: "small quiet", onclick: () => showRecord(topic, each) }, bytes(each.value_bytes)) },
  ];
  const table = new Table({ columns, key: (each) => `${each.partition}/${each.offset}`, caption: "Dead letters, newest first", empty: "None of the newest records of this topic has an error in its headers." });
  replace(root,
    h("div", { class: "page-head" }, h("h1", null, `Dead letters in ${topic}`),
      h("div", { class: "tabs" }, h("a", { href: "/dead-letters" }, "All"), h("a", { href: path("topics", topic) }, "The topic"), h("a", { href: path("topics", topic, "messages") }, "Its messages"))),
    notice.element, h("div", { class: "figures" }, records.element, coming.element, kinds.element), from,
    panel(context.query.error ? `Only: ${context.query.error}` : "By error, in the newest records", errors, all), replayTools(topic, context.query.error ?? null, context), table.element);
  let seen = "";
  return {
    update(view) {
      notice.update(view.answer);
      const it = view.topic;
      records.set(number(it.records), it.records > 0 ? "warn" : "");
      coming.set(rate(it.rate_in), it.rate_in > 0 ? "bad" : "");
      kinds.set(number(it.errors.length));
      table.update(view.records);
      const shown = JSON.stringify([it.errors, it.sources, it.groups]);
      if (shown === seen) return;
      seen = shown;
      replace(from, "From ", it.sources.length ? topicLinks(it.sources) : "topics that are not told", it.groups.length > 0 && [", while group ", groupLinks(it.groups), " handled them"], it.makers.length > 0 && `; written by ${it.makers.join(", ")}.`);
      keyed(errors, it.errors, (each) => `${each.error} ${each.count} ${it.sampled}`, (each) => errorShare(each, it.sampled, topic));
    },
  };
}

function errorShare(each, sampled, topic) {
  const bar = h("i");
  bar.style.width = `${(100 * each.count) / Math.max(1, sampled)}%`;
  return h("div", { class: "share" },
    h("a", { class: "mono", href: `${path("dead-letters", topic)}?error=${encodeURIComponent(each.error)}` }, each.error),
    h("b", { class: "num" }, number(each.count)), h("div", { class: "meter bad", "aria-hidden": "true" }, bar));
}

const originCell = (each) =>
  each.origin === null ? "not told" : [h("a", { href: path("topics", each.origin.topic) }, `${each.origin.topic}-${each.origin.partition ?? "?"}`), ` @ ${number(each.origin.offset)}`];

function showRecord(topic, each) {
  showBox(`Record ${each.partition}/${each.offset} of ${topic}`,
    fields([
      ["Error", h("span", { class: "mono" }, each.error)],
      ["Came from", each.origin && `${each.origin.topic}, partition ${each.origin.partition}, offset ${each.origin.offset}`],
      ["Group", each.group], ["Attempts", number(each.attempts)], ["Column", each.column], ["Written by", each.maker], ["Key", each.key],
      ["Value", badge("", bytes(each.value_bytes))],
    ]),
    h("pre", { class: "error-text" }, each.value ?? "none"),
    h("p", { class: "muted" }, "The beginning of the value as text. ", h("a", { href: `${path("topics", topic, "messages")}?partition=${each.partition}&offset=${each.offset}` }, "The whole record, decoded")));
}

// All of the topic's, or those with the chosen error.
function replayTools(topic, error, { session, api }) {
  const dialogs = h("div");
  const button = h("button", { type: "button", onclick: () => openReplay(dialogs, { topic, error, session, api }) },
    error ? "Send those with this error back …" : "Send them back …");
  return h("div", { class: "toolbar" }, !session?.read_only && button, dialogs);
}
