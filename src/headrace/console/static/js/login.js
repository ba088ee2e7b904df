// SPDX-License-Identifier: Apache-2.0
// The login form. The password goes to the console's server, which shows it to the broker and keeps it in memory only.
import { h, replace } from "./dom.js";
import { banner } from "./notices.js";

export function showLogin(root, api, session, done) {
  const mechanisms = session.mechanisms?.length ? session.mechanisms : ["SCRAM-SHA-256"];
  const trouble = h("div");
  const user = h("input", { name: "user", autocomplete: "username", required: true, autocapitalize: "none" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const mechanism = h("select", { name: "mechanism" }, mechanisms.map((each) => h("option", null, each)));
  const button = h("button", { type: "submit", class: "primary" }, "Log in");
  const send = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await api.post("/login", { user: user.value, password: password.value, mechanism: mechanism.value });
      await done();
    } catch (problem) {
      replace(trouble, banner("error", problem.message, problem.next));
      password.value = "";
      password.focus();
    }
    button.disabled = false;
  };
  replace(root,
    h("form", { class: "panel login", onsubmit: send },
      h("h1", null, "Log in"),
      h("p", { class: "muted" }, "With a user of the cluster. You see and may do what the cluster lets that user do."),
      h("label", { class: "field" }, "User", user),
      h("label", { class: "field" }, "Password", password),
      h("label", { class: "field" }, "Mechanism", mechanism),
      trouble, button));
  user.focus();
}
