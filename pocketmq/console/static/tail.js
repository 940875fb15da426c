/* The live view of a topic: its newest messages, and those that arrive. No group is touched. */

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { card, empty } from "./table.js";
import { number, t } from "./text.js";
import { messageTable } from "./pages/messages.js";

const SHOWN_MAX = 200;

/** Fetch what is new; `page.state.tail` keeps the newest, and where they end. */
export async function follow(page, name, signal) {
  const filter = { tag: page.get("tag"), text: page.get("text") };
  const asked = JSON.stringify([name, filter]);
  if (page.state.tail?.asked !== asked) page.state.tail = { asked, items: [], skipped: 0, cursor: null };
  const { tail } = page.state;
  const found = await get(path("/api/topics/{}/tail", [name], { ...filter, cursor: tail.cursor }), signal);
  if (signal.aborted) return;
  tail.cursor = found.cursor;
  tail.skipped += found.skipped;
  tail.items = [...found.items.reverse(), ...tail.items].slice(0, SHOWN_MAX);
}

export function tailView(page) {
  const tail = page.state.tail ?? { items: [], skipped: 0 };
  const choose = (event, form) => {
    event.preventDefault();
    page.set({ tag: form.elements.tag.value.trim(), text: form.elements.text.value.trim() });
  };
  const field = (name, label) =>
    h("label", {}, label, h("input", { type: "search", name, value: page.get(name), autocomplete: "off", spellcheck: "false" }));
  const filtered = page.get("tag") || page.get("text");
  return card(
    t("tail"),
    h("p", { class: "soft" }, t("tail.about")),
    h("form", { class: "row", role: "search", "aria-label": t("tail"), on: { submit: choose } }, field("tag", t("tag")), field("text", t("content.text")), h("button", {}, t("tail.filter"))),
    tail.skipped > 0 && h("p", { class: "soft" }, t("tail.skipped", { count: number(tail.skipped) })),
    tail.items.length
      ? messageTable(t("tail"), tail.items)
      : empty(t("tail.none"), t(filtered ? "filter.none.do" : "tail.none.do")),
  );
}
