/* The balance of a group: what became of each of its messages, what was lost and why, and a way to give it back. */

import { change, get, path } from "../api.js";
import { say } from "../dialog.js";
import { code, data, h } from "../dom.js";
import { KINDS, card, doer, empty, head, href, link, pager, table, tag, topicLink } from "../table.js";
import { fromInput, moment, named, number, t, toInput } from "../text.js";

const GIVEN_BACK = ["lost", "skipped"];
const WIDTH = 1000;
// What is there is seen, however little it is.
const SEEN = 6;

export default {
  title: "balance",
  live: 10_000,
  async load(page, signal) {
    const [group, state] = [page.get("group"), page.get("state")];
    const part = { topic: page.get("topic"), begin: page.get("begin") };
    const [sums, list] = await Promise.all([
      get(path("/api/groups/{}/balance", [group], part), signal),
      state && get(path("/api/groups/{}/balance/{}", [group, state], { ...part, page: page.get("page"), size: 20 }), signal),
    ]);
    return { sums, list };
  },
  view(page, { sums, list }) {
    const group = page.get("group");
    return [
      head([t("balance.of"), " ", data(group)], {
        about: t("balance.about"),
        crumb: [href("/group", { name: group }), group],
        actions: GIVEN_BACK.filter((each) => sums.total[each] > 0).map((each) => doer(page, t(`balance.give.${each}`), () => redeliver(page, each))),
      }),
      sums.total.difference !== 0 && h("p", { class: "note bad", role: "alert" }, t("balance.difference", { count: number(sums.total.difference) })),
      card(t("balance.sum", { count: number(sums.total.stored) }), range(page), sums.total.stored ? [bar(sums), states(page, sums)] : empty(t("balance.none"), t("balance.none.do"))),
      list && card(t("balance.list", { state: named("balance", list.items[0]?.state ?? page.get("state")) }), ranges(page, list)),
      card(t("balance.losses"), losses(sums)),
      sums.topics.length > 1 && card(t("topics"), topics(page, sums)),
    ];
  },
};

const kind = (severity) => KINDS[severity] || "plain";

function range(page) {
  const send = (event, form) => {
    event.preventDefault();
    page.set({ begin: String(fromInput(form.elements.begin.value) ?? ""), page: null });
  };
  const begin = page.get("begin");
  return h(
    "form",
    { class: "row", on: { submit: send } },
    h("label", {}, t("balance.since"), h("input", { type: "datetime-local", step: 1, name: "begin", value: begin && toInput(Number(begin)) })),
    h("button", {}, t("show")),
    page.get("topic") && h("button", { type: "button", on: { click: () => page.set({ topic: null, page: null }) } }, t("balance.allTopics")),
  );
}

/** One bar for the sum, a piece a state. */
function bar({ states: list, total }) {
  const there = list.filter(({ count }) => count > 0);
  const widths = there.map(({ count }) => Math.max(SEEN, (count / total.stored) * WIDTH));
  const scale = WIDTH / widths.reduce((sum, each) => sum + each, 0);
  let x = 0;
  const pieces = there.map(({ state, severity }, index) => {
    const width = widths[index] * scale;
    x += width;
    return h("rect", { class: `${kind(severity)} ${state}`, x: x - width, y: 0, width, height: 24 });
  });
  const label = there.map(({ state, count }) => `${named("balance", state)} ${number(count)}`).join(", ");
  return h("svg", { class: "sum", viewBox: `0 0 ${WIDTH} 24`, preserveAspectRatio: "none", role: "img", "aria-label": label }, pieces);
}

function states(page, { states: list, total }) {
  const there = list.filter(({ count, state }) => count > 0 || state === "consumed" || state === "lost");
  const show = (state) => href("/balance", { group: page.get("group"), topic: page.get("topic"), begin: page.get("begin"), state });
  return table({
    caption: t("balance.states"),
    columns: [{ label: t("state") }, { label: t("messages"), number: true }, { label: t("balance.share"), number: true }, { label: t("balance.says") }],
    rows: there.map(({ state, severity, count }) => ({
      key: state,
      marked: state === page.get("state"),
      cells: [
        tag(named("balance", state), count ? KINDS[severity] : ""),
        count ? h("a", { href: show(state) }, number(count)) : number(count),
        `${number((count / total.stored) * 100)} %`,
        t(`balance.${state}.says`),
      ],
    })),
  });
}

