// SPDX-License-Identifier: Apache-2.0
// Records of a topic: from anywhere, filtered, page by page or live; written and downloaded. All is in the address.
import { withQuery } from "../api.js";
import { h, path, replace, setText } from "../dom.js";
import { count, duration, number } from "../format.js";
import { EMPTY, formPart, MessageForm } from "../message_form.js";
import { MessageList } from "../message_list.js";
import { Tail } from "../message_tail.js";
import { banner, commandLine } from "../notices.js";

export const view = () => null;
export const title = (params) => `Messages of ${params.topic}`;

const STOPPED = {
  limit: "", end: "", bytes: "The page is full: long values take much room.",
  time: "Looking took too long: what was found until then is shown. Go on to look further.",
};

export function mount(root, context) {
  const page = new MessagesPage(root, context);
  return { update() {}, unmount: () => page.close() };
}

// Other pages link to one record by its partition and offset.
const completed = ({ partition, ...query }) => ({
  ...query,
  partitions: query.partitions ?? partition,
  from: query.from ?? (query.offset ? "offset" : query.time ? "time" : undefined),
});

class MessagesPage {
  #asking = new AbortController();

  constructor(root, { params, query: given, session, api, replaceQuery }) {
    const query = completed(given);
    this.topic = params.topic;
    this.api = api;
    this.replaceQuery = replaceQuery;
    this.mayWrite = !session?.read_only;
    this.form = new MessageForm(query, (wanted) => this.#load(wanted));
    this.list = new MessageList({
      topic: this.topic, open: query.open, again: this.mayWrite ? (record) => this.#produce(record) : null,
      onOpen: (open) => replaceQuery({ open }),
    });
    this.status = h("p", { role: "status", class: "muted", id: "messages-status" });
    this.problems = h("div");
    this.empty = h("p", { class: "empty panel", hidden: true });
    this.tailBox = h("div");
    this.dialogs = h("div");
    this.commands = h("details", { class: "commands below", hidden: true });
    this.#buildButtons();
    replace(root, this.#head(), this.form.element, this.tailBox, this.bar, this.problems, this.list.element, this.empty, this.foot, this.commands, this.dialogs);
    this.list.update([]);
    if (query.tail === "1") this.#startTail();
    else this.#load(formPart(query), query.cursor ? { cursor: query.cursor, direction: query.direction } : {}, query.open);
  }

  close() {
    this.#asking.abort();
    this.tail?.close();
  }

  #head() {
    return h("div", { class: "page-head" },
      h("h1", null, h("a", { href: path("topics", this.topic) }, this.topic), " messages"),
      h("div", { class: "toolbar" },
        this.mayWrite && h("button", { type: "button", onclick: () => this.#produce(null) }, "Write a record …"), this.live,
        h("span", { class: "downloads" }, this.jsonl, this.parquet)));
  }

  #buildButtons() {
    this.live = h("button", { type: "button", onclick: () => this.#startTail() }, "Live tail");
    this.jsonl = h("a", { class: "button", download: true }, "JSON lines");
    this.parquet = h("a", { class: "button", download: true }, "Parquet");
    const pager = (words) => words.map(([way, text]) => h("button", { type: "button", "data-way": way, disabled: true, onclick: () => this.#go(way) }, text));
    this.pagers = [pager([["newer", "← Newer"], ["older", "Older →"]]), pager([["newer", "← Newer"], ["older", "Older →"]])];
    this.bar = h("div", { class: "toolbar messages-bar" }, this.status, h("span", { class: "pager" }, this.pagers[0]));
    this.foot = h("div", { class: "toolbar messages-bar", hidden: true }, h("span", { class: "pager" }, this.pagers[1]));
  }

  async #load(wanted, place = {}, open = null) {
    this.#stopTail();
    this.#asking.abort();
    const asking = (this.#asking = new AbortController());
    this.wanted = wanted;
    this.list.open = open;
    this.replaceQuery({ ...EMPTY, ...wanted, ...place, open });
    this.#showDownloads(place);
    setText(this.status, "Reading …");
    this.list.element.setAttribute("aria-busy", "true");
    try {
      const found = await this.api.get("/messages", { topic: this.topic, ...wanted, ...place }, asking.signal);
      this.form.refused(null);
      this.#show(found);
    } catch (error) {
      if (error.name !== "AbortError") this.#failed(error);
    } finally {
      this.list.element.removeAttribute("aria-busy");
    }
  }

  #go(way) {
    if (this.page) this.#load(this.wanted, { cursor: this.page[way], direction: way });
  }

  #show(found) {
    this.page = found;
    this.list.update(found.records);
    const order = found.direction === "newer" ? "oldest first" : "newest first";
    const looked = this.wanted.filter || this.wanted.key ? `; ${number(found.looked_at)} looked at` : "";
    setText(this.status, `${count(found.records.length, "record")}, ${order}${looked}, in ${duration(found.took)}. ${STOPPED[found.stopped_by] ?? ""}`.trim());
    this.#showPagers(found);
    replace(this.problems, found.problems.map((each) =>
      banner("warning", each.partition === null ? "Not all partitions" : `Partition ${each.partition} cannot be read`, each.text)));
    this.#showEmpty(found);
    this.#showCommands(found.commands);
  }

  #failed(error) {
    this.page = null;
    this.list.update([]);
    setText(this.status, "Nothing was read.");
    this.#showPagers(null);
    replace(this.problems);
    this.empty.hidden = true;
    this.commands.hidden = true;
    this.form.refused(error);
  }

  #showPagers(found) {
    for (const button of this.pagers.flat()) button.disabled = !found || !found[`more_${button.dataset.way}`];
    this.foot.hidden = !found || found.records.length < 20;
  }

  #showEmpty(found) {
    this.empty.hidden = found.records.length > 0;
    const records = found.offsets.reduce((sum, each) => sum + each.end - each.start, 0);
    const filtered = this.wanted.filter || this.wanted.key;
    const more = found.direction === "newer" ? found.more_newer : found.more_older;
    const advice = records === 0 ? "The topic has no records. Write one, or start the live tail and wait for the first."
      : filtered && more ? "No record matched so far. Go on with the buttons above, or change the filter."
      : filtered ? "No record matches the filter and the key." : "There is nothing on this side: go back, or begin elsewhere.";
    setText(this.empty, advice);
  }

  #showCommands(commands) {
    this.commands.hidden = commands.length === 0;
    replace(this.commands, h("summary", null, "The same on the command line"),
      commands.map((each) => h("div", { class: "labelled" }, h("p", { class: "muted" }, each.label), commandLine(each.command))));
  }

  #showDownloads(place) {
    const { limit: _, ...wanted } = this.wanted;
    for (const [link, format] of [[this.jsonl, "jsonl"], [this.parquet, "parquet"]]) {
      link.setAttribute("href", withQuery("/api/messages/download", { topic: this.topic, ...wanted, ...place, format }));
      link.setAttribute("title", `Download what follows from here, filtered, as ${format === "jsonl" ? "JSON lines" : "Parquet"}: at most 1,000,000 records and 1 GB`);
    }
  }

  #startTail() {
    this.#stopTail();
    this.#asking.abort();
    this.wanted = this.form.query;
    this.replaceQuery({ ...EMPTY, ...this.wanted, tail: "1" });
    this.#showDownloads({});
    this.tail = new Tail({ topic: this.topic, ...this.wanted }, (records) => this.list.update(records), () => this.#load(this.form.query));
    replace(this.tailBox, this.tail.element);
    this.bar.hidden = true;
    this.foot.hidden = true;
    this.live.hidden = true;
    this.empty.hidden = true;
    this.commands.hidden = true;
    replace(this.problems);
    this.list.open = null;
    this.list.update([]);
  }

  #stopTail() {
    this.tail?.close();
    this.tail = null;
    replace(this.tailBox);
    this.bar.hidden = false;
    this.live.hidden = false;
  }

  async #produce(record) {
    const { openProduce } = await import("../produce_dialog.js");
    openProduce(this.dialogs, { topic: this.topic, api: this.api, record, onDone: () => this.#written() });
  }

  #written() {
    if (!this.tail && !this.wanted.from) this.#load(this.wanted);
  }
}
