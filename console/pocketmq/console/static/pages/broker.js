/* One broker: its rates, its runtime figures, its settings. */

import { change, get, path } from "../api.js";
import { lineChart } from "../chart.js";
import { code, data } from "../dom.js";
import { card, doer, facts, figures, head, href, tabs, tag } from "../table.js";
import { moment, named, number, rate, t } from "../text.js";
import { history } from "./overview.js";
import { settingsTable } from "./settings.js";

export default {
  title: "broker",
  live: 5000,
  async load(page, signal) {
    const name = page.get("name");
    const [found, rates] = await Promise.all([
      get(path("/api/brokers/{}", [name], { brokerId: page.get("id") }), signal),
      history("brokers", name, signal).catch(() => null),
    ]);
    return { ...found, rates };
  },
  view(page, { summary, runtime, settings, rates }) {
    const name = page.get("name");
    const tab = page.get("tab") || "figures";
    const to = (each) => href("/broker", { name, id: page.get("id"), tab: each });
    return [
      head(data(name), {
        crumb: ["/cluster", t("cluster")],
        actions: [
          tag(named("role", summary.role)),
          tag(summary.reachable ? t("reachable") : t("unreachable"), summary.reachable ? "good" : "bad"),
          doer(page, t("broker.closeWrites"), () => writable(page, name, false), { danger: true }),
          doer(page, t("broker.openWrites"), () => writable(page, name, true)),
        ],
      }),
      figures([
        [t("rate.in"), rate(summary.in), t("perSecond")],
        [t("rate.out"), rate(summary.out), t("perSecond")],
        [t("today"), number(summary.inToday), t("today.out", { count: number(summary.outToday) })],
        [t("yesterday"), number(summary.inYesterday), t("today.out", { count: number(summary.outYesterday) })],
      ]),
      tabs(t("broker"), [["figures", t("broker.figures"), to("")], ["settings", t("settings"), to("settings")]], tab),
      tab === "settings"
        ? card(t("settings"), settingsTable(page, name, settings))
        : [
            rates?.series[0] &&
              card(
                null,
                lineChart({
                  id: "rates", title: t("chart.rates"), times: rates.times, format: rate, page,
                  series: [
                    { label: t("rate.in"), values: rates.series[0].values.in },
                    { label: t("rate.out"), values: rates.series[0].values.out },
                  ],
                }),
              ),
            card(
              t("broker.about"),
              facts([
                [t("address"), code(summary.address)],
                [t("cluster"), data(summary.cluster)],
                [t("version"), data(summary.version)],
                [t("started"), moment(summary.startedAt)],
              ]),
            ),
            card(
              t("broker.runtime"),
              facts(Object.entries(runtime ?? {}).map(([key, value]) => [code(key), data(value)]), "two"),
            ),
          ],
    ];
  },
};

function writable(page, name, open) {
  const title = t(open ? "broker.openWrites" : "broker.closeWrites");
  return page.act(
    () => change("PUT", path("/api/brokers/{}/writable", [name]), { writable: open }, { title, label: title, danger: !open }),
    (found) => t("broker.topicsChanged", { count: found.topics }),
  );
}
