/* One topic: what its queues hold, its consumers, route and configuration; sending to it. */

import { change, get, path } from "../api.js";
import { form } from "../dialog.js";
import { code, data, h } from "../dom.js";
import { charts, withHistory } from "../history.js";
import { card, doer, empty, facts, figures, groupLink, head, href, link, table, tabs, topicKind } from "../table.js";
import { follow, tailView } from "../tail.js";
import { moment, named, number, rate, sentence, t } from "../text.js";
import { queueTable, resetOffsets, skip } from "./offsets.js";
import { editTopic } from "./topics.js";

export default {
  title: "topic",
  live: (page) => (page.get("tab") === "live" ? 1000 : 5000),
  async load(page, signal) {
    const name = page.get("name");
    const following = page.get("tab") === "live" ? follow(page, name, signal) : null;
    // Of the topic itself little changes while its messages are watched.
    if (following && page.data?.topic === name) return following.then(() => page.data);
    const [found, consumers] = await Promise.all([
      withHistory(page, signal, [["topics", name]], get(path("/api/topics/{}", [name]), signal)),
      page.get("tab") === "consumers" ? get(path("/api/topics/{}/consumers", [name]), signal) : null,
      following,
    ]);
    return { ...found, consumers };
  },
  view(page, topic) {
    const { topic: name } = topic;
    const tab = page.get("tab") || "status";
    const choices = ["status", "live", "consumers", "route", "config"].map((each) => [
      each, t(`topic.${each}`), href("/topic", { name, tab: each === "status" ? "" : each }),
    ]);
    return [
      head(data(name), {
        crumb: ["/topics", t("topics")],
        actions: [
          topicKind(topic.type),
          h("a", { class: "button", href: href("/messages", { topic: name }) }, t("messages")),
          doer(page, t("send"), () => sendForm(page, name)),
          doer(page, t("change"), () => editTopic(page, name, topic.configs[0])),
          doer(page, t("delete"), () => remove(page, name), { danger: true }),
        ],
      }),
      figures([
        [t("messages"), number(topic.messages)],
        [t("rate.in"), rate(topic.in), t("perSecond")],
        [t("rate.out"), rate(topic.out), t("perSecond")],
        [t("today"), number(topic.inToday), t("today.stored")],
      ]),
      tabs(t("topic"), choices, tab),
      { status, live: tailView, consumers, route, config }[tab]?.(page, topic),
    ];
  },
};

function status(page, topic) {
  const [history] = page.state.charts ?? [];
  return [
    queueStatus(page, topic),
    charts(page, [
      { id: "rates", title: t("chart.rates"), history, figures: ["in", "out"] },
      { id: "lag", title: t("chart.topicLag"), history, figures: ["lag"] },
    ]),
  ];
}

function queueStatus(page, { topic: name, status: queues, messages }) {
  return card(
    t("topic.status"),
    table({
      caption: t("topic.status"),
      columns: [
        { label: t("broker") }, { label: t("queue"), number: true }, { label: t("offset.min"), number: true },
        { label: t("offset.max"), number: true }, { label: t("messages"), number: true }, { label: t("lastMessage") },
        { label: t("actions"), quiet: true },
      ],
      rows: queues.map((each) => ({
        key: `${each.broker} ${each.queueId}`,
        cells: [
          data(each.broker), each.queueId, number(each.minOffset), number(each.maxOffset),
          number(each.maxOffset - each.minOffset), moment(each.lastTimestamp),
          link("/messages", { topic: name, by: "queue", broker: each.broker, queue: each.queueId, offset: each.minOffset }, t("messages.see")),
        ],
      })),
    }),
    messages === 0 &&
      empty(t("topic.empty"), t("send.first"), {
        command: `pocketmq message send ${name} 'hello'`,
        action: doer(page, t("send"), () => sendForm(page, name), { main: true }),
      }),
  );
}

