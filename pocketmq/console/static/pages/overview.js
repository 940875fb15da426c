/* The overview: what is wrong, what goes in and out, what waits. */

import { get } from "../api.js";
import { data, h } from "../dom.js";
import { findings } from "../findings.js";
import { charts, withHistory } from "../history.js";
import { card, empty, figures, groupLink, head, link, table, tag, topicLink } from "../table.js";
import { named, number, rate, t, versionText } from "../text.js";

export default {
  title: "overview",
  live: 3000,
  load: (page, signal) =>
    withHistory(page, signal, [["cluster"], ["groups"]], get("/api/overview", signal)),
  view(page, found) {
    const lag = found.totals.lag;
    const [cluster, groups] = page.state.charts ?? [];
    return [
      head(t("overview"), { about: t("overview.about") }),
      findings(page, found.warnings),
      figures([
        [t("rate.in"), rate(found.rates.in), t("perSecond")],
        [t("rate.out"), rate(found.rates.out), t("perSecond")],
        [t("lag"), number(lag), t("lag.unit")],
        [t("topics"), h("a", { href: "/topics" }, number(found.counts.topics))],
        [t("groups"), h("a", { href: "/groups" }, number(found.counts.groups)), t("members.online", { count: number(found.counts.members) })],
        [t("today"), number(found.totals.inToday), t("today.stored")],
      ]),
      charts(page, [
        { id: "rates", title: t("chart.rates"), history: cluster, figures: ["in", "out"] },
        { id: "lag", title: t("chart.lag"), history: groups, figure: "lag", none: t("chart.lag.none") },
        { id: "latency", title: t("chart.latency"), history: groups, figure: "latency", none: t("chart.lag.none") },
      ]),
      brokers(found.brokers),
      h("div", { class: "grid" }, topTopics(found.topTopics), topGroups(found.topGroups)),
    ];
  },
};

export function brokers(list) {
  return card(
    t("brokers"),
    list.length === 0
      ? empty(t("brokers.none"), t("brokers.none.do"))
      : table({
          caption: t("brokers"),
          columns: [
            { label: t("broker") }, { label: t("role") }, { label: t("address") }, { label: t("version") },
            { label: t("rate.in"), number: true }, { label: t("rate.delivered"), number: true },
            { label: t("today"), number: true }, { label: t("disk") },
          ],
          rows: list.map((each) => ({
            key: `${each.broker} ${each.brokerId}`,
            cells: [
              link("/broker", { name: each.broker, id: each.brokerId || null }, each.broker),
              !each.reachable ? tag(t("unreachable"), "bad") : each.trouble ? tag(t("broker.fails"), "bad") : tag(named("role", each.role)),
              data(each.address, { class: "mono" }),
              data(versionText(each)),
              rate(each.in),
              rate(each.delivered),
              number(each.inToday),
              disk(each.diskRatio),
            ],
          })),
        }),
  );
}

function disk(ratio) {
  if (ratio == null) return "–";
  const text = `${Math.round(ratio * 100)} %`;
  return h(
    "span",
    { class: "row" },
    h("meter", { min: 0, max: 1, high: 0.75, low: 0.5, optimum: 0.2, value: ratio, "aria-label": t("disk.used", { text }) }),
    text,
  );
}

function topTopics(list) {
  return card(
    t("topTopics"),
    list.length
      ? table({
          caption: t("topTopics"),
          columns: [{ label: t("topic") }, { label: t("rate.in"), number: true }, { label: t("rate.out"), number: true }],
          rows: list.map((each) => ({ key: each.topic, cells: [topicLink(each.topic), rate(each.in), rate(each.out)] })),
        })
      : empty(t("topTopics.none"), t("send.first"), {
          command: "pocketmq topic create TopicTest\npocketmq message send TopicTest 'hello'",
          action: h("a", { class: "button", href: "/topics" }, t("topics.goto")),
        }),
  );
}

function topGroups(list) {
  return card(
    t("topGroups"),
    list.length
      ? table({
          caption: t("topGroups"),
          columns: [{ label: t("group") }, { label: t("lag"), number: true }, { label: t("rate.out"), number: true }],
          rows: list.map((each) => ({ key: each.group, cells: [groupLink(each.group), number(each.lag), rate(each.out)] })),
        })
      : empty(t("topGroups.none"), t("groups.first")),
  );
}
