/* Finding messages: by topic and time, by key, by id, or from a place in a queue on. */

import { get, path } from "../api.js";
import { look, progress } from "../content_search.js";
import { code, data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, cursorPager, empty, head, href, link, table, tabs } from "../table.js";
import { fromInput, moment, sentence, size, t, toInput } from "../text.js";

const HOUR_MS = 3_600_000;
const WAYS = ["time", "content", "key", "id", "queue"];
const PRINTED_MAX = 90;
// What of the address says what was searched, by the way of searching.
const EXPORTED = {
  time: (page) => ({ topic: page.get("topic"), begin: page.get("begin"), end: page.get("end") }),
  key: (page) => ({ topic: page.get("topic"), key: page.get("key") }),
};

export default {
  title: "messages",
  live: 0,
  async load(page, signal) {
    const topics = await (page.state.topics ??= get("/api/topics?size=200", signal).catch(() => ({ items: [] })));
    const topic = page.get("topic");
    const cursor = page.state.cursor;
    if (page.get("by") === "content") {
      // Drawn while it runs.
      page.data ??= { list: null, topics: topics.items.map(({ topic }) => topic) };
      if (topic) await look(page, signal);
      return page.data;
    }
    const how = {
      time: () => ({ topic, begin: page.get("begin"), end: page.get("end"), cursor, size: 20 }),
      key: () => page.get("key") && { topic, key: page.get("key") },
      queue: () => page.get("broker") && { topic, broker: page.get("broker"), queueId: page.get("queue"), offset: page.get("offset") || 0, cursor, size: 20 },
    }[page.get("by") || "time"]?.();
    const list = topic && how ? await get(path("/api/messages", [], how), signal) : null;
    return { list, topics: topics.items.map(({ topic }) => topic) };
  },
  view(page, { list: loaded, topics }) {
    const by = page.get("by") || "time";
    const list = by === "content" ? page.state.search : loaded;
    const choices = WAYS.map((each) => [each, t(`messages.${each}`), href("/messages", { topic: page.get("topic"), by: each === "time" ? "" : each })]);
    return [
      head(t("messages"), { about: t("messages.about") }),
      tabs(t("messages.how"), choices, by),
      card(null, search(page, by, topics)),
      leftOut(list),
      by === "content" && progress(page),
      list?.items.length > 0 && by in EXPORTED && h("p", {}, h("a", { class: "button", href: path("/api/messages/export", [], EXPORTED[by](page)), download: "" }, t("messages.export"))),
      list && card(null, list.items.length ? messageTable(t("messages"), list.items) : !list.running && none(page, by), by !== "content" && cursorPager(page, list)),
    ];
  },
};

/** What a list of messages lacks, because brokers do not answer. */
export function leftOut(list) {
  return list?.leftOut.map(({ broker, error }) =>
    h("p", { class: "note warn", key: `left out ${broker}` }, sentence("messages.leftOut", { broker: data(broker) }), " ", spoken(error)),
  );
}

function search(page, by, topics) {
  const send = (event, form) => {
    event.preventDefault();
    const values = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
    if (by === "id") return page.go(href("/message", values));
    for (const name of ["begin", "end"]) if (values[name]) values[name] = String(fromInput(values[name]));
    return page.set(values);
  };
  const field = (name, label, options = {}) =>
    h("div", { class: "field" }, h("label", { for: name }, label), h("input", { id: name, name, value: page.get(name), autocomplete: "off", spellcheck: "false", ...options }));
  const time = (name, label) => field(name, label, { type: "datetime-local", step: 1, value: page.get(name) && toInput(Number(page.get(name))) });
  const fields = {
    time: () => [time("begin", t("from")), time("end", t("until"))],
    content: () => [time("begin", t("from")), time("end", t("until")), field("tag", t("tag")), field("key", t("content.key")), field("property", t("content.property")), field("text", t("content.text"))],
    key: () => field("key", t("key"), { required: true }),
    id: () => field("id", t("messageId"), { required: true }),
    queue: () => [field("broker", t("broker"), { required: true }), field("queue", t("queue"), { type: "number", min: 0, required: true }), field("offset", t("offset"), { type: "number", min: 0 })],
  }[by]();
  const hour = () => page.set({ begin: String(Date.now() - HOUR_MS), end: null });
  return h(
    "form",
    { key: by, role: "search", "aria-label": t(`messages.${by}`), on: { submit: send } },
    h("div", { class: "fields" }, field("topic", t("topic"), { list: "topics", required: by !== "id" }), fields),
    h("datalist", { id: "topics" }, topics.map((each) => h("option", { value: each }))),
    h("div", { class: "actions" }, h("button", { class: "main" }, t("search")), by === "time" && page.get("topic") && h("button", { type: "button", on: { click: hour } }, t("messages.hour"))),
  );
}

function none(page, by) {
  if (by !== "time" || page.get("begin") || page.get("end")) return empty(t("messages.none"), t("messages.none.do"));
  const topic = page.get("topic");
  return empty(t("topic.empty"), t("send.first"), { command: `pocketmq message send ${topic} 'hello'` });
}

/** A list of messages; `extra(message)`: [[label, cell]] beside the usual columns. brief: leave it room. */
export function messageTable(caption, items, extra = () => [], { brief = false } = {}) {
  const place = ({ broker, queueId, queueOffset }) => data(`${broker ?? ""} ${queueId}/${queueOffset}`);
  return table({
    caption,
    columns: [
      { label: t("messageId") }, { label: t("tag") }, { label: t("keys") }, ...(brief ? [] : [{ label: t("queue") }]), { label: t("stored") }, ...(brief ? [] : [{ label: t("message.body") }]),
      ...extra(items[0]).map(([label]) => ({ label })),
    ],
    rows: items.map((each) => ({
      key: each.offsetMsgId,
      cells: [
        [link("/message", { id: each.msgId, topic: each.topic, at: each.offsetMsgId }, code(each.msgId, { class: "id" })), brief && h("div", { class: "small" }, excerpt(each.body))],
        data(each.tags ?? ""), data(each.keys ?? ""), ...(brief ? [] : [place(each)]), moment(each.storeTimestamp), ...(brief ? [] : [excerpt(each.body)]),
        ...extra(each).map(([, cell]) => cell),
      ],
    })),
  });
}

function excerpt(body) {
  if (body.text === null) return h("span", { class: "soft" }, t("body.binary", { size: size(body.size) }));
  const text = body.text.length > PRINTED_MAX ? `${body.text.slice(0, PRINTED_MAX)}…` : body.text;
  return code(text, { class: "excerpt" });
}
