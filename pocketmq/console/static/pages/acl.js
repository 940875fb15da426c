/* Access: the accounts of each broker, and what one of them may do with every topic and group. */

import { get, path } from "../api.js";
import { code, data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, empty, filter, groupLink, head, link, pager, table, tag, topicLink } from "../table.js";
import { named, t } from "../text.js";

export default {
  title: "acl",
  live: 0,
  load(page, signal) {
    const [broker, account] = [page.get("broker"), page.get("account")];
    if (!account) return get("/api/acl", signal);
    return get(path("/api/acl/{}/{}", [broker, account], { q: page.get("q"), page: page.get("page"), size: 50 }), signal);
  },
  view: (page, found) => (page.get("account") ? may(page, found) : accounts(found)),
};

function accounts({ brokers }) {
  return [head(t("acl"), { about: t("acl.about") }), brokers.map((each) => card(data(each.broker), broker(each)))];
}

function broker({ broker: name, enabled, error, whiteAddresses, accounts: list, users }) {
  if (error) return spoken(error, { tag: "p", class: "note warn" });
  if (users) return userTable(name, users);
  if (!enabled) return empty(t("acl.off"), t("acl.off.do"), { command: "aclEnable=true" });
  return [
    whiteAddresses.length > 0 && h("p", {}, t("acl.white"), " ", whiteAddresses.map((each) => [code(each), " "])),
    list.length === 0
      ? empty(t("acl.none"), t("acl.none.do"))
      : table({
          caption: t("acl.accounts"),
          columns: [
            { label: t("acl.account") }, { label: t("role") }, { label: t("acl.addresses") },
            { label: t("topics") }, { label: t("groups") },
          ],
          rows: list.map((each) => ({
            key: each.accessKey,
            cells: [
              link("/acl", { broker: name, account: each.accessKey }, each.accessKey),
              each.admin ? tag(t("acl.admin"), "warn") : t("acl.client"),
              each.whiteAddress ? code(each.whiteAddress) : t("acl.signed"),
              listed(each.mayAll ? "PUB|SUB" : each.defaultTopicPerm, each.topicPerms),
              listed(each.mayAll ? "SUB" : each.defaultGroupPerm, each.groupPerms),
            ],
          })),
        }),
  ];
}

const userTable = (name, users) =>
  table({
    caption: t("acl.users"),
    columns: [{ label: t("user") }, { label: t("role") }, { label: t("state") }, { label: t("acl.lines") }],
    rows: users.map(({ user, admin, enabled, lines }) => ({
      key: user,
      cells: [
        link("/acl", { broker: name, account: user }, user),
        admin ? tag(t("acl.super"), "warn") : t("acl.normal"),
        enabled ? t("acl.enabled") : tag(t("acl.disabled"), "bad"),
        admin ? h("span", { class: "soft" }, t("acl.everything")) : lines.length ? lines.map(policy) : h("span", { class: "soft" }, t("acl.noLine")),
      ],
    })),
  });

/** A line as brokers write it: Allow Pub,Sub Topic:orders. */
const policy = ({ policyType, decision, actions, resource, addresses }) =>
  h(
    "div",
    {},
    tag(named("acl", decision), decision === "Deny" ? "bad" : "good"), " ",
    code(`${actions.join(",")} ${resource}`),
    addresses.length > 0 && [" ", t("from"), " ", code(addresses.join(", "))],
    policyType === "Default" && [" ", h("span", { class: "soft" }, t("acl.default"))],
  );

const perm = (word) => named("aclPerm", word.split("|").sort().join(""));

/** What is listed by name, and what holds for all others. */
const listed = (usual, perms) => [
  perms.map((each) => h("div", {}, data(each.slice(0, each.lastIndexOf("="))), ": ", perm(each.slice(each.lastIndexOf("=") + 1)))),
  h("div", { class: "soft" }, t(perms.length ? "acl.others" : "acl.all"), ": ", perm(usual)),
];

function may(page, list) {
  const answer = (value) => (value === null ? "–" : tag(t(value ? "yes" : "no"), value ? "good" : ""));
  return [
    head([t("acl.of"), " ", data(page.get("account"))], {
      crumb: ["/acl", t("acl")],
      about: t(list.admin ? "acl.may.admin" : "acl.may"),
    }),
    card(
      null,
      filter(page, t("acl.filter")),
      list.items.length === 0
        ? empty(t("filter.none"), t("filter.none.do"))
        : table({
            caption: t("acl.rights"),
            columns: [{ label: t("name") }, { label: t("type") }, { label: t("acl.publish") }, { label: t("acl.subscribe") }],
            rows: list.items.map((each) => ({
              key: `${each.kind} ${each.name}`,
              cells: [
                each.publish === null ? groupLink(each.name) : topicLink(each.name),
                each.publish === null ? t("group") : t("topic"), answer(each.publish), answer(each.subscribe),
              ],
            })),
          }),
      pager(page, list),
    ),
  ];
}
