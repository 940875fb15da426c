/* One group: each member's own subscription beside the stored one, what that costs, and the offsets. */

import { change, get, path } from "../api.js";
import { form, show } from "../dialog.js";
import { code, data, h } from "../dom.js";
import { warnings } from "../findings.js";
import { charts, withHistory } from "../history.js";
import { card, doer, empty, facts, figures, head, href, KINDS, table, tabs, tag, topicLink } from "../table.js";
import { age, duration, language, moment, named, number, rate, sentence, size, t } from "../text.js";
import { editGroup } from "./groups.js";
import { clone, queueTable, resetOffsets, setOffset, skip } from "./offsets.js";

export default {
  title: "group",
  live: 3000,
  load(page, signal) {
    const name = page.get("name");
    return withHistory(page, signal, [["groups", name]], get(path("/api/groups/{}", [name]), signal));
  },
  view(page, group) {
    const { group: name } = group;
    const tab = page.get("tab") || "members";
    const others = group.warnings.filter(({ kind }) => kind !== "GROUP_DIFFERS");
    const topics = [...new Set(group.queues.map(({ topic }) => topic))];
    const choices = ["members", "queues", "config"].map((each) => [
      each, t(`group.${each}`), href("/group", { name, tab: each === "members" ? "" : each }),
    ]);
    choices.push(["balance", t("balance"), href("/balance", { group: name })]);
    return [
      head(data(name), {
        crumb: ["/groups", t("groups")],
        actions: [
          tag(t(group.online ? "online" : "offline"), group.online && !isSick(group) ? "good" : ""),
          doer(page, t("reset"), () => resetOffsets(page, name, topics)),
          doer(page, t("skip"), () => skip(page, name, topics), { danger: true }),
          doer(page, t("mode"), () => changeMode(page, name, group.mode)),
          doer(page, t("change"), () => editGroup(page, name, group.configs[0])),
          doer(page, t("delete"), () => remove(page, name), { danger: true }),
        ],
      }),
      others.length > 0 && warnings(others),
      verdict(group),
      figures([
        [t("members"), number(group.members.length), group.consumeType && named("consumeType", group.consumeType)],
        [t("lag"), number(group.lag), t("lag.unit")],
        [t("rate.out"), rate(group.out), t("perSecond")],
        [t("mode"), group.mode ? named("mode", group.mode) : "–", group.messageModel && named("model", group.messageModel)],
      ]),
      tabs(t("group"), choices, tab),
      { members, queues, config }[tab]?.(page, group),
      tab !== "config" && past(page),
    ];
  },
};

function past(page) {
  const [history] = page.state.charts ?? [];
  return charts(page, [
    { id: "lag", title: t("chart.groupLag"), history, figures: ["lag"] },
    { id: "out", title: t("chart.out"), history, figures: ["out"] },
    { id: "latency", title: t("chart.latency"), history, figures: ["latency"] },
  ]);
}

// ---------------------------------------------------------------- the verdict

// With sub-groups no member is bound to the stored subscription.
const isolated = ({ mode, subGroups }) => mode === "isolate" && subGroups.length > 0;

/** Nothing is green beside what is wrong. */
const isSick = ({ warnings: list }) => list.some(({ severity }) => severity !== "info");

function verdict(group) {
  const { verdict: { agree, findings, text, source }, members: all, subGroups } = group;
  if (findings.length) return findings.map((each) => finding(each, severityOf(group, each)));
  const active = new Set(subGroups.filter((each) => each.state === "active").map((each) => each.clientIds.join())).size;
  if (agree && active > 1) return h("p", { class: "note good", key: "verdict" }, t("verdict.isolated", { count: active }));
  // Of one member nothing can differ: that is no good news.
  if (agree && all.length) return h("p", { class: `note ${all.length > 1 && !isSick(group) ? "good" : ""}`, key: "verdict" }, t(all.length > 1 ? "verdict.agree" : "verdict.alone", { count: all.length }));
  if (source === "none" || !text || !all.length) return null;
  if (language !== "en") return h("p", { class: "note", key: "verdict" }, t("verdict.unknown"));
  return h("p", { class: "note", key: "verdict", lang: "en", translate: "no" }, text);
}

