/* Charts of what the console has kept: which span of time they show, and a closer look at a part of it.
 *
 * The span stands in the address: `range` (a name of RANGES), or `from` and `until` in ms.
 */

import { get, path } from "./api.js";
import { lineChart, roundUp, roundUpTime } from "./chart.js";
import { h } from "./dom.js";
import { card } from "./table.js";
import { duration, fromInput, number, rate, t, toInput } from "./text.js";

const HOUR_MS = 3_600_000;
const RANGES = { "1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": 24 * HOUR_MS, "7d": 7 * 24 * HOUR_MS, "30d": 30 * 24 * HOUR_MS };
const USUAL = "1h";
const FIGURES = {
  in: [t("rate.in"), rate], out: [t("rate.out"), rate], lag: [t("lag"), number], latency: [t("latency"), duration],
};

/** [since, until] in ms; until is null while it is now. */
function span(page) {
  const [from, until] = [Number(page.get("from")), Number(page.get("until"))];
  if (from && until > from) return [from, until];
  return [Date.now() - (RANGES[page.get("range")] ?? RANGES[USUAL]), null];
}

/** Fetch histories beside the page's own figures, which do not wait for them the first time.
 *
 * wanted: [[kind, name]]; they come into page.state.charts in this order.
 */
export async function withHistory(page, signal, wanted, figures) {
  const [since, until] = span(page);
  const asked = Promise.all(
    wanted.map(([kind, name]) => get(path("/api/history", [], { kind, name, since, until }), signal)),
  ).catch((error) => error);
  const isFirst = page.data === undefined;
  const keep = (charts) => {
    if (!(charts instanceof Error)) page.state.charts = charts;
    if (isFirst && !signal.aborted) page.redraw();
  };
  const kept = asked.then(keep);
  const found = await figures;
  if (!isFirst) await kept;
  return found;
}

/** The choice of a span, and charts: [{id, title, history, figure or figures, names}].
 *
 * A chart shows several figures of one name, or one figure of several names that have some of it.
 */
export function charts(page, specs) {
  return h(
    "section",
    { class: "history", key: "history", "aria-label": t("history") },
    choice(page),
    h("div", { class: "filled" }, specs.map((spec) => card(null, chart(page, spec)))),
  );
}

function chart(page, { id, title, history, figures, figure, none, labels = {} }) {
  if (!history) return h("p", { class: "loading" }, t("loading"));
  const [one] = history.series;
  const series = figures
    ? figures.map((name) => ({ label: labels[name] ?? FIGURES[name][0], values: one?.values[name] ?? [] }))
    : history.series
        .filter(({ values }) => values[figure]?.some((each) => each > 0))
        .slice(0, 4)
        .map(({ name, values }) => ({ label: name, values: values[figure] }));
  if (!series.length) return [h("h2", {}, title), h("p", { class: "empty" }, none)];
  const zoom = (from, until) => page.set({ from, until, range: null });
  const format = FIGURES[figure ?? figures[0]][1];
  const round = format === duration ? roundUpTime : roundUp;
  return lineChart({ id, title, times: history.times, interval: history.intervalMs, series, format, page, zoom, round });
}

function choice(page) {
  const [since, until] = span(page);
  const chosen = until ? "" : RANGES[page.get("range")] ? page.get("range") : USUAL;
  const choose = (range) => () => page.set({ range: range === USUAL ? null : range, from: null, until: null });
  const show = (event, form) => {
    event.preventDefault();
    const at = (name) => fromInput(form.elements[name].value);
    if (at("from") < at("until")) page.set({ from: at("from"), until: at("until"), range: null });
  };
  const time = (name, label, value) =>
    h("label", {}, label, h("input", { type: "datetime-local", step: 1, name, required: true, value: toInput(value) }));
  return h(
    "form",
    { class: "row", on: { submit: show } },
    h(
      "span",
      { class: "actions", role: "group", "aria-label": t("history.range") },
      Object.keys(RANGES).map((name) =>
        h("button", { type: "button", "aria-pressed": String(name === chosen), on: { click: choose(name) } }, duration(RANGES[name])),
      ),
    ),
    h(
      "details",
      { class: "small", open: until !== null },
      h("summary", {}, t("history.from")),
      h("span", { class: "row" }, time("from", t("from"), since), time("until", t("until"), until ?? Date.now()), h("button", {}, t("show"))),
    ),
    h("span", { class: "soft small" }, t("history.zoom")),
  );
}