function consumers(page, { topic: name, consumers: found }) {
  if (!found?.groups.length) return card(null, empty(t("topic.consumers.none"), t("groups.first")));
  return found.groups.map(({ group, lag, queues }) =>
    h(
      "section",
      { class: "card", key: group },
      h(
        "div",
        { class: "row" },
        h("h2", {}, groupLink(group)),
        h("span", { class: "soft" }, t("lag.is", { count: number(lag) })),
        h(
          "span",
          { class: "actions end" },
          doer(page, t("reset"), () => resetOffsets(page, group, [name])),
          doer(page, t("skip"), () => skip(page, group, [name]), { danger: true }),
        ),
      ),
      queueTable(t("topic.consumersOf", { group }), queues, { topics: false }),
    ),
  );
}

function route(page, { route: { queues, brokers } }) {
  return h(
    "div",
    { class: "grid" },
    card(
      t("topic.route"),
      table({
        caption: t("topic.route"),
        columns: [
          { label: t("broker") }, { label: t("topic.readQueues"), number: true },
          { label: t("topic.writeQueues"), number: true }, { label: t("perm") },
        ],
        rows: queues.map((each) => [link("/broker", { name: each.broker }, each.broker), each.readQueues, each.writeQueues, named("perm", each.perm)]),
      }),
    ),
    card(
      t("topic.addresses"),
      table({
        caption: t("topic.addresses"),
        columns: [{ label: t("broker") }, { label: t("cluster") }, { label: t("address") }],
        rows: brokers.map((each) => [
          data(each.broker), data(each.cluster),
          Object.entries(each.addresses).map(([id, address]) => h("div", {}, code(address), ` ${named("role", id === "0" ? "MASTER" : "SLAVE")}`)),
        ]),
      }),
    ),
  );
}

function config(page, { configs }) {
  return configs.map((each) =>
    card(
      data(each.broker),
      facts([
        [t("topic.readQueues"), each.readQueues],
        [t("topic.writeQueues"), each.writeQueues],
        [t("perm"), named("perm", each.perm)],
        [t("topic.order"), t(each.order ? "yes" : "no")],
        [t("topic.filterType"), code(each.filterType)],
        ...Object.entries(each.attributes ?? {}).map(([key, value]) => [code(key), code(value)]),
      ]),
    ),
  );
}

async function remove(page, name) {
  const title = t("topic.delete", { name });
  await page.act(async () => {
    const found = await change("DELETE", path("/api/topics/{}", [name]), undefined, { title, label: t("delete") });
    if (found) page.go("/topics");
    return found;
  }, t("topic.deleted", { name }));
}

/** Send one message by hand. */
export async function sendForm(page, topic) {
  const found = await form({
    title: t("send.title", { topic }),
    label: t("send"),
    fields: [
      { name: "body", label: t("message.body"), type: "area", value: "hello" },
      { name: "tag", label: t("tag") },
      { name: "keys", label: t("keys"), help: t("keys.help") },
      { name: "properties", label: t("properties"), help: t("properties.help"), placeholder: "color=red; size=7" },
      { name: "delayLevel", label: t("delayLevel"), type: "number", min: 0, max: 18, value: 0, help: t("delayLevel.help") },
    ],
    submit: ({ body, tag, keys, properties, delayLevel }) =>
      change("POST", path("/api/topics/{}/messages", [topic]), {
        body, bodyEncoding: "text", tag: tag || null, keys: keys || null, delayLevel: delayLevel ?? 0, properties: pairs(properties),
      }),
  });
  await page.act(
    () => found,
    (sent) => sentence("send.done", { place: `${sent.broker} ${sent.queueId}/${sent.queueOffset}`, message: link("/message", { id: sent.msgId, topic }, sent.msgId) }),
  );
}

function pairs(text) {
  const found = {};
  for (const part of text.split(";").filter((each) => each.trim())) {
    const at = part.indexOf("=");
    if (at < 1) throw Object.assign(new Error(t("properties.bad", { part })), { status: 0 });
    found[part.slice(0, at).trim()] = part.slice(at + 1).trim();
  }
  return found;
}