/** As the overview says it: one place decides, which is the diagnosis. */
function severityOf({ warnings: list }, { topic }) {
  const found = list.find((each) => each.kind === "GROUP_DIFFERS" && each.topic === topic);
  return found?.severity ?? "warning";
}

/** One topic that members subscribe differently: each subscription with its members, and the losses by queue. */
function finding({ topic, stored, camps, losses, since, text, broker }, severity) {
  return h(
    "section",
    { class: `note ${KINDS[severity]}`, key: `finding ${topic} ${broker ?? ""}`, "aria-label": t("verdict") },
    h("h2", {}, tag(named("severity", severity), KINDS[severity]), " ", sentence("verdict.differ", { topic: code(topic) })),
    h("p", {}, stored == null ? t("verdict.storedNone") : sentence("verdict.stored", { tags: code(stored) }), " ", since && sentence("verdict.since", { time: moment(since) })),
    h(
      "ul",
      {},
      camps.map(({ expression, clientIds }) =>
        h("li", {}, expression == null ? sentence("verdict.campNone", { clients: clients(clientIds) }) : sentence("verdict.camp", { tags: code(expression), clients: clients(clientIds) })),
      ),
    ),
    losses.length > 0
      ? table({
          caption: t("verdict.losses"), showCaption: true,
          columns: [{ label: t("queues") }, { label: t("readBy") }, { label: t("lost") }, { label: t("lostTo") }],
          rows: losses.map((loss) => [
            data(loss.queueIds.join(", ")), loss.holder ? code(loss.holder) : t("noMember"), h("strong", {}, lost(loss.lost)), clients(loss.lostTo),
          ]),
        })
      : h("p", {}, t("verdict.noLoss")),
    h("p", {}, t("verdict.do")),
    language === "en" && h("details", {}, h("summary", {}, t("verdict.words")), h("p", { translate: "no" }, text)),
  );
}

const clients = (ids) => ids.map((each, index) => [index > 0 && ", ", code(each)]);

/** The guard's words for what is lost: tags, or English around them. */
function lost(text) {
  if (language === "en") return code(text);
  if (text === "everything") return t("lost.everything");
  const but = /^everything but (.*)$/.exec(text);
  return but ? sentence("lost.but", { tags: code(but[1]) }) : code(text);
}

// ---------------------------------------------------------------- members

function members(page, group) {
  if (!group.members.length) {
    return card(null, empty(t("group.offline"), t("groups.first"), { command: example(group) }));
  }
  const stored = new Map(group.stored.map((each) => [each.topic, each]));
  return [
    card(
      t("group.members"),
      h("p", { class: "soft" }, t("members.about")),
      table({
        caption: t("group.members"),
        columns: [{ label: t("member") }, { label: t("subscription.own") }, { label: t("subscription.stored") }, { label: t("queues") }, { label: t("actions"), quiet: true }],
        rows: group.members.map((each) => ({ key: each.clientId, marked: each.differs.length > 0 && !isolated(group), cells: member(page, group, each, stored) })),
      }),
    ),
    card(
      t("stored.title"),
      table({
        caption: t("stored.title"),
        columns: [{ label: t("topic") }, { label: t("expression") }, { label: t("tags") }, { label: t("type") }, { label: t("subVersion") }],
        rows: group.stored.map((each) => [topicLink(each.topic), code(each.expression), tags(each), code(each.expressionType), data(each.version)]),
      }),
    ),
    group.subGroups.length > 0 &&
      card(
        t("subGroups"),
        table({
          caption: t("subGroups"),
          columns: [{ label: t("subGroup") }, { label: t("state") }, { label: t("subscriptions") }, { label: t("members") }],
          rows: group.subGroups.map((each) => [
            code(each.id), named("subGroup", each.state), each.subscriptions.map((one) => asks(one)), clients(each.clientIds),
          ]),
        }),
      ),
  ];
}

