/* Lines over time, drawn as SVG. Each chart has a table of the same figures for those who do not see it. */

import { h } from "./dom.js";
import { clock, t } from "./text.js";

const WIDTH = 600;
const HEIGHT = 150;
// Where the pointer is, by chart, so that a refresh does not take the hand away.
const pointed = new Map();

/** The next round number at or above: 1, 2, 5, 10, 20 ... */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999999);
}

/** series: [{label, values}] of the same length as times (ms); a value that is not known is null. */
export function lineChart({ id, title, times, series, format, page }) {
  const top = roundUp(Math.max(0, ...series.flatMap(({ values }) => values.map((each) => each ?? 0))));
  const last = times.length - 1;
  const at = Math.min(pointed.get(id) ?? last, last);
  const x = (index) => (last > 0 ? (index / last) * WIDTH : WIDTH);
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const point = (event, svg) => {
    const box = svg.getBoundingClientRect();
    pointed.set(id, Math.round(((event.clientX - box.left) / box.width) * last));
    page.redraw();
  };
  const leave = () => {
    if (pointed.delete(id)) page.redraw();
  };
  const summary = series
    .map(({ label, values }) => `${label}: ${format(values[last])}`)
    .join(", ");
  return h(
    "figure",
    { class: "chart", key: id },
    h(
      "figcaption",
      { class: "row" },
      h("h2", {}, title),
      h("span", { class: "soft small" }, times.length > 0 ? clock(times[at]) : ""),
      h(
        "ul",
        { class: "legend end" },
        series.map(({ label, values }, index) =>
          h("li", {}, mark(index), `${label} `, h("b", {}, format(values[at]))),
        ),
      ),
    ),
    h(
      "div",
      { class: "plot" },
      h("div", { class: "scale", "aria-hidden": "true" }, [top, top / 2, 0].map((each) => h("span", {}, format(each)))),
      h(
        "svg",
        {
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
          "aria-label": t("chart.says", { title, summary }), on: { pointermove: point, pointerleave: leave },
        },
        [0, 0.5, 1].map((part) =>
          h("line", { class: "axis", x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }),
        ),
        series.map(({ values }, index) => lines(values, index, x, y)),
        pointed.has(id) && h("line", { class: "hand", x1: x(at), x2: x(at), y1: 0, y2: HEIGHT }),
      ),
      h(
        "div",
        { class: "scale times", "aria-hidden": "true" },
        [0, Math.floor(last / 2), last].map((index) => h("span", {}, times[index] ? clock(times[index]) : "")),
      ),
    ),
    numbers(title, times, series, format),
  );
}

function mark(index) {
  return h(
    "svg",
    { viewBox: "0 0 12 8", "aria-hidden": "true" },
    h("line", { class: `s${index + 1}`, x1: 0, x2: 12, y1: 4, y2: 4, "stroke-width": 3 }),
  );
}

/** One line for each stretch of known values. */
function lines(values, index, x, y) {
  const stretches = [[]];
  values.forEach((value, place) => {
    if (value == null) stretches.push([]);
    else stretches.at(-1).push([x(place), y(value)]);
  });
  return stretches
    .filter((each) => each.length > 0)
    .map((each) => {
      const path = each.length > 1 ? each : [each[0], each[0].with(0, each[0][0] + 1)];
      const text = path.map(([left, high]) => `${left.toFixed(1)},${high.toFixed(1)}`).join(" ");
      const ground = `${path[0][0]},${HEIGHT} ${text} ${path.at(-1)[0]},${HEIGHT}`;
      return [
        h("polyline", { class: `area s${index + 1}`, points: ground }),
        h("polyline", { class: `s${index + 1}`, points: text }),
      ];
    });
}

/** The last ten samples in words. */
function numbers(title, times, series, format) {
  const rows = times.map((_, index) => index).slice(-10).reverse();
  return h(
    "details",
    { class: "small" },
    h("summary", {}, t("chart.table")),
    h(
      "table",
      {},
      h("caption", { class: "hidden-text" }, title),
      h(
        "thead",
        {},
        h("tr", {}, h("th", { scope: "col" }, t("time")), series.map(({ label }) => h("th", { scope: "col", class: "number" }, label))),
      ),
      h(
        "tbody",
        {},
        rows.map((index) =>
          h("tr", {}, h("th", { scope: "row" }, clock(times[index])), series.map(({ values }) => h("td", { class: "number" }, format(values[index])))),
        ),
      ),
    ),
  );
}
