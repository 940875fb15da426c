/* Dead letters: what groups gave up, to look at, send again or take away as a file. */

import { change, get, path } from "../api.js";
import { say } from "../dialog.js";
import { data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, cursorPager, doer, empty, groupLink, head, href, link, pager, table, tag, topicLink } from "../table.js";
import { age, fromInput, number, t, toInput } from "../text.js";
import { leftOut, messageTable } from "./messages.js";

export default {
  title: "deadLetters",
  live: 0,
  load(page, signal) {
    const group = page.get("group");
    if (!group) return get(path("/api/dlq", [], { page: page.get("page"), size: 20 }), signal);
    if (page.state.reasonsOf !== group) reasons(page, group, signal);
    const query = { id: page.get("id"), begin: page.get("begin"), end: page.get("end"), cursor: page.state.cursor, size: 20 };
    return get(path("/api/dlq/{}", [group], query), signal);
  },
  view: (page, list) => (page.get("group") ? letters(page, list) : groups(page, list)),
};

function groups(page, list) {
  return [
    head(t("deadLetters"), { about: t("deadLetters.about") }),
    card(
      null,
      list.items.length
        ? table({
            caption: t("deadLetters"),
            columns: [{ label: t("group") }, { label: t("messages"), number: true }, { label: t("topic") }],
            rows: list.items.map((each) => ({
              key: each.group,
              cells: [link("/dead-letters", { group: each.group }, each.group), number(each.messages), data(each.topic)],
            })),
          })
        : empty(t("deadLetters.none"), t("deadLetters.none.text")),
      pager(page, list),
    ),
  ];
}

function letters(page, list) {
  const group = page.get("group");
  const chosen = (page.state.chosen ??= new Set());
  const pick = (id) => (event) => {
    if (event.target.checked) chosen.add(id);
    else chosen.delete(id);
    page.redraw();
  };
  const all = (event) => {
    for (const { offsetMsgId } of list.items) {
      if (event.target.checked) chosen.add(offsetMsgId);
      else chosen.delete(offsetMsgId);
    }
    page.redraw();
  };
  const range = (event, form) => {
    event.preventDefault();
    const at = (name) => String(fromInput(form.elements[name].value) ?? "");
    page.set({ begin: at("begin"), end: at("end") });
  };
  const byId = (event, form) => {
    event.preventDefault();
    page.set({ id: form.elements.id.value.trim() });
  };
  const times = { begin: page.get("begin"), end: page.get("end") };
  const time = (name, label) =>
    h("label", {}, label, h("input", { type: "datetime-local", step: 1, name, value: times[name] && toInput(Number(times[name])) }));
  const whole = list.items.length > 0 && list.items.every(({ offsetMsgId }) => chosen.has(offsetMsgId));
  return [
    head([t("deadLetters.of"), " ", data(group)], {
      crumb: ["/dead-letters", t("deadLetters")],
      actions: [
        groupLink(group),
        h("a", { class: "button", href: path("/api/dlq/{}/export", [group], times), download: `${group}.jsonl` }, t("export")),
        h("button", { type: "button", class: "main", disabled: page.session.readOnly || !chosen.size, on: { click: () => resend(page, group, [...chosen]) } }, t("resend.chosen", { count: chosen.size })),
      ],
    }),
    leftOut(list),
    byReason(page, group),
    card(
      null,
      h("form", { class: "row", on: { submit: range } }, time("begin", t("from")), time("end", t("until")), h("button", {}, t("search"))),
      h(
        "form",
        { class: "row", role: "search", "aria-label": t("deadLetters.byId"), on: { submit: byId } },
        h("label", {}, t("deadLetters.byId"), h("input", { type: "search", name: "id", value: page.get("id"), translate: "no", autocomplete: "off", spellcheck: "false" })),
        h("button", {}, t("search")),
      ),
      list.items.length
        ? [
            h("p", {}, h("label", {}, h("input", { type: "checkbox", checked: whole, on: { change: all } }), t("resend.all"))),
            messageTable(t("deadLetters"), list.items, (each) => [
              [t("origin"), each.origin?.topic ? link("/message", { id: each.origin.msgId, topic: each.origin.topic }, each.origin.topic) : "–"],
              [t("deadLetters.reason"), reason(each)],
              [t("deadLetters.sentAgain"), each.sentAgain.length ? each.sentAgain.map((at) => h("div", {}, tag(t("deadLetters.sent"), "good"), " ", age(at))) : "–"],
              [
                t("resend"),
                h(
                  "div",
                  { class: "actions" },
                  h("label", {}, h("input", { type: "checkbox", checked: chosen.has(each.offsetMsgId), on: { change: pick(each.offsetMsgId) } }), h("span", { class: "hidden-text" }, t("resend.choose", { id: each.msgId }))),
                  doer(page, t("resend"), () => resend(page, group, [each.offsetMsgId])),
                ),
              ],
            ], { brief: true }),
          ]
        : empty(t(page.get("id") ? "filter.none" : "deadLetters.none"), t(page.get("id") ? "messages.none.do" : "deadLetters.none.text")),
      cursorPager(page, list),
    ),
  ];
}