/** The messages of one state by ranges; each leads to the messages, and these to their verdicts. */
function ranges(page, list) {
  if (!list.items.length) return empty(t("balance.unlisted"), t("balance.unlisted.do"));
  return [
    table({
      caption: t("messages"),
      columns: [
        { label: t("topic") }, { label: t("queue") }, { label: t("balance.offsets"), number: true }, { label: t("messages"), number: true },
        { label: t("balance.cause") }, { label: t("member") }, { label: t("time") },
      ],
      rows: list.items.map((each) => ({
        key: `${each.topic} ${each.broker} ${each.queueId} ${each.first}`,
        cells: [
          link("/messages", { by: "queue", topic: each.topic, broker: each.broker, queue: each.queueId, offset: each.first }, each.topic),
          data(`${each.broker} ${each.queueId}`),
          each.first === each.last ? number(each.first) : `${number(each.first)} – ${number(each.last)}`,
          number(each.last - each.first + 1),
          cause(each.cause), by(each), moment(each.time),
        ],
      })),
    }),
    pager(page, list),
  ];
}

/** Losses by hour: what the member asked for then, and by what the broker filtered. */
function losses({ losses: list, lossesLeft }) {
  if (!list.length) return h("p", { class: "soft" }, t("balance.noLoss"));
  return [
    table({
      caption: t("balance.losses"),
      columns: [
        { label: t("balance.last") }, { label: t("balance.lost"), number: true }, { label: t("topic") }, { label: t("balance.cause") },
        { label: t("member") }, { label: t("balance.asked") }, { label: t("balance.filter") },
      ],
      rows: list.map((each) => ({
        key: Object.values(each).join(" "),
        cells: [
          moment(each.last), number(each.count), topicLink(each.topic), cause(each.cause), by(each),
          each.subscription ? code(each.subscription) : "–", each.filter ? code(each.filter) : "–",
        ],
      })),
    }),
    lossesLeft > 0 && h("p", { class: "soft" }, t("balance.more", { count: number(lossesLeft) })),
  ];
}

const CAUSES = {
  "filtered for another member": "filtered", "discarded by the member": "discarded",
  "no member reads the queue": "unread", "the topic has fewer queues now": "gone",
};

/** The broker's words for a cause, in the language of the page. */
const cause = (words) => (words in CAUSES ? t(`cause.${CAUSES[words]}`) : words ? data(words) : "–");
const by = ({ member }) => (member ? code(member) : "–");

function topics(page, { topics: list }) {
  return table({
    caption: t("topics"),
    columns: [{ label: t("topic") }, { label: t("balance.stored"), number: true }, ...["consumed", "waiting", "lost"].map((state) => ({ label: named("balance", state), number: true }))],
    rows: list.map((each) => ({
      key: each.topic,
      cells: [
        link("/balance", { group: page.get("group"), begin: page.get("begin"), topic: each.topic }, each.topic),
        number(each.stored), number(each.consumed), number(each.waiting), number(each.lost),
      ],
    })),
  });
}

/** The server counts first what it would give: these are the words of the question. */
async function redeliver(page, state) {
  const url = path("/api/groups/{}/redeliver", [page.get("group")]);
  const body = { state, begin: Number(page.get("begin")) || 0, ...(page.get("topic") && { topic: page.get("topic") }) };
  const label = t(`balance.give.${state}`);
  const found = await page.act(() => change("POST", url, body, { title: label, label: t("balance.give"), danger: false }));
  if (found) say(t(found.left ? "balance.someGiven" : "balance.given", { given: number(found.given), left: number(found.left) }));
}
