/* The list of topics, and the form that makes or changes one. */

import { change, get, path } from "../api.js";
import { form } from "../dialog.js";
import { h } from "../dom.js";
import { card, doer, empty, filter, head, pager, table, topicKind, topicLink } from "../table.js";
import { named, number, rate, size, t } from "../text.js";
import { sendForm } from "./topic.js";

export default {
  title: "topics",
  live: 5000,
  load(page, signal) {
    const type = page.get("type") || "NORMAL,FIFO,DELAY,TRANSACTION,UNSPECIFIED";
    const query = { type: type === "ALL" ? null : type, q: page.get("q"), page: page.get("page"), size: 20, sort: page.get("sort"), desc: page.get("desc") };
    return get(path("/api/topics", [], query), signal);
  },
  view(page, list) {
    return [
      head(t("topics"), {
        about: t("topics.about"),
        actions: doer(page, t("topic.create"), () => editTopic(page, null), { main: true }),
      }),
      card(
        null,
        h("div", { class: "row" }, filter(page, t("topics.filter")), types(page, list.counts)),
        list.items.length
          ? table({
              caption: t("topics"),
              page,
              columns: [
                { label: t("topic") }, { label: t("type") }, { label: t("rate.in"), number: true, sort: "in" },
                { label: t("rate.out"), number: true, sort: "out" }, { label: t("lag"), number: true, sort: "lag" },
                { label: t("messages.kept"), number: true, sort: "messages" }, { label: t("messages.size"), number: true, sort: "bytes" },
                { label: t("queues"), number: true, sort: "queues" },
                { label: t("actions"), quiet: true },
              ],
              totals: [t("total", { count: number(list.total) }), "", rate(list.totals.in), rate(list.totals.out), number(list.totals.lag), number(list.totals.messages), size(list.totals.bytes), number(list.totals.queues), ""],
              rows: list.items.map((each) => ({ key: each.topic, cells: row(page, each) })),
            })
          : none(page),
        pager(page, list),
      ),
    ];
  },
};

function row(page, { topic: name, type, dynamic }) {
  const send = ["RETRY", "DLQ", "SYSTEM"].includes(type)
    ? null
    : doer(page, t("send"), () => sendForm(page, name), { quiet: true });
  return [topicLink(name), topicKind(type), rate(dynamic?.in), rate(dynamic?.out), number(dynamic?.lag), number(dynamic?.messages), size(dynamic?.bytes), number(dynamic?.queues), h("div", { class: "actions" }, send)];
}

function none(page) {
  if (page.get("q") || page.get("type")) return empty(t("filter.none"), t("filter.none.do"));
  return empty(t("topics.none"), t("topics.none.do"), {
    command: "pocketmq topic create TopicTest\npocketmq message send TopicTest 'hello'",
    action: doer(page, t("topic.create"), () => editTopic(page, null), { main: true }),
  });
}

function types(page, counts = {}) {
  const own = Object.entries(counts).filter(([name]) => !["RETRY", "DLQ", "SYSTEM"].includes(name));
  const all = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const choices = [
    ["", t("topicType.own"), own.reduce((sum, [, each]) => sum + each, 0)],
    ...["FIFO", "DELAY", "TRANSACTION", "RETRY", "DLQ", "SYSTEM"].map((each) => [each, named("topicType", each), counts[each] ?? 0]),
    ["ALL", t("all"), all],
  ];
  const chosen = (event) => page.set({ type: event.target.value || null, page: null });
  return h(
    "select",
    { "aria-label": t("type"), on: { change: chosen } },
    choices.map(([value, label, count]) =>
      h("option", { value, selected: value === page.get("type") }, `${label} (${number(count)})`),
    ),
  );
}

export const perms = () => [[6, t("perm.6")], [4, t("perm.4")], [2, t("perm.2")]];

/** Make a topic, or change the one whose configuration is given. */
export async function editTopic(page, name, config = {}) {
  const count = (key) => ({
    name: key, label: t(`topic.${key}`), type: "number", min: 1, max: 1024, required: true, value: config[key] ?? 8,
  });
  const nameField = {
    name: "name", label: t("topic.name"), required: true, pattern: "[%\\|a-zA-Z0-9_\\-]{1,127}", help: t("topic.name.help"),
  };
  const kinds = ["", "NORMAL", "FIFO", "DELAY", "TRANSACTION"].map((each) => [each, each ? named("topicType", each) : t("topicType.none")]);
  const result = await form({
    title: name ? t("topic.change", { name }) : t("topic.create"),
    label: name ? t("next") : t("create"),
    fields: [
      ...(name ? [] : [nameField]),
      { ...count("writeQueues"), help: t("topic.queues.help") },
      count("readQueues"),
      { name: "perm", label: t("perm"), type: "select", choices: perms(), value: config.perm ?? 6 },
      ...(name ? [] : [{ name: "kind", label: t("type"), type: "select", choices: kinds, help: t("topic.type.help") }]),
      { name: "order", label: t("topic.order"), type: "check", value: config.order, help: t("topic.order.help") },
    ],
    submit: async ({ name: made, perm, kind, ...rest }) => {
      const attributes = kind ? { "message.type": kind } : {};
      const url = path("/api/topics/{}", [name ?? made.trim()]);
      const title = t("topic.change", { name: name ?? made });
      return change("PUT", url, { ...rest, perm: Number(perm), attributes }, { title, danger: false });
    },
  });
  await page.act(() => result, (found) => t("topic.saved", { brokers: found.brokers.join(", ") }));
}
