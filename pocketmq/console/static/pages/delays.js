/* Delayed messages that wait: how many at each level, and which are due next. */

import { change, get, path } from "../api.js";
import { code, data, h } from "../dom.js";
import { card, cursorPager, doer, empty, head, link, table, topicLink } from "../table.js";
import { age, duration, moment, number, size, t } from "../text.js";
import { messageTable } from "./messages.js";

export default {
  title: "delays",
  live: 5000,
  load(page, signal) {
    const level = page.get("level");
    if (!level) return get("/api/delays", signal);
    return get(path("/api/delays/{}", [level], { broker: page.get("broker"), cursor: page.state.cursor, size: 20 }), signal);
  },
  view: (page, found) => (page.get("level") ? waiting(page, found) : levels(page, found)),
};

function levels(page, { brokers }) {
  return [
    head(t("delays"), { about: t("delays.about") }),
    brokers.map(({ broker, levels: list, timer }) => {
      const some = list.some((each) => each.waiting > 0);
      return card(
        data(broker),
        !some && empty(t("delays.none"), t("delays.none.do"), { command: "pocketmq message send TopicTest 'later' --delay-level 3" }),
        some &&
          table({
            caption: t("delays"),
            columns: [{ label: t("delayLevel") }, { label: t("delay") }, { label: t("waiting"), number: true }],
            rows: list.map((each) => ({
              key: each.level,
              cells: [
                each.waiting > 0 ? link("/delays", { level: each.level, broker }, `${each.level}`) : data(each.level),
                each.waiting > 0 ? link("/delays", { level: each.level, broker }, duration(each.delayMs)) : duration(each.delayMs),
                number(each.waiting),
              ],
            })),
          }),
        timer?.waiting != null && h("p", {}, t("delays.timer", { count: number(timer.waiting) })),
        timer?.next?.length > 0 && next(page, broker, timer.next),
      );
    }),
  ];
}

function next(page, broker, list) {
  return table({
    caption: t("delays.next"), showCaption: true,
    columns: [
      { label: t("messageId") }, { label: t("topic") }, { label: t("due") }, { label: t("due.in") }, { label: t("stored") },
      { label: t("storeSize"), number: true }, { label: t("actions"), quiet: true },
    ],
    rows: list.map((each) => ({
      key: `${each.msgId} ${each.due}`,
      cells: [
        each.offsetMsgId ? link("/message", { id: each.offsetMsgId }, code(each.msgId)) : code(each.msgId),
        topicLink(each.topic), moment(each.due, { millis: true }), age(each.due), age(each.storeTimestamp), size(each.storeSize),
        h("div", { class: "actions" }, doer(page, t("recall"), () => recall(page, broker, each), { danger: true })),
      ],
    })),
  });
}

async function recall(page, broker, { topic, recallHandle, msgId }) {
  const title = t("recall.title", { id: msgId });
  const url = "/api/delays/recall";
  await page.act(() => change("POST", url, { broker, topic, recallHandle }, { title, label: t("recall") }), t("recall.done"));
}

function waiting(page, list) {
  const extra = (each) => [
    [t("due"), moment(each.due)],
    [t("topic"), each.realTopic ? topicLink(each.realTopic) : "–"],
    [t("due.in"), age(each.due)],
  ];
  return [
    head(t("delays.level", { level: page.get("level") }), { crumb: ["/delays", t("delays")] }),
    card(null, list.items.length ? messageTable(t("delays"), list.items, extra) : empty(t("delays.none"), t("delays.none.do")), cursorPager(page, list)),
  ];
}
