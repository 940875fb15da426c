/* One broker: its rates, its runtime figures, its settings. */

import { change, get, path } from "../api.js";
import { code, data } from "../dom.js";
import { charts, withHistory } from "../history.js";
import { card, doer, facts, figures, head, href, tabs, tag } from "../table.js";
import { language, moment, named, number, rate, t } from "../text.js";
import { settingsTable } from "./settings.js";

export default {
  title: "broker",
  live: 5000,
  load(page, signal) {
    const name = page.get("name");
    const figures = get(path("/api/brokers/{}", [name], { brokerId: page.get("id"), language }), signal);
    return withHistory(page, signal, [["brokers", name]], figures);
  },
  view(page, { summary, runtime, settings }) {
    const [history] = page.state.charts ?? [];
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
        [t("today"), number(summary.inToday), t("today.delivered", { count: number(summary.outToday) })],
        [t("yesterday"), number(summary.inYesterday), t("today.delivered", { count: number(summary.outYesterday) })],
      ]),
      tabs(t("broker"), [["figures", t("broker.figures"), to("")], ["settings", t("settings"), to("settings")]], tab),
      tab === "settings"
        ? card(t("settings"), settingsTable(page, name, settings))
        : [
            charts(page, [
              { id: "rates", title: t("chart.rates"), history, figures: ["in", "out"] },
              { id: "latency", title: t("chart.answers"), history, figures: ["latency"] },
            ]),
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
