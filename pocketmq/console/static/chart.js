/* Lines over time, drawn as SVG. Each chart has a table of the same figures for screen readers. */

import { h } from "./dom.js";
import { stamp, t } from "./text.js";

const WIDTH = 600;
const HEIGHT = 150;
// Where the pointer is, by chart, so that a refresh does not take the hand away.
const pointed = new Map();
// The part that the pointer is drawing over, by chart.
const drawn = new Map();

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const SPANS = [
  ...[1, 2, 4, 10, 20, 30].map((each) => each * SECOND_MS), ...[1, 2, 4, 10, 20, 30].map((each) => each * MINUTE_MS),
  ...[1, 2, 4, 6, 12].map((each) => each * HOUR_MS), ...[1, 2, 4, 10, 20, 30].map((each) => each * DAY_MS),
];
const TICKS = [10, 30].map((each) => each * SECOND_MS).concat(
  [1, 2, 5, 10, 15, 30].map((each) => each * MINUTE_MS), [1, 2, 3, 6, 12].map((each) => each * HOUR_MS), [1, 2, 7].map((each) => each * DAY_MS),
);
const TICKS_MAX = 6;

/** The next number at or above whose half is round, too: 2, 4, 6, 10, 20 ... */
export function roundUp(value) {
  if (!(value > 0)) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 10].map((each) => each * power).find((each) => each >= value * 0.999999);
}

/** The same of a time, in ms: 2 s, 4 s, 10 s ... 2 min, 4 min ... */
export function roundUpTime(value) {
  return value < SECOND_MS ? roundUp(value) : SPANS.find((each) => each >= value) ?? roundUp(value / DAY_MS) * DAY_MS;
}

/** Round times of day between two moments, at most TICKS_MAX. */
export function ticksBetween(begin, end) {
  const step = TICKS.find((each) => (end - begin) / each <= TICKS_MAX) ?? TICKS.at(-1) * Math.ceil((end - begin) / TICKS.at(-1) / TICKS_MAX);
  const zone = new Date(begin).getTimezoneOffset() * MINUTE_MS;
  const first = Math.ceil((begin - zone) / step) * step + zone;
  return Array.from({ length: Math.max(0, Math.floor((end - first) / step) + 1) }, (_, index) => first + index * step);
}

/** series: [{label, values}] of the same length as times (ms); a value that is not known is null.
 *
 * interval: ms between two times; a longer pause is a gap in the line. zoom(from, until): what to do when a
 * part was drawn over by the pointer.
 */
export function lineChart({ id, title, times, series, format, page, interval, zoom, round = roundUp }) {
  const top = round(Math.max(0, ...series.flatMap(({ values }) => values.map((each) => each ?? 0))));
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
      h("div", { class: "scale", "aria-hidden": "true" }, [top, top / 2, 0].map((each) => h("span", {}, isShown(each, top, format) ? format(each) : ""))),
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
        "svg",
        { class: "times", "aria-hidden": "true" },
        last > 0 &&
          ticksBetween(begin, begin + span).map((time) => {
            const share = (time - begin) / span;
            const anchor = share < 0.06 ? "start" : share > 0.94 ? "end" : "middle";
            return h("text", { x: `${(share * 100).toFixed(2)}%`, y: 12, "text-anchor": anchor }, stamp(time, told, { short: true }));
          }),
      ),
    ),
    numbers(title, times, series, format, told),
  );
}

/** Whether a figure of the scale is what it is written as: nothing is half a message. */
const isShown = (value, top, format) => value === top || value === 0 || format(value) !== format(Math.floor(value)) || Number.isInteger(value);

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
