// SPDX-License-Identifier: Apache-2.0
// What every document tells besides its subject: why the cluster cannot be read, alarms, what is not known, commands.
import { h, keyed, replace, setText } from "./dom.js";
import { ago, time } from "./format.js";

const SIGN = { error: "✖", warning: "▲", info: "ℹ" };
const ALARMS_SHOWN = 3; // the page below them is what the reader came for

export const banner = (level, text, next) =>
  h("div", { class: `notice ${level}`, role: level === "error" ? "alert" : "status" },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGN[level]),
    h("div", null, h("strong", null, text), next && h("p", null, next)));

// A button that copies; where the browser does not let it, the text is selected for Ctrl-C.
export function copyButton(source, text) {
  const button = h("button", { type: "button", class: "small" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Press Ctrl-C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return button;
}

export function commandLine(command) {
  const code = h("code", null, command);
  return h("div", { class: "command" }, code, copyButton(code, command));
}

const alarmBox = (alarm) =>
  h("li", { class: `notice ${alarm.level}`, "data-alarm": alarm.level },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGN[alarm.level] ?? "ℹ"),
    h("div", { class: "alarm" },
      h("div", null,
        h("span", { class: "vh" }, `${alarm.level}: `),
        h("strong", null, alarm.path ? h("a", { href: alarm.path }, alarm.text) : alarm.text),
        h("span", { class: "muted since" }),
        alarm.next && h("p", null, alarm.next)),
      alarm.command && commandLine(alarm.command)));

export class Notices {
  constructor() {
    this.problem = h("div", { class: "problem", "aria-live": "assertive" });
    this.alarms = h("ul", { class: "alarms plain", "aria-label": "Alarms" });
    this.more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#showAll() });
    this.unknown = h("ul", { class: "muted" });
    this.unknownBox = h("aside", { class: "unknown", hidden: true, "aria-label": "Not known" },
      h("h2", null, "What this cluster does not tell"), this.unknown);
    this.commands = h("div");
    this.commandsBox = h("details", { class: "commands", hidden: true },
      h("summary", null, "The same on the command line"), this.commands);
    this.above = h("div", { class: "notices" }, this.problem, this.alarms, this.more);
    this.below = h("footer", { class: "below" }, this.unknownBox, this.commandsBox);
  }

  update(document) {
    this.#showProblem(document.problem);
    this.#showAlarms(document.alarms ?? [], document.at);
    const unknown = document.unknown ?? [];
    this.unknownBox.hidden = unknown.length === 0;
    keyed(this.unknown, unknown, (text) => text, (text) => h("li", null, text));
    this.#showCommands(document.commands ?? []);
  }

  #showProblem(problem) {
    const text = typeof problem === "object" && problem ? problem.error : problem;
    if (this.problemShown === text) return;
    this.problemShown = text;
    replace(this.problem, text && banner("error", text, problem.next ?? "What is shown was known before."));
  }

  #showAlarms(alarms, at) {
    this.last = [alarms, at];
    const shown = this.all ? alarms : alarms.slice(0, ALARMS_SHOWN);
    keyed(this.alarms, shown, (alarm) => JSON.stringify([alarm.level, alarm.text, alarm.command, alarm.next]), alarmBox,
      (box, alarm) => setText(box.querySelector(".since"), alarm.since ? ` since ${time(alarm.since)} (${ago(alarm.since, at)})` : ""));
    this.more.hidden = shown.length === alarms.length;
    const left = alarms.length - shown.length;
    setText(this.more, left === 1 ? "1 more alarm" : `${left} more alarms`);
  }

  #showAll() {
    this.all = true;
    this.#showAlarms(...this.last);
  }

  #showCommands(commands) {
    this.commandsBox.hidden = commands.length === 0;
    keyed(this.commands, commands, (each) => JSON.stringify([each.label, each.command]),
      (each) => h("div", { class: "labelled" }, h("p", { class: "muted" }, each.label), commandLine(each.command)));
  }
}