const tags = ({ tags: list, expressionType }) =>
  expressionType !== "TAG" ? "–" : list.length ? list.map((each) => [h("span", { class: "tag accent", translate: "no" }, each), " "]) : t("tags.all");

const asks = (each) => h("div", {}, data(each.topic), " ", code(each.expression));

function member(page, group, each, stored) {
  const topics = new Set([...(each.subscriptions ?? []).map(({ topic }) => topic), ...stored.keys()]);
  const own = new Map((each.subscriptions ?? []).map((one) => [one.topic, one]));
  const shown = [...topics].filter((topic) => !topic.startsWith("%RETRY%")).sort();
  const line = (topic, one) =>
    h("div", {}, data(topic), " ", one ? code(one.expression) : h("span", { class: "soft" }, t("subscription.none")), " ");
  const queues = new Map();
  for (const { topic, broker, queueId } of each.queues) {
    const name = `${topic} ${broker}`;
    queues.set(name, [...(queues.get(name) ?? []), queueId]);
  }
  const inspect = () => running(page, group.group, each.clientId);
  return [
    [code(each.clientId), h("div", { class: "soft small", translate: "no" }, `${each.address} · ${each.language} ${each.version}`)],
    each.subscriptions === null ? h("span", { class: "soft" }, t("subscription.unknown")) : shown.map((topic) => line(topic, own.get(topic))),
    shown.map((topic) => [line(topic, stored.get(topic)), !isolated(group) && each.differs.includes(topic) && tag(t("differs.own"), "warn")]),
    each.queues.length
      ? [...queues].filter(([name]) => !name.startsWith("%RETRY%")).map(([name, list]) => h("div", {}, data(name), ": ", data(list.sort((a, b) => a - b).join(", "))))
      : h("span", { class: "soft" }, t(each.pops ? "shared" : "queues.none")),
    h("div", { class: "actions" }, h("button", { type: "button", on: { click: inspect } }, t("running"))),
  ];
}

function example({ group: name }) {
  return [
    "from pocketmq.client import PushConsumer", "",
    `consumer = PushConsumer("${name}", listener=print, name_server="127.0.0.1:9876")`,
    'consumer.subscribe("TopicTest", "*")',
  ].join("\n");
}

/** The running info that a member reports, with its threads. */
async function running(page, group, client) {
  const url = (stack) => path("/api/groups/{}/members/{}", [group, client], { stack });
  const found = await page.act(() => get(url(true)));
  if (!found) return;
  const queues = found.queues.map(({ topic, broker, queueId, fields: it }) => [
    data(`${topic} ${broker} ${queueId}`),
    held(it),
    number(it.commitOffset),
    age(it.lastPullTimestamp),
    age(it.lastConsumeTimestamp),
    isTrue(it.droped) ? tag(t("running.dropped"), "warn") : isTrue(it.locked) && isTrue(found.properties.PROP_CONSUMEORDERLY) ? [t("running.locked"), " ", age(it.lastLockTimestamp)] : t("running.reads"),
  ]);
  const statuses = Object.entries(found.statuses).map(([topic, it]) => [
    data(topic), rate(it.pullTPS), duration(it.pullRT), rate(it.consumeOKTPS), rate(it.consumeFailedTPS), duration(it.consumeRT), number(it.consumeFailedMsgs),
  ]);
  const part = (caption, columns, rows) => [
    h("h3", {}, caption),
    table({ caption, columns: columns.map((label, at) => ({ label, number: at > 0 && typeof rows[0]?.[at] === "string" })), rows }),
  ];
  await show(t("running.title", { client }), [
    // What one looks for first: where its threads and tasks stand.
    found.stack && [h("h3", {}, t("running.stack")), h("pre", { class: "stack", translate: "no", tabindex: 0 }, found.stack)],
    found.subscriptions.map(asks),
    part(t("queues"), [t("queue"), t("running.held"), t("running.committed"), t("running.pulled"), t("running.finished"), t("state")], queues),
    part(t("running.statuses"), [t("topic"), t("running.pulls"), t("running.pullTime"), t("running.done"), t("running.failed"), t("running.doneTime"), t("running.failedHour")], statuses),
    part(t("properties"), [t("name"), t("value")], Object.entries(found.properties).map(([name, value]) => [code(name), property(name, value)])),
  ]);
}

