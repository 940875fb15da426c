/* One message: its body in three forms, its properties, and what became of it in each group. */

import { change, get, path } from "../api.js";
import { form } from "../dialog.js";
import { code, data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, doer, empty, facts, groupLink, head, href, link, table, tag, topicLink, KINDS } from "../table.js";
import { moment, named, number, size, t } from "../text.js";

export default {
  title: "message",
  live: 0,
  async load(page, signal) {
    const topic = page.get("topic");
    const id = page.get("at") || page.get("id");
    const message = await get(path("/api/messages/{}", [id], { topic }), signal);
    // The message is drawn at once; what became of it is asked of every group and may take longer.
    get(path("/api/messages/{}/track", [id], { topic: message.topic }), signal).then(
      (track) => {
        page.state.track = track;
        page.redraw();
      },
      (error) => {
        if (error.name === "AbortError") return;
        page.state.track = { tracks: [], error };
        page.redraw();
      },
    );
    return { id, message };
  },
  view(page, { id, message }) {
    const again = href("/trace", { id: message.msgId });
    return [
      head(code(message.msgId), {
        crumb: [href("/messages", { topic: message.topic }), t("messages")],
        actions: [
          h("a", { class: "button", href: again }, t("trace")),
          h("a", { class: "button", href: path("/api/messages/{}/body", [id], { topic: message.topic }), download: `${message.msgId}.bin` }, t("body.download")),
          doer(page, t("consume"), () => consume(page, id, message)),
        ],
      }),
      track(page),
      h(
        "div",
        { class: "grid" },
        card(t("message.about"), about(message)),
        card(t("properties"), properties(message.properties)),
      ),
      body(page, message.body),
    ];
  },
};

function track(page) {
  const found = page.state.track;
  if (!found) return card(t("track"), h("p", { class: "loading", role: "status" }, t("loading")));
  if (found.error) return card(t("track"), h("p", {}, data(found.error.message)));
  return card(
    t("track"),
    h("p", { class: "soft" }, t("track.about")),
    found.tracks.length
      ? table({
          caption: t("track"),
          columns: [{ label: t("group") }, { label: t("track.type") }, { label: t("track.verdict") }, { label: t("track.why") }],
          rows: found.tracks.map((each) => ({ key: each.group, cells: row(each) })),
        })
      : found.waits
        ? waits(found.waits)
        : empty(t("track.none"), t("groups.first")),
  );
}

/** Why no group has anything to do with this record: the broker keeps it for a time or a commit. */
function waits({ kind, topic, due }) {
  let words;
  if (kind === "TRANSACTION") words = t("track.waits.half");
  else if (due === null) words = t("track.waits.unknown");
  else if (due <= Date.now()) words = t("track.waits.over");
  else words = t("track.waits.due", { when: moment(due).textContent });
  return h("div", { class: "note" }, words, " ", topicLink(topic));
}

function row({ group, trackType, verdict, severity, text, deliveries }) {
  return [
    groupLink(group),
    [code(trackType), h("div", { class: "soft small" }, named("trackType", trackType))],
    verdict === null ? "–" : [tag(named("verdictName", verdict), KINDS[severity]), h("div", { class: "soft small" }, code(verdict))],
    [
      verdict && h("p", {}, named("verdictText", verdict)),
      text && spoken(text, { tag: "p", class: "small" }),
      deliveries?.length > 0 &&
        h(
          "details",
          { class: "small" },
          h("summary", {}, t("track.deliveries", { count: number(deliveries.length) })),
          h(
            "ul",
            {},
            deliveries.map((each) => h("li", {}, moment(each.lastTimestamp), " ", code(each.clientId), " ", t("track.by"), " ", code(each.filteredBy), " ", t("track.asks"), " ", code(each.clientSubscription || "–"))),
          ),
        ),
    ],
  ];
}

