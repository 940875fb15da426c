/* Schedules: messages that come again, with their next times. */

import { change, get } from "../api.js";
import { code, data, h } from "../dom.js";
import { card, doer, empty, filter, head, table, topicLink } from "../table.js";
import { age, duration, moment, number, t } from "../text.js";

export default {
  title: "schedules",
  live: 5000,
  load: (page, signal) => get("/api/schedules", signal),
  view(page, { items }) {
    const wanted = page.get("q").toLowerCase();
    const shown = items.filter((each) => `${each.name} ${each.topic}`.toLowerCase().includes(wanted));
    return [
      head(t("schedules"), { about: t("schedules.about") }),
      card(
        null,
        items.length > 0 && h("div", { class: "row" }, filter(page, t("schedule"))),
        shown.length > 0 && list(page, shown),
        !shown.length &&
          (items.length
            ? empty(t("filter.none"), t("filter.none.do"))
            : empty(t("schedules.none"), t("schedules.none.do"), { command: "pocketmq schedule create daily TopicTest 'hello' --cron @daily" })),
      ),
    ];
  },
};

function list(page, shown) {
  return table({
    caption: t("schedules"),
    columns: [
      { label: t("name") }, { label: t("topic") }, { label: t("schedule.when") }, { label: t("schedule.next") }, { label: t("due.in") },
      { label: t("schedule.last") }, { label: t("schedule.fired"), number: true }, { label: t("broker") }, { label: t("actions"), quiet: true },
    ],
    rows: shown.map((each) => ({
      key: `${each.broker} ${each.name}`,
      cells: [
        data(each.name), topicLink(each.topic), when(each), each.next ? moment(each.next) : t("schedule.paused"), each.next ? age(each.next) : "–",
        each.last ? moment(each.last) : "–", number(each.fired), data(each.broker), h("div", { class: "actions" }, actions(page, each)),
      ],
    })),
  });
}

function when({ cron, timeZone, intervalMs }) {
  if (cron) return code(`${cron} ${timeZone}`);
  return intervalMs ? t("schedule.every", { time: duration(intervalMs) }) : t("schedule.once");
}

function actions(page, each) {
  const turn = each.next ? "pause" : "resume";
  return [
    doer(page, t(`schedule.${turn}`), () => act(page, each, turn, t(`schedule.${turn}`))),
    doer(page, t("delete"), () => act(page, each, "delete", t("delete")), { danger: true }),
  ];
}

async function act(page, { name, topic }, word, label) {
  const title = t("schedule.title", { name });
  await page.act(() => change("POST", "/api/schedules/change", { name, topic, act: word }, { title, label }), t("schedule.done"));
}