/** What a member has fetched of a queue and not finished: waiting, and in the hands of its listener. */
function held(it) {
  const count = Number(it.cachedMsgCount ?? 0);
  const busy = Number(it.transactionMsgCount ?? 0);
  if (!count && !busy) return t("running.nothing");
  return [
    count > 0 && t("running.messages", { count: number(count), size: mib(it.cachedMsgSizeInMiB), from: number(it.cachedMsgMinOffset), until: number(it.cachedMsgMaxOffset) }),
    busy > 0 && h("div", {}, t("running.busy", { count: number(busy), from: number(it.transactionMsgMinOffset), until: number(it.transactionMsgMaxOffset) })),
  ];
}

// Members report whole MiB.
const mib = (count) => (Number(count ?? 0) ? size(Number(count) * 1024 * 1024) : t("running.little"));

// Some clients send texts.
const isTrue = (value) => String(value) === "true";

const property = (name, value) =>
  name.endsWith("TIMESTAMP") && Number(value) > 0 ? [moment(Number(value)), " ", age(Number(value))] : data(value);

// ---------------------------------------------------------------- queues and offsets

function queues(page, { group: name, queues: list, online }) {
  if (!list.length) return card(null, empty(t("queues.noOffsets"), t("groups.first")));
  const topics = [...new Set(list.map(({ topic }) => topic))];
  const set = () => setOffset(page, name, list);
  return card(
    t("group.queues"),
    h(
      "div",
      { class: "row" },
      doer(page, t("clone"), () => clone(page, name, topics)),
      !online && doer(page, t("setOffset"), set),
    ),
    queueTable(t("group.queues"), list),
  );
}

// ---------------------------------------------------------------- mode, configuration

async function changeMode(page, group, mode) {
  const choices = ["compatible", "strict", "isolate"].map((each) => [each, named("mode", each), t(`mode.${each}.about`)]);
  const title = t("mode.title", { group });
  const found = await form({
    title,
    label: t("next"),
    fields: [{ name: "mode", label: t("mode.which"), type: "radio", choices: [...choices, ["", t("mode.default"), t("mode.default.about")]], value: mode ?? "" }],
    submit: ({ mode: wanted }) => change("PUT", path("/api/groups/{}/mode", [group]), { mode: wanted || null }, { title, label: t("change") }),
  });
  await page.act(() => found, t("mode.done"));
}

function config(page, { configs }) {
  if (!configs.length) return card(null, empty(t("group.noConfig"), t("group.noConfig.do")));
  return configs.map((each) =>
    card(
      data(each.broker),
      facts(
        ["consumeEnable", "consumeBroadcastEnable", "consumeFromMinEnable", "notifyConsumerIdsChangedEnable", "retryMaxTimes", "retryQueues"].map((key) => [
          t(`group.${key}`), typeof each[key] === "boolean" ? t(each[key] ? "yes" : "no") : each[key],
        ]),
      ),
    ),
  );
}

async function remove(page, name) {
  const title = t("group.delete", { name });
  await page.act(async () => {
    const found = await change("DELETE", path("/api/groups/{}", [name]), undefined, { title, label: t("delete") });
    if (found) page.go("/groups");
    return found;
  }, t("group.deleted", { name }));
}
