/* Lines over time, drawn as SVG. Each chart has a table of the same figures for screen readers. */

import { h } from "./dom.js";
import { stamp, t } from "./text.js";

const WIDTH = 600;
const HEIGHT = 150;
// Where the pointer is, by chart, so that a refresh does not take the hand away.
const pointed = new Map();
// The part that the pointer is drawing over, by chart.
const drawn = new Map();

/** The next round number at or above: 1, 2, 5, 10, 20 ... */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999999);
}

/** series: [{label, values}] of the same length as times (ms); a value that is not known is null.
 *
 * interval: ms between two times; a longer pause is a gap in the line. zoom(from, until): what to do when a
 * part was drawn over by the pointer.
 */
export function lineChart({ id, title, times, series, format, page, interval, zoom }) {
  const top = roundUp(Math.max(0, ...series.flatMap(({ values }) => values.map((each) => each ?? 0))));
  const last = times.length - 1;
  const begin = times[0] ?? 0;
  const span = Math.max(1, (times[last] ?? 1) - begin);
  // A span that does not end about now is labelled with its days.
  const told = Date.now() - (times[last] ?? 0) < 3_600_000 ? span : Infinity;
  const at = Math.min(pointed.get(id) ?? last, last);
  const x = (index) => (last > 0 ? ((times[index] - begin) / span) * WIDTH : WIDTH);
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const when = (event, svg) => {
    const box = svg.getBoundingClientRect();
    return begin + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * span;
  };
  const point = (event, svg) => {
    const time = when(event, svg);
    pointed.set(id, nearest(times, time));
    if (drawn.has(id)) drawn.get(id).until = time;
    page.redraw();
  };
  const leave = () => {
    drawn.delete(id);
    if (pointed.delete(id)) page.redraw();
  };
  const press = (event, svg) => {
    if (!zoom) return;
    drawn.set(id, { from: when(event, svg), until: when(event, svg) });
    // A hand that leaves the chart while it draws reaches its edge.
    svg.setPointerCapture(event.pointerId);
  };
  const release = () => {
    const { from, until } = drawn.get(id) ?? {};
    drawn.delete(id);
    // Less than two intervals may hold no sample, and then shows nothing.
    const least = 2 * interval;
    if (!(Math.abs(until - from) > span / 50) || span <= least) return page.redraw();
    const middle = Math.round((from + until) / 2);
    const half = Math.round(Math.max(Math.abs(until - from), least) / 2);
    zoom(middle - half, middle + half);
  };
  const part = drawn.get(id);
  const place = (time) => ((time - begin) / span) * WIDTH;
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
      h("span", { class: "soft small" }, times.length > 0 ? stamp(times[at], told) : ""),
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
      h("div", { class: "scale", "aria-hidden": "true" }, [top, top / 2, 0].map((each) => h("span", {}, format(each) === format(top) && each !== top ? "" : format(each)))),
      h(
        "svg",
        {
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
          "aria-label": t("chart.says", { title, summary }), class: zoom ? "zoomed" : null,
          on: { pointerdown: press, pointermove: point, pointerup: release, pointerleave: leave },
        },
        [0, 0.5, 1].map((part) =>
          h("line", { class: "axis", x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }),
        ),
        part && h("rect", { class: "part", x: Math.min(place(part.from), place(part.until)), y: 0, width: Math.abs(place(part.until) - place(part.from)), height: HEIGHT }),
        series.map(({ values }, index) => lines(values, index, x, y, (each) => times[each] - times[each - 1] > 2.5 * interval)),
        pointed.has(id) && h("line", { class: "hand", x1: x(at), x2: x(at), y1: 0, y2: HEIGHT }),
      ),
      h(
        "div",
        { class: "scale times", "aria-hidden": "true" },
        [0, 0.5, 1].map((share) => h("span", {}, last > 0 ? stamp(begin + share * span, told) : "")),
      ),
    ),
    numbers(title, times, series, format, told),
  );
}

function mark(index) {
  return h(
    "svg",
    { viewBox: "0 0 12 8", "aria-hidden": "true" },
    h("line", { class: `s${index + 1}`, x1: 0, x2: 12, y1: 4, y2: 4, "stroke-width": 3 }),
  );
}

function nearest(times, time) {
  let found = 0;
  times.forEach((each, index) => {
    if (Math.abs(each - time) < Math.abs(times[found] - time)) found = index;
  });
  return found;
}

/** One line for each stretch of known values; isGap: whether a value is missing before a place. */
function lines(values, index, x, y, isGap) {
  const stretches = [[]];
  values.forEach((value, place) => {
    if (value == null || isGap(place)) stretches.push([]);
    if (value != null) stretches.at(-1).push([x(place), y(value)]);
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
function numbers(title, times, series, format, span) {
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
          h("tr", {}, h("th", { scope: "row" }, stamp(times[index], span)), series.map(({ values }) => h("td", { class: "number" }, format(values[index])))),
        ),
      ),
    ),
  );
}