function about(message) {
  return facts([
    [t("topic"), topicLink(message.topic)],
    [t("tag"), data(message.tags ?? "–")],
    [t("keys"), data(message.keys ?? "–")],
    [t("queue"), link("/messages", { topic: message.topic, by: "queue", broker: message.broker, queue: message.queueId, offset: message.queueOffset }, `${message.broker} ${message.queueId} / ${message.queueOffset}`)],
    [t("stored"), moment(message.storeTimestamp, { millis: true })],
    [t("born"), moment(message.bornTimestamp, { millis: true })],
    [t("bornHost"), code(message.bornHost)],
    [t("storeHost"), code(message.storeHost)],
    [t("reconsumeTimes"), number(message.reconsumeTimes)],
    [t("storeSize"), size(message.storeSize)],
    [t("offsetMsgId"), code(message.offsetMsgId)],
  ]);
}

function properties(all) {
  const rows = Object.entries(all).sort();
  if (!rows.length) return h("p", { class: "soft" }, t("properties.none"));
  return facts(rows.map(([name, value]) => [code(name), data(value)]));
}

// ---------------------------------------------------------------- the body

function body(page, found) {
  const usual = found.json ? "json" : found.text === null ? "hex" : "text";
  const form = page.state.form ?? usual;
  const choose = (each) => () => {
    page.state.form = each;
    page.redraw();
  };
  const bytes = Uint8Array.from(atob(found.base64), (each) => each.charCodeAt(0));
  const shown = { text: () => found.text ?? t("body.noText"), json: () => indented(found.text ?? ""), hex: () => hexDump(bytes) }[form]();
  return card(
    null,
    h(
      "div",
      { class: "row" },
      h("h2", {}, t("message.body")),
      h("span", { class: "soft" }, size(found.size)),
      found.truncated && tag(t("body.cut", { size: size(bytes.length) }), "warn"),
      h(
        "div",
        { class: "actions end", role: "group", "aria-label": t("body.form") },
        ["text", "json", "hex"].map((each) => h("button", { type: "button", "aria-pressed": String(each === form), on: { click: choose(each) } }, t(`body.${each}`))),
      ),
    ),
    found.size === 0 ? h("p", { class: "soft" }, t("body.empty")) : h("pre", { id: "body", translate: "no", tabindex: 0, "aria-label": t("message.body") }, shown),
  );
}

/** JSON with line breaks, without reading it: numbers keep all their digits. */
export function indented(text) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+|"/g) ?? [];
  let shown = "";
  tokens.forEach((token, at) => {
    if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      shown += (/[{[]/.test(tokens[at - 1]) && tokens[at - 1].length === 1 ? "" : line()) + token;
    } else if (token === "{" || token === "[") {
      depth += 1;
      shown += token + (/^[}\]]$/.test(tokens[at + 1] ?? "") ? "" : line());
    } else if (token === ",") shown += token + line();
    else shown += token === ":" ? ": " : token;
  });
  return shown;
}

/** 16 bytes a line: place, hex, ASCII. */
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

// ---------------------------------------------------------------- handing it to a member

async function consume(page, id, message) {
  const groups = (page.state.track?.tracks ?? []).map(({ group }) => group);
  const choice = groups.length ? { type: "select", choices: groups.map((each) => [each, each]) } : {};
  const first = await form({
    title: t("consume.title"),
    intro: t("consume.about"),
    label: t("next"),
    fields: [{ name: "group", label: t("group"), required: true, ...choice }],
    submit: async ({ group }) => {
      const { members } = await get(path("/api/groups/{}", [group]));
      if (!members.length) throw Object.assign(new Error(t("consume.noMember", { group })), { status: 0 });
      return { group, members };
    },
  });
  if (!first) return;
  const { group, members } = first;
  const found = await form({
    title: t("consume.title"),
    label: t("next"),
    fields: [{ name: "clientId", label: t("member"), type: "select", choices: members.map((each) => [each.clientId, each.clientId]) }],
    submit: ({ clientId }) => change("POST", path("/api/messages/{}/consume", [id]), { topic: message.topic, group, clientId }, { title: t("consume.title"), label: t("consume"), danger: false }),
  });
  await page.act(() => found, (done) => t("consume.done", { result: done.result, ms: done.spentMs }));
}
