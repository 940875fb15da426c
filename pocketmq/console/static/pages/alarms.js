/* Alarms: those that hold now, the rules, and the notices sent to web hooks. */

import { get } from "../api.js";
import { code, data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, empty, figures, groupLink, head, table, tag } from "../table.js";
import { age, duration, named, number, t } from "../text.js";

const STATES = { delivered: "good", trying: "", "given up": "bad", dropped: "bad" };
const EXAMPLE = [
  "[[alarm]]", 'group = "orders-*"', "lag = 10_000", 'symptoms = ["DEAD_LETTERS"]', 'url = "https://hooks.example/pocketmq"',
].join("\n");

export default {
  title: "alarms",
  live: 3000,
  load: (page, signal) => get("/api/alarms", signal),
  view: (page, found) => [
    head(t("alarms"), { about: t("alarms.about") }),
    found.fault && spoken(found.fault, { tag: "p", class: "note bad" }),
    found.file && figures(counts(found)),
    found.file ? [held(found), rules(found), told(found)] : card(null, empty(t("alarms.noFile"), t("alarms.noFile.do"), { command: EXAMPLE })),
  ],
};

function counts({ alarms, rules: all, deliveries }) {
  return [
    [t("alarms.now"), number(alarms.filter(({ status }) => status === "raised").length)],
    [t("alarms.pending"), number(alarms.filter(({ status }) => status === "pending").length)],
    [t("alarms.rules"), number(all.length)],
    [t("alarms.failed"), number(deliveries.filter(({ state }) => STATES[state] === "bad").length)],
  ];
}

function held({ alarms, rules: all }) {
  if (!alarms.length) return all.length > 0 && h("p", { class: "note good", key: "fine" }, t("alarms.none"));
  return card(
    t("alarms.now"),
    table({
      caption: t("alarms.now"),
      columns: [{ label: t("alarm") }, { label: t("group") }, { label: t("state") }, { label: t("alarm.reasons") }, { label: t("alarm.since") }],
      rows: alarms.map((each) => ({
        key: `${each.alarm} ${each.group}`,
        cells: [data(each.alarm), groupLink(each.group), tag(named("alarmStatus", each.status), each.status === "raised" ? "bad" : "warn"), each.reasons.map(reason), age(each.since)],
      })),
    }),
  );
}

function reason({ figure, value, limit }) {
  if (figure === "symptom") return h("div", {}, named("symptom", value));
  const show = figure === "waiting_s" ? (each) => duration(each * 1000) : number;
  return h("div", {}, t(`alarmReason.${figure}`, { value: show(value), limit: show(limit) }));
}

function rules({ rules: list, file }) {
  const limits = ({ lag, waitingS, members, symptoms }) => [
    lag !== null && h("div", {}, t("alarmLimit.lag", { limit: number(lag) })),
    waitingS !== null && h("div", {}, t("alarmLimit.waiting_s", { limit: duration(waitingS * 1000) })),
    members !== null && h("div", {}, t("alarmLimit.members", { limit: number(members) })),
    symptoms.map((each) => h("div", {}, each === "*" ? t("alarmLimit.any") : named("symptom", each))),
  ];
  return card(
    t("alarms.rules"),
    h("p", { class: "soft" }, t("alarms.file"), " ", code(file)),
    list.length === 0
      ? empty(t("alarms.noRule"), t("alarms.noFile.do"), { command: EXAMPLE })
      : table({
          caption: t("alarms.rules"),
          columns: [{ label: t("alarm") }, { label: t("groups") }, { label: t("alarm.when") }, { label: t("alarm.for") }, { label: t("alarm.again") }, { label: t("alarm.hook") }],
          rows: list.map((each) => ({
            key: each.name,
            cells: [data(each.name), code(each.group), limits(each), each.forS ? duration(each.forS * 1000) : t("alarm.atOnce"), each.againS ? duration(each.againS * 1000) : t("never"), code(each.hook)],
          })),
        }),
  );
}

function told({ deliveries }) {
  if (!deliveries.length) return null;
  return card(
    t("alarms.told"),
    table({
      caption: t("alarms.told"),
      columns: [{ label: t("alarm") }, { label: t("group") }, { label: t("alarm.notice") }, { label: t("time") }, { label: t("state") }, { label: t("alarm.tries"), number: true }],
      rows: deliveries.map((each) => [
        data(each.alarm), groupLink(each.group), named("alarmStatus", each.status), age(each.at),
        [tag(named("delivery", each.state), STATES[each.state]), each.error && spoken(each.error, { tag: "div", class: "soft small" })],
        number(each.tries),
      ]),
    }),
  );
}
