/* The list of groups, and the form that makes or changes one. */

import { change, get, path } from "../api.js";
import { form } from "../dialog.js";
import { data, h } from "../dom.js";
import { card, doer, empty, filter, groupLink, head, KINDS, pager, table, tag } from "../table.js";
import { named, number, rate, t } from "../text.js";

export default {
  title: "groups",
  live: 5000,
  load(page, signal) {
    const type = page.get("type") || "NORMAL";
    const query = { q: page.get("q"), page: page.get("page"), size: 20, sort: page.get("sort"), desc: page.get("desc"), type: type === "ALL" ? null : type };
    return get(path("/api/groups", [], query), signal);
  },
  view(page, list) {
    const check = (event) => page.set({ type: event.target.checked ? "ALL" : null, page: null });
    return [
      head(t("groups"), {
        about: t("groups.about"),
        actions: doer(page, t("group.create"), () => editGroup(page, null), { main: true }),
      }),
      card(
        null,
        h(
          "div",
          { class: "row" },
          filter(page, t("groups.filter")),
          h("label", {}, h("input", { type: "checkbox", checked: page.get("type") === "ALL", on: { change: check } }), t("groups.system")),
        ),
        list.items.length
          ? table({
              caption: t("groups"),
              page,
              columns: [
                { label: t("group") }, { label: t("state"), sort: "health" }, { label: t("subscriptions") }, { label: t("mode") }, { label: t("members"), number: true, sort: "members" },
                { label: t("messageModel") }, { label: t("lag"), number: true, sort: "lag" }, { label: t("rate.out"), number: true, sort: "out" },
              ],
              totals: [t("total", { count: number(list.total) }), "", "", "", number(list.totals.members), "", number(list.totals.lag), rate(list.totals.out)],
              rows: list.items.map((each) => ({ key: each.group, marked: each.differs, cells: row(each) })),
            })
          : page.get("q")
            ? empty(t("filter.none"), t("filter.none.do"))
            : empty(t("groups.none"), t("groups.first")),
        pager(page, list),
      ),
    ];
  },
};

function row(each) {
  return [
    groupLink(each.group),
    each.state === "sick" ? tag(t("sick"), KINDS[each.severity]) : each.state === "well" ? tag(t("well"), "good") : "–",
    each.differs ? tag(t("differs"), "warn") : each.differs === false && each.members > 1 ? tag(t("agree"), each.state === "sick" ? "" : "good") : "–",
    each.mode ? named("mode", each.mode) : "–",
    each.members ? number(each.members) : h("span", { class: "soft" }, t("offline")),
    each.messageModel ? [named("model", each.messageModel), each.consumeType === "CONSUME_ACTIVELY" && ` (${t("pull")})`] : data("–"),
    number(each.lag),
    rate(each.out),
  ];
}

/** Make a group, or change the one whose configuration is given. */
export async function editGroup(page, name, config = {}) {
  const check = (key) => ({ name: key, label: t(`group.${key}`), type: "check", value: config[key] ?? true });
  const count = (key, usual) => ({ name: key, label: t(`group.${key}`), type: "number", min: -1, required: true, value: config[key] ?? usual });
  const nameField = {
    name: "name", label: t("group.name"), required: true, pattern: "[%\\|a-zA-Z0-9_\\-]{1,120}", help: t("group.name.help"),
  };
  const result = await form({
    title: name ? t("group.change", { name }) : t("group.create"),
    label: name ? t("next") : t("create"),
    fields: [
      ...(name ? [] : [nameField]),
      { ...count("retryMaxTimes", 16), help: t("group.retryMaxTimes.help") },
      count("retryQueues", 1),
      check("consumeEnable"), check("consumeBroadcastEnable"), check("consumeFromMinEnable"), check("notifyConsumerIdsChangedEnable"),
    ],
    submit: ({ name: made, ...rest }) =>
      change("PUT", path("/api/groups/{}", [name ?? made.trim()]), rest, { title: t("group.change", { name: name ?? made }), danger: false }),
  });
  await page.act(() => result, t("group.saved"));
}
