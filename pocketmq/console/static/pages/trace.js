/* Trace: the sender and the consumers of a message, when and for how long, on one line of time. */

import { get, path } from "../api.js";
import { code, data, h } from "../dom.js";
import { card, empty, facts, head, link, table, tag } from "../table.js";
import { duration, moment, named, t } from "../text.js";

const WIDTH = 1000;
const ROW = 22;

export default {
  title: "trace",
  live: 0,
  async load(page, signal) {
    const [id, key, topic] = ["id", "key", "topic"].map((name) => page.get(name));
    if (!id && !key) return { traces: null };
    return get(path("/api/trace", [], { id, key: id ? "" : key, topic: id ? "" : topic, traceTopic: page.get("traceTopic") }), signal);
  },
  view(page, { traces }) {
    return [
      head(t("trace"), { about: t("trace.about") }),
      card(null, search(page)),
      traces && !traces.length && card(null, empty(t("trace.none"), t("trace.none.do"))),
      traces?.map((each) => trace(each)),
    ];
  },
};

function search(page) {
  const send = (event, form) => {
    event.preventDefault();
    page.set(Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()])));
  };
  const field = (name, label, placeholder) =>
    h("div", { class: "field" }, h("label", { for: name }, label), h("input", { id: name, name, value: page.get(name), placeholder, translate: "no", autocomplete: "off", spellcheck: "false" }));
  return h(
    "form",
    { role: "search", "aria-label": t("trace"), on: { submit: send } },
    h("div", { class: "fields" }, field("id", t("messageId")), field("key", t("trace.orKey")), field("topic", t("trace.topicOfKey")), field("traceTopic", t("trace.topic"), "RMQ_SYS_TRACE_TOPIC")),
    h("div", { class: "actions" }, h("button", { class: "main" }, t("search"))),
  );
}

function trace({ msgId, topic, tags, keys, begin, end, spans }) {
  return card(
    null,
    h("h2", {}, link("/message", { id: msgId, topic }, code(msgId))),
    facts([[t("topic"), data(topic)], [t("tag"), data(tags || "–")], [t("keys"), data(keys || "–")], [t("trace.whole"), duration(end - begin)]]),
    h("h3", {}, t("trace.line")),
    timeline(begin, end, spans),
    table({
      caption: t("trace.spans"),
      columns: [{ label: t("trace.kind") }, { label: t("group") }, { label: t("client") }, { label: t("begin") }, { label: t("cost") }, { label: t("state") }, { label: t("reconsumeTimes") }],
      rows: spans.map((each) => [
        named("span", each.kind), data(each.group), code(each.host), moment(each.begin, { millis: true }), duration(each.costMs),
        tag(named("spanStatus", each.status), { SUCCESS: "good", COMMIT: "good", UNKNOWN: "" }[each.status] ?? "bad"), data(each.retryTimes ?? "–"),
      ]),
    }),
  );
}

function timeline(begin, end, spans) {
  const whole = Math.max(1, end - begin);
  const x = (ms) => ((ms - begin) / whole) * WIDTH;
  return h(
    "svg",
    { class: "timeline", viewBox: `0 0 ${WIDTH} ${spans.length * ROW}`, role: "img", "aria-label": t("trace.says", { count: spans.length, time: duration(whole) }) },
    spans.map((each, index) => {
      const left = Math.min(x(each.begin), WIDTH - 3);
      const width = Math.max(3, Math.min(WIDTH - left, x(each.end ?? each.begin + (each.costMs ?? 0)) - x(each.begin)));
      return h("rect", { class: each.kind === "PUB" ? "s1" : "s2", x: left, y: index * ROW + 3, width, height: ROW - 6, rx: 2 });
    }),
  );
}
