/* One broker: its rates, its runtime figures, its settings. */

import { change, get, path } from "../api.js";
import { code, data, h } from "../dom.js";
import { charts, withHistory } from "../history.js";
import { spoken } from "../spoken.js";
import { card, doer, facts, figures, head, href, tabs, tag } from "../table.js";
import { age, language, moment, named, number, rate, size, t, versionText } from "../text.js";
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
          summary.trouble ? tag(t("broker.fails"), "bad") : tag(summary.reachable ? t("reachable") : t("unreachable"), summary.reachable ? "good" : "bad"),
          doer(page, t("broker.closeWrites"), () => writable(page, name, false), { danger: true }),
          doer(page, t("broker.openWrites"), () => writable(page, name, true)),
        ],
      }),
      summary.trouble && spoken(summary.trouble, { tag: "p", class: "note bad" }),
      figures([
        [t("rate.in"), rate(summary.in), t("perSecond")],
        [t("rate.delivered"), rate(summary.delivered), t("perSecond")],
        [t("today"), number(summary.inToday), t("today.stored")],
      ]),
      tabs(t("broker"), [["figures", t("broker.figures"), to("")], ["settings", t("settings"), to("settings")]], tab),
      tab === "settings"
        ? card(t("settings"), settingsTable(page, name, settings))
        : [
            charts(page, [
              { id: "rates", title: t("chart.rates"), history, figures: ["in", "out"], labels: { out: t("rate.delivered") } },
              { id: "latency", title: t("chart.answers"), history, figures: ["latency"] },
            ]),
            h(
              "div",
              { class: "grid" },
              card(
                t("broker.about"),
                facts([
                  [t("address"), code(summary.address)],
                  [t("cluster"), data(summary.cluster)],
                  [t("version"), data(versionText(summary))],
                  [t("started"), [moment(summary.startedAt), " (", age(summary.startedAt), ")"]],
                ]),
              ),
              card(t("broker.store"), facts(store(runtime ?? {}, summary))),
            ),
            h(
              "details",
              { class: "card", key: "all" },
              h("summary", {}, t("broker.all")),
              facts(Object.entries(runtime ?? {}).map(([key, value]) => [code(key), data(value)]), "two"),
            ),
          ],
    ];
  },
};

/** What an operator reads of a store, in units. */
function store(runtime, { diskRatio }) {
  const count = (name) => (runtime[name] === undefined ? null : Number(runtime[name]));
  const [, total, free] = /Total : (.+), Free : (.+)\.$/.exec(runtime.commitLogDirCapacity ?? "") ?? [];
  const log = count("commitLogMaxOffset") === null ? null : count("commitLogMaxOffset") - count("commitLogMinOffset");
  const oldest = count("earliestMessageTimeStamp");
  return [
    [t("disk"), diskRatio == null ? "–" : t("broker.diskUsed", { used: `${Math.round(diskRatio * 100)} %`, free: free ?? "–", total: total ?? "–" })],
    [t("broker.log"), size(log)],
    [t("broker.oldest"), oldest > 0 ? [moment(oldest), " (", age(oldest), ")"] : "–"],
    [t("broker.unflushed"), data(runtime.remainHowManyDataToFlush ?? "–")],
    [t("broker.unindexed"), size(count("dispatchBehindBytes"))],
    [t("broker.mean"), size(count("putMessageAverageSize"))],
    count("timerCongestNum") !== null && [t("broker.timers"), number(count("timerCongestNum"))],
  ];
}

function writable(page, name, open) {
  const title = t(open ? "broker.openWrites" : "broker.closeWrites");
  return page.act(
    () => change("PUT", path("/api/brokers/{}/writable", [name]), { writable: open }, { title, label: title, danger: !open }),
    (found) => t("broker.topicsChanged", { count: found.topics }),
  );
}
