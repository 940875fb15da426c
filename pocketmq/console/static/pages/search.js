/* What the one search box finds: topics, groups, members, and messages by id or key. */

import { get, path } from "../api.js";
import { code, data, h } from "../dom.js";
import { card, empty, groupLink, head, href, table, topicLink } from "../table.js";
import { sentence, t } from "../text.js";
import { messageTable } from "./messages.js";

export default {
  title: "search",
  live: 0,
  load: (page, signal) => (page.get("q") ? get(path("/api/search", [], { q: page.get("q") }), signal) : null),
  view(page, found) {
    const about = page.get("q") ? sentence("search.for", { text: code(page.get("q")) }) : t("search.about");
    const parts = found ? [...named("topics", found.topics, topicLink), ...named("groups", found.groups, groupLink), members(found), messages(found)] : [];
    const shown = parts.filter(Boolean);
    return [
      head(t("search"), { about }),
      found && !found.whole && h("p", { class: "note warn" }, t("search.partly")),
      shown.length > 0 ? shown : card(null, empty(t(found ? "search.none" : "search"), t("search.about"), { action: content(page) })),
      shown.length > 0 && h("p", {}, content(page)),
    ];
  },
};

const content = (page) =>
  h("a", { class: "button", href: href("/messages", { by: "content", text: page.get("q") }) }, t("search.content"));

function named(kind, list, link) {
  if (!list.length) return [];
  return [card(t(kind), h("ul", {}, list.map((each) => h("li", { key: each }, link(each)))))];
}

function members({ clients }) {
  if (!clients.length) return null;
  const rows = clients.map(({ clientId, group }) => [code(clientId), groupLink(group)]);
  return card(t("members"), table({ caption: t("members"), columns: [{ label: t("member") }, { label: t("group") }], rows }));
}

function messages({ messages: list }) {
  return list.length > 0 && card(t("messages"), messageTable(t("messages"), list, (each) => [[t("topic"), data(each.topic)]]));
}
