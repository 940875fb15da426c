/* Signing in. */

import { change, session } from "../api.js";
import { problem } from "../dialog.js";
import { draw, h } from "../dom.js";
import { drawSession } from "../main.js";
import { card, head } from "../table.js";
import { t } from "../text.js";

export default {
  title: "login",
  live: 0,
  load: async () => ({}),
  view(page) {
    const send = async (event, form) => {
      event.preventDefault();
      const { user, password } = Object.fromEntries(new FormData(form));
      try {
        Object.assign(session, await change("POST", "/api/login", { user, password }));
        drawSession();
        const next = page.get("next");
        // Only a page of ours: no other site can be named here.
        await page.go(/^\/(?![/\\])/.test(next) ? next : "/");
      } catch (error) {
        draw(form.querySelector(".wrong"), problem(error));
        form.querySelector("#password").select();
      }
    };
    const input = (name, type, complete) =>
      h("div", { class: "field" }, h("label", { for: name }, t(name)), h("input", { id: name, name, type, autocomplete: complete, required: true }));
    return [
      head(t("login"), { about: t(session.brokerUsers ? "login.users" : "login.about") }),
      card(
        null,
        h(
          "form",
          { method: "post", on: { submit: send } },
          h("div", { class: "wrong", role: "alert" }),
          input("user", "text", "username"),
          input("password", "password", "current-password"),
          h("button", { class: "main" }, t("login")),
        ),
      ),
    ];
  },
};
