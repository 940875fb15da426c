/* Producers that are connected now. */

import { get, path } from "../api.js";
import { code, data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, empty, filter, head, table } from "../table.js";
import { moment, t } from "../text.js";

export default {
  title: "producers",
  live: 5000,
  load: (page, signal) => get(path("/api/producers", [], { group: page.get("group") }), signal),
  view(page, { items, whatToDo }) {
    const wanted = page.get("q").toLowerCase();
    const shown = (items ?? []).filter((each) => `${each.group} ${each.clientId}`.toLowerCase().includes(wanted));
    const ask = (event, form) => {
      event.preventDefault();
      page.set({ group: form.elements.group.value.trim() });
    };
    return [
      head(t("producers"), { about: t("producers.about") }),
      card(
        null,
        items === null
          ? [
              spoken(whatToDo, { tag: "p" }),
              h("form", { class: "row", on: { submit: ask } }, h("label", {}, t("producerGroup"), h("input", { name: "group", required: true })), h("button", { class: "main" }, t("search"))),
            ]
          : h("div", { class: "row" }, filter(page, t("producers.filter"))),
        shown.length
          ? table({
              caption: t("producers"),
              columns: [{ label: t("producer") }, { label: t("producerGroup") }, { label: t("address") }, { label: t("client") }, { label: t("lastUpdate") }],
              rows: shown.map((each) => ({
                key: `${each.group} ${each.clientId}`,
                cells: [code(each.clientId), data(each.group), code(each.address), data(`${each.language} ${each.version}`), moment(each.lastUpdate)],
              })),
            })
          : items && (wanted ? empty(t("filter.none"), t("filter.none.do")) : empty(t("producers.none"), t("send.first"), { command: "pocketmq message send TopicTest 'hello'" })),
      ),
    ];
  },
};
