// SPDX-License-Identifier: Apache-2.0
// The dialog that sends dead letters back to the topics they came from: look at the preview, apply it once.
import { openDialog, whileBusy } from "./dialog.js";
import { h, replace } from "./dom.js";
import { count, number } from "./format.js";
import { banner, commandLine } from "./notices.js";

// `records`: [{partition, offset}], or null for all (of one kind of `error`, where it is given).
// `onDone(answer or null)` when the dialog is closed.
export function openReplay(root, { topic, records = null, error = null, session, api, onDone }) {
  const state = { answer: null };
  const body = h("div", null, h("p", { class: "muted", role: "status" }, "Reading the dead letters …"));
  const dialog = openDialog(root, "Send dead letters back", () => body, () => onDone?.(state.answer));
  const cancel = h("button", { type: "button", onclick: dialog.close }, "Cancel");
  if (session?.read_only) {
    replace(body, banner("info", "This console is read-only.", "Start it without --read-only to send records back."), h("div", { class: "actions" }, cancel));
    return;
  }
  const preview = async (again) => {
    const found = await whileBusy(dialog, [], () => api.post("/dead-letters/replay/preview", { topic, records, error, again }));
    if (found) show(found, again);
    else replace(body, h("div", { class: "actions" }, cancel, h("button", { type: "button", onclick: () => preview(again) }, "Try again")));
  };
  const show = (found, again) => {
    const apply = h("button", { type: "button", class: "danger", disabled: found.count === 0 }, found.count ? `Send ${count(found.count, "record")} back` : "Nothing to send");
    apply.addEventListener("click", async () => {
      const answer = await whileBusy(dialog, [apply], () => api.post("/dead-letters/replay", { token: found.token }));
      if (answer) {
        state.answer = answer;
        replace(body, outcome(answer), h("div", { class: "actions" }, h("button", { type: "button", class: "primary", onclick: dialog.close }, "Close")));
        body.querySelector("button.primary").focus();
      } else {
        replace(body, h("div", { class: "actions" }, cancel, h("button", { type: "button", onclick: () => preview(again) }, "Preview again")));
      }
    });
    replace(body, previewBox(found, again, preview), h("div", { class: "actions" }, cancel, apply));
    (found.count ? apply : cancel).focus();
  };
  preview(false);
}

// A button in `place` that opens the dialog for the whole topic, for the dead letters' page.
export function mountReplay(place, { topic, session, api }) {
  const dialogs = h("div");
  const button = h("button", { type: "button", onclick: () => openReplay(dialogs, { topic, session, api }) }, "Send them back …");
  replace(place, h("div", { class: "toolbar" }, button), dialogs);
  return { close: () => replace(place) };
}

function previewBox(found, again, preview) {
  const box = h("input", { type: "checkbox", checked: again, onchange: () => preview(box.checked) });
  return h("div", { class: "page", id: "replay-preview" },
    h("p", null, found.count
      ? ["Records get their own key, value, partition and headers, without those of the failure. They go to ", found.targets.map((each, place) => [place ? ", " : "", h("b", null, each.topic), ` (${number(each.count)})`]), "."]
      : "None of these records can be sent back."),
    h("p", { class: "muted" }, `The dead letters stay in ${found.topic} until its retention removes them.`),
    found.more && banner("info", "There are more than are sent at once.", "Send these, then open this again for the next ones."),
    (found.already > 0 || again) && h("label", { class: "field inline" }, box, `also the ${found.already ? number(found.already) : "ones"} that this console sent back already`),
    found.refused_count > 0 && h("details", { class: "commands", open: found.count === 0 },
      h("summary", null, `${count(found.refused_count, "record")} cannot be sent back`),
      h("ul", null, found.refused.map((each) => h("li", null, `partition ${each.partition}, offset ${number(each.offset)}: ${each.reason}`)))),
    found.commands.map((each) => h("details", { class: "commands" }, h("summary", null, each.label), commandLine(each.command))));
}

const outcome = (answer) => [
  banner(answer.failed ? "warning" : "info", `${count(answer.replayed, "record was", "records were")} sent back to ${answer.targets.map((each) => each.topic).join(", ") || "no topic"}.`),
  answer.failed > 0 && banner("error", `${count(answer.failed, "record was", "records were")} not sent.`, answer.error),
];
