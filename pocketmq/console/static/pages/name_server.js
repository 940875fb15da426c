/* Name servers: are they there, what are their settings, and their key-value table. */

import { change, get, path } from "../api.js";
import { form } from "../dialog.js";
import { code, data, h } from "../dom.js";
import { card, doer, empty, head, table, tag } from "../table.js";
import { t } from "../text.js";

const USUAL = "ORDER_TOPIC_CONFIG";

export default {
  title: "nameServer",
  live: 0,
  async load(page, signal) {
    const namespace = page.get("namespace") || USUAL;
    const [servers, table_] = await Promise.all([
      get("/api/nameservers", signal),
      get(path("/api/kv", [], { namespace }), signal),
    ]);
    return { servers: servers.items, kv: table_ };
  },
  view(page, { servers, kv }) {
    return [head(t("nameServer"), { about: t("nameServer.about") }), keyValues(page, kv), servers.map((each) => server(each))];
  },
};

function server({ address, reachable, error, settings }) {
  return card(
    [data(address), " ", tag(t(reachable ? "reachable" : "unreachable"), reachable ? "good" : "bad")],
    error && h("p", {}, data(error)),
    settings &&
      h(
        "details",
        {},
        h("summary", {}, t("settings")),
        table({
          caption: t("settings"),
          columns: [{ label: t("name") }, { label: t("value") }],
          rows: Object.entries(settings).map(([name, value]) => [code(name), data(value)]),
        }),
      ),
  );
}

function keyValues(page, { namespace, known, items }) {
  const names = [...new Set([...known, namespace])].sort();
  const chosen = (event) => page.set({ namespace: event.target.value });
  return card(
    t("kv"),
    h(
      "div",
      { class: "row" },
      h("label", {}, t("kv.namespace"), h("select", { on: { change: chosen }, translate: "no" }, names.map((each) => h("option", { value: each, selected: each === namespace }, each)))),
      h("span", { class: "end" }, doer(page, t("kv.add"), () => edit(page, namespace), { main: true })),
    ),
    items.length
      ? table({
          caption: t("kv"),
          columns: [{ label: t("key") }, { label: t("value") }, { label: t("actions"), quiet: true }],
          rows: items.map(({ key, value }) => ({
            key,
            cells: [
              code(key), code(value),
              h("div", { class: "actions" }, doer(page, t("change"), () => edit(page, namespace, key, value)), doer(page, t("delete"), () => remove(page, namespace, key), { danger: true })),
            ],
          })),
        })
      : empty(t("kv.none"), t("kv.none.text")),
  );
}

async function edit(page, namespace, key, value) {
  const found = await form({
    title: key ? t("kv.change", { key }) : t("kv.add"),
    label: key ? t("next") : t("create"),
    fields: [
      { name: "namespace", label: t("kv.namespace"), value: namespace, required: true },
      ...(key ? [] : [{ name: "key", label: t("key"), required: true }]),
      { name: "value", label: t("value"), value, required: true },
    ],
    submit: (values) => change("PUT", "/api/kv", { key, ...values }, { title: t("kv.change", { key: key ?? values.key }), danger: false }),
  });
  await page.act(() => found, t("kv.saved"));
}

async function remove(page, namespace, key) {
  const url = path("/api/kv", [], { namespace, key });
  await page.act(() => change("DELETE", url, undefined, { title: t("kv.delete", { key }), label: t("delete") }), t("kv.deleted", { key }));
}
