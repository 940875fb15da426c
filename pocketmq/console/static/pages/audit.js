/* Audit: who did what to which resource, and who was refused; newest first, with a filter. */

import { get, path } from "../api.js";
import { code, data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, cursorPager, empty, head, table, tag } from "../table.js";
import { fromInput, moment, named, number, t, toInput } from "../text.js";
import { leftOut } from "./messages.js";

const FIELDS = ["user", "act", "resource", "outcome", "begin", "end"];
const KINDS = { done: "good", failed: "warn", refused: "bad" };

export default {
  title: "audit",
  live: 0,
  load: (page, signal) =>
    get(path("/api/audit", [], { ...Object.fromEntries(FIELDS.map((name) => [name, page.get(name)])), cursor: page.state.cursor, size: 50 }), signal),
  view: (page, found) => [
    head(t("audit"), { about: t("audit.about") }),
    card(null, search(page)),
    leftOut(found),
    card(null, found.items.length ? trail(found.items) : none(page, found), cursorPager(page, found)),
  ],
};

function search(page) {
  const send = (event, form) => {
    event.preventDefault();
    const values = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
    for (const name of ["begin", "end"]) if (values[name]) values[name] = String(fromInput(values[name]));
    return page.set(values);
  };
  const field = (name, label, options = {}) =>
    h("div", { class: "field" }, h("label", { for: name }, label), h("input", { id: name, name, value: page.get(name), autocomplete: "off", spellcheck: "false", ...options }));
  const time = (name, label) => field(name, label, { type: "datetime-local", step: 1, value: page.get(name) && toInput(Number(page.get(name))) });
  const outcomes = ["", ...Object.keys(KINDS)];
  return h(
    "form",
    { role: "search", "aria-label": t("audit"), on: { submit: send } },
    h(
      "div",
      { class: "fields" },
      field("user", t("user")), field("act", t("audit.act")), field("resource", t("audit.resource")),
      h(
        "div",
        { class: "field" },
        h("label", { for: "outcome" }, t("audit.outcome")),
        h("select", { id: "outcome", name: "outcome" }, outcomes.map((each) => h("option", { value: each, selected: each === page.get("outcome") }, each ? named("auditOutcome", each) : t("acl.all")))),
      ),
      time("begin", t("from")), time("end", t("until")),
    ),
    h("div", { class: "actions" }, h("button", { class: "main" }, t("search"))),
  );
}

const trail = (items) =>
  table({
    caption: t("audit"),
    columns: [
      { label: t("time") }, { label: t("user") }, { label: t("address") }, { label: t("audit.act") },
      { label: t("audit.resource") }, { label: t("audit.outcome") }, { label: t("broker") },
    ],
    rows: items.map((each) => [
      moment(each.time, { millis: true }), data(each.user), data(each.address), code(each.act), resources(each),
      [tag(named("auditOutcome", each.outcome), KINDS[each.outcome] ?? ""), each.times > 1 && ` × ${number(each.times)}`, each.reason && h("div", { class: "small soft" }, spoken(each.reason))],
      data(each.broker),
    ]),
  });

const resources = ({ resources: found }) =>
  Object.entries(found).map(([name, values]) => h("div", {}, h("span", { class: "soft", translate: "no" }, `${name} `), data(values.join(", "))));

function none(page, { cursor, scanned }) {
  if (cursor) return empty(t("audit.further", { scanned: number(scanned) }), t("audit.further.do"));
  return FIELDS.some((name) => page.get(name)) ? empty(t("filter.none"), t("filter.none.do")) : empty(t("audit.none"), t("audit.none.do"));
}
