// SPDX-License-Identifier: Apache-2.0
// The time slider: what the cluster was like at a moment, and playing from there. Range and marks: view "history".
import { h, keyed, setText } from "./dom.js";
import { time } from "./format.js";

const SPANS = [["5 min", 300_000], ["1 h", 3_600_000], ["1 day", 86_400_000], ["all", Infinity]];
const SPEEDS = [1, 5, 20, 60];
const MARKS_DRAWN = 160;
const ASK_AGAIN_MS = 15_000;
const ASK_SOON_MS = 1_000; // until the console has read the first events
const STEP_MS = 100;
const NEVER = "This cluster keeps no events: only the present can be shown.";
const NOT_YET = "No events are kept yet: the past can be shown from the first consumer group on, unless headrace.events.enable is false.";

// `moved({at, speed})`: show that moment (speed 0: it stands still); at null: live.
export class Slider {
  #marks = [];
  #from = null;
  #now = Date.now();
  #dragging = false;

  constructor(api, { at, speed }, moved) {
    this.api = api;
    this.moved = moved;
    this.at = at ?? null;
    this.speed = at ? speed ?? 0 : 0;
    this.play = h("button", { type: "button", class: "small", onclick: () => this.#togglePlay() });
    this.before = h("button", { type: "button", class: "small", title: "Change before", "aria-label": "Change before", onclick: () => this.#jump(-1) }, "‹");
    this.after = h("button", { type: "button", class: "small", title: "Next change", "aria-label": "Next change", onclick: () => this.#jump(1) }, "›");
    this.speeds = h("select", { "aria-label": "Speed", onchange: () => this.speed && this.#go(this.at, this.#chosenSpeed()) },
      SPEEDS.map((each) => h("option", { value: each, selected: each === (this.speed || 1) }, `${each}×`)));
    this.span = h("select", { "aria-label": "Range", onchange: () => this.#draw() },
      SPANS.map(([label], index) => h("option", { value: index, selected: index === 1 }, label)));
    this.range = h("input", { type: "range", "aria-label": "Moment", step: STEP_MS });
    this.range.addEventListener("input", () => this.#drag());
    this.range.addEventListener("change", () => this.#drop());
    this.ticks = h("div", { class: "ticks", "aria-hidden": "true" });
    this.clock = h("output", { class: "clock" });
    this.live = h("button", { type: "button", class: "small live", onclick: () => this.#go(null, 0) }, "Live");
    this.note = h("p", { class: "muted", hidden: true });
    this.controls = h("div", { class: "slider", role: "group", "aria-label": "Time" },
      this.before, this.play, this.after, this.speeds, h("div", { class: "track" }, this.ticks, this.range), this.span, this.clock, this.live);
    this.element = h("div", null, this.controls, this.note);
    this.#ask();
    this.timer = setInterval(() => document.hidden || this.#ask(), ASK_AGAIN_MS);
    this.#draw();
  }

  close() {
    clearInterval(this.timer);
    clearTimeout(this.soon);
  }

  // The document that is now on the screen.
  showing(view) {
    if (view.live) this.#now = Math.max(view.at, this.#now);
    else if (this.at !== null && !this.#dragging) this.at = view.at;
    this.#draw();
  }

  // Playing has reached the present.
  ended() {
    this.#go(null, 0);
  }

  async #ask() {
    clearTimeout(this.soon);
    try {
      const history = await this.api.get("/views/history");
      this.#from = history.from;
      this.#now = Math.max(history.to ?? 0, this.#now);
      this.#marks = history.marks ?? [];
      this.note.hidden = history.from !== null || history.recorded !== false;
      setText(this.note, history.engine === "headrace" ? NOT_YET : NEVER);
      this.controls.hidden = history.from === null && this.at === null;
      if (history.from === null && history.recorded !== false) this.soon = setTimeout(() => this.#ask(), ASK_SOON_MS);
    } catch {
      // The page itself tells that the server does not answer.
    }
    this.#draw();
  }

  #chosenSpeed() {
    return Number(this.speeds.value);
  }

  #bounds() {
    const span = SPANS[this.span.value][1];
    const to = Math.max(this.#now, this.at ?? 0);
    const from = Math.max(this.#from ?? to - 1000, this.at !== null && this.at < to - span ? this.at - span / 2 : to - span);
    return [Math.min(from, to - 1000), span === Infinity ? to : Math.min(to, from + span)];
  }

  #draw() {
    const [from, to] = this.#bounds();
    if (!this.#dragging) {
      this.range.min = from;
      this.range.max = to;
      this.range.value = this.at ?? to;
    }
    const shown = this.#marks.filter((mark) => mark.at >= from && mark.at <= to).slice(-MARKS_DRAWN);
    keyed(this.ticks, shown, (mark) => `${mark.at} ${mark.kind} ${mark.text}`,
      (mark) => h("i", { class: "tick", "data-kind": mark.kind, title: `${time(mark.at)} ${mark.text}`, onclick: () => this.#go(mark.at, 0) }),
      (tick, mark) => (tick.style.left = `${((mark.at - from) / (to - from)) * 100}%`));
    const live = this.at === null;
    this.controls.classList.toggle("past", !live);
    this.range.setAttribute("aria-valuetext", live ? "now" : time(this.at));
    setText(this.clock, live ? "now" : time(this.at));
    this.live.setAttribute("aria-pressed", String(live));
    setText(this.play, this.speed ? "❚❚" : "▶");
    this.play.setAttribute("aria-label", this.speed ? "Pause" : "Play");
    this.play.title = this.speed ? "Pause" : "Play from here";
    this.play.disabled = live;
  }

  #drag() {
    this.#dragging = true;
    this.at = Number(this.range.value);
    this.speed = 0;
    this.#draw();
    this.moved({ at: this.at, speed: 0, passing: true });
  }

  #drop() {
    this.#dragging = false;
    const atEnd = Number(this.range.value) >= Number(this.range.max) - STEP_MS;
    this.#go(atEnd ? null : Number(this.range.value), 0);
  }

  #togglePlay() {
    this.#go(this.at, this.speed ? 0 : this.#chosenSpeed());
  }

  #jump(step) {
    const at = this.at ?? this.#now;
    const marks = step < 0 ? this.#marks.filter((mark) => mark.at < at - STEP_MS) : this.#marks.filter((mark) => mark.at > at + STEP_MS);
    const mark = marks.at(step < 0 ? -1 : 0);
    if (mark) this.#go(mark.at, 0);
    else if (step > 0) this.#go(null, 0);
  }

  #go(at, speed) {
    this.at = at === null ? null : Math.round(at);
    this.speed = speed;
    this.#draw();
    this.moved({ at: this.at, speed });
  }
}
