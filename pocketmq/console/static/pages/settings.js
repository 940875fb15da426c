/* Settings of a broker: all are shown, those on the broker's list can be changed while it runs. */

import { change, get, path } from "../api.js";
import { form } from "../dialog.js";
import { code, data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, doer, empty, filter, head, table, tag } from "../table.js";
import { language, sentence, t } from "../text.js";

export default {
  title: "settings",
  live: 0,
  async load(page, signal) {
    const { clusters } = await get("/api/cluster", signal);
    const masters = clusters.flatMap(({ brokers }) => brokers).filter(({ role }) => role === "MASTER");
    const name = page.get("broker") || masters[0]?.broker;
    const found = name ? await get(path("/api/brokers/{}", [name], { language }), signal) : null;
    return { masters, name, settings: found?.settings ?? [] };
  },
  view(page, { masters, name, settings }) {
    const chosen = (event) => page.set({ broker: event.target.value });
    return [
      head(t("settings"), { about: t("settings.about") }),
      card(
        null,
        name ? null : empty(t("brokers.none"), t("brokers.none.do")),
        name &&
          h(
            "div",
            { class: "row" },
            h(
              "label",
              {},
              t("broker"),
              h("select", { on: { change: chosen }, translate: "no" }, masters.map((each) => h("option", { value: each.broker, selected: each.broker === name }, each.broker))),
            ),
          ),
        name && settingsTable(page, name, settings),
      ),
    ];
  },
};

export function settingsTable(page, broker, settings) {
  const wanted = page.get("q").toLowerCase();
  const only = page.get("only") === "yes";
  const shown = settings.filter(
    (each) =>
      (!only || each.changeable) &&
      (!wanted || each.name.toLowerCase().includes(wanted) || (each.help ?? "").toLowerCase().includes(wanted)),
  );
  const check = (event) => page.set({ only: event.target.checked ? "yes" : null });
  return [
    h(
      "div",
      { class: "row" },
      filter(page, t("settings.filter")),
      h("label", {}, h("input", { type: "checkbox", checked: only, on: { change: check } }), t("settings.only")),
    ),
    shown.length === 0
      ? empty(t("filter.none"), t("filter.none.do"))
      : table({
          caption: t("settings"),
          columns: [{ label: t("name") }, { label: t("value") }, { label: t("meaning") }, { label: t("actions"), quiet: true }],
          rows: shown.map((each) => ({ key: each.name, cells: setting(page, broker, each) })),
        }),
  ];
}

function setting(page, broker, each) {
  const differs = each.default !== null && each.default !== undefined && String(each.default) !== String(each.value);
  const edit = async () => {
    const found = await form({
      title: t("settings.change", { name: each.name }),
      intro: each.help && meaning(each),
      label: t("next"),
      fields: [
        {
          name: "value", label: each.unit ? sentence("settings.valueIn", { unit: spoken(each.unit) }) : t("value"), value: each.value,
          type: each.choices ? "select" : "text", choices: each.choices?.map((value) => [value, value]), help: bounds(each),
        },
      ],
      submit: ({ value }) =>
        change("PUT", path("/api/brokers/{}/settings", [broker]), { settings: { [each.name]: value } }, { title: t("settings.change", { name: each.name }) }),
    });
    await page.act(() => found, t("settings.changed", { name: each.name }));
  };
  return [
    code(each.name),
    [code(each.value), differs && [" ", tag(t("settings.own"), "accent")]],
    [each.help && meaning(each), bounds(each) && h("div", { class: "soft small" }, bounds(each))],
    each.changeable ? h("div", { class: "actions" }, doer(page, t("change"), edit)) : null,
  ];
}

const meaning = ({ help, helpLanguage }) => data(help, { lang: helpLanguage });

function bounds({ default: usual, min, max, unit }) {
  const known = (value) => value !== null && value !== undefined && value !== "";
  const parts = [
    known(usual) && sentence("settings.default", { value: usual }),
    known(min) && sentence("settings.from", { value: min }),
    known(max) && sentence("settings.to", { value: max }),
  ].filter(Boolean);
  if (!parts.length) return null;
  return [parts.map((each, index) => [index > 0 && ", ", each]), unit && [" ", "(", spoken(unit), ")"]];
}