/** The reasons are asked for beside the letters: a question each. */
function reasons(page, group, signal) {
  page.state.reasonsOf = group;
  get(path("/api/dlq/{}/reasons", [group]), signal).then(
    (found) => {
      page.state.reasons = found;
      page.redraw();
    },
    () => (page.state.reasonsOf = null),
  );
}

/** Letters of one reason, origin and tag in a row; a button chooses them for "send again". */
function byReason(page, group) {
  const found = page.state.reasons;
  if (!found?.items.length) return null;
  const choose = (ids) => () => {
    for (const id of ids) page.state.chosen.add(id);
    page.redraw();
  };
  return card(
    t("reasons"),
    found.looked < found.total && h("p", { class: "soft" }, t("reasons.newest", { count: number(found.looked), total: number(found.total) })),
    table({
      caption: t("reasons"),
      columns: [{ label: t("deadLetters.reason") }, { label: t("origin") }, { label: t("tag") }, { label: t("messages"), number: true }, { label: t("reasons.last") }, { label: t("actions"), quiet: true }],
      rows: found.items.map((each) => ({
        key: `${each.reason} ${each.topic} ${each.tag}`,
        cells: [
          each.reason ? spoken(each.reason) : t("reasons.unknown"),
          each.topic ? topicLink(each.topic) : "–", data(each.tag ?? "–"), number(each.count), age(each.newest),
          h("div", { class: "actions" }, doer(page, t("reasons.choose"), choose(each.ids), { quiet: true })),
        ],
      })),
    }),
  );
}

/** How often it failed, and why it is here: the broker's words, or else derived from the counts. */
function reason({ reconsumeTimes, retryMaxTimes, reason: told }) {
  // A consumer may have a limit of its own, lower than the group's: the broker's words say what it was.
  const times = t(told ? "deadLetters.failed" : "deadLetters.times", { times: number(reconsumeTimes), max: number(retryMaxTimes) });
  const derived = t(reconsumeTimes > retryMaxTimes ? "deadLetters.limit" : "deadLetters.early");
  return [h("div", { class: "told" }, times), told ? spoken(told, { tag: "div", class: "soft small" }) : h("div", { class: "soft small" }, derived)];
}

async function resend(page, group, ids) {
  const url = path("/api/dlq/{}/resend", [group]);
  const title = t("resend.title", { count: ids.length, group });
  const found = await page.act(() => change("POST", url, { ids }, { title, label: t("resend"), danger: false }));
  if (!found) return;
  for (const id of ids) page.state.chosen.delete(id);
  page.redraw();
  const wrong = found.results.find(({ error }) => error);
  if (found.failed) say(t("resend.failed", { sent: found.sent, failed: found.failed, error: wrong?.error ?? "" }), "bad");
  else say(h("span", {}, t("resend.done", { sent: found.sent }), " ", h("a", { href: href("/group", { name: group, tab: "queues" }) }, t("group.queues"))));
}
