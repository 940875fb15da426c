/* Tables, pages of long lists, empty states and other parts that all pages share. */

import { code, h } from "./dom.js";
import { named, number, t } from "./text.js";

/** columns: [{label, number, sort}]; rows: arrays of cells, or {key, cells, marked}. The first cell names the row.
 *
 * A column with `sort` sorts the list of `page` by that figure. totals: cells of a last row.
 */
export function table({ caption, columns, rows, showCaption = false, page, totals }) {
  const kind = (at) => (columns[at].number ? "number" : null);
  return h(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: showCaption ? null : "hidden-text" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map(({ label, number: right, quiet, sort }) =>
            h(
              "th",
              { scope: "col", class: right ? "number" : null, "aria-sort": sort && order(page, sort) },
              sort ? sorter(page, sort, label) : quiet ? h("span", { class: "hidden-text" }, label) : label,
            ),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) => {
          const { key, cells, marked } = Array.isArray(row) ? { cells: row } : row;
          return h(
            "tr",
            { key, class: marked ? "marked" : null },
            cells.map((cell, at) =>
              at === 0
                ? h("th", { scope: "row", class: kind(at) }, cell)
                : h("td", { class: kind(at), "data-label": columns[at].quiet ? null : columns[at].label }, cell),
            ),
          );
        }),
      ),
      totals &&
        h(
          "tfoot",
          {},
          h(
            "tr",
            {},
            totals.map((cell, at) => (at === 0 ? h("th", { scope: "row" }, cell) : h("td", { class: kind(at), "data-label": cell == null ? null : columns[at].label }, cell))),
          ),
        ),
    ),
  );
}

/** How the list is sorted by a figure, for aria-sort. */
const order = (page, figure) =>
  page.get("sort") !== figure ? "none" : page.get("desc") ? "descending" : "ascending";

/** Presses: the highest first, the lowest first, as it was. */
function sorter(page, figure, label) {
  const [next, mark] = {
    none: [{ sort: figure, desc: "true" }, ""],
    descending: [{ sort: figure, desc: null }, " ↓"],
    ascending: [{ sort: null, desc: null }, " ↑"],
  }[order(page, figure)];
  const click = () => page.set({ ...next, page: null });
  return h("button", { type: "button", class: "sort", on: { click } }, label, h("span", { "aria-hidden": "true" }, mark));
}

/** Buttons at the foot of a list that has page, size and total. */
export function pager(page, list) {
  const pages = Math.max(1, Math.ceil(list.total / list.size));
  if (pages === 1) return null;
  const go = (to) => () => page.set({ page: to === 1 ? null : to });
  return foot(
    h("span", { class: "soft small" }, t("pager.of", { page: list.page, pages, total: number(list.total) })),
    list.page > 1 && go(list.page - 1),
    list.page < pages && go(list.page + 1),
  );
}

/** The same for lists with cursors: the way back is kept in page.state. */
export function cursorPager(page, list) {
  const way = (page.state.way ??= []);
  if (!list.cursor && !way.length) return null;
  const go = (cursor) => {
    page.state.cursor = cursor;
    page.refresh();
  };
  const back = () => {
    way.pop();
    go(way.at(-1) ?? null);
  };
  const forth = () => {
    way.push(list.cursor);
    go(list.cursor);
  };
  const text = t("pager.at", { page: way.length + 1 });
  return foot(h("span", { class: "soft small" }, text), way.length > 0 && back, list.cursor && forth);
}

function foot(text, back, forth) {
  return h(
    "nav",
    { class: "pager", "aria-label": t("pager") },
    text,
    h("button", { disabled: !back, on: { click: back } }, t("pager.back")),
    h("button", { disabled: !forth, on: { click: forth } }, t("pager.forth")),
  );
}

/** The colour of a severity. */
export const KINDS = { error: "bad", warning: "warn", info: "", good: "good" };

export const tag = (text, kind = "") => h("span", { class: `tag ${kind}` }, text);

/** Nothing to show: why, and what to do next. `command`: for the terminal. */
export function empty(title, text, { command, action } = {}) {
  return h(
    "div",
    { class: "empty" },
    h("h2", {}, title),
    h("p", {}, text),
    command && h("pre", {}, code(command)),
    action,
  );
}

/** The head of a page: title, one sentence about it, buttons. */
export function head(title, { about, actions, crumb } = {}) {
  return h(
    "div",
    { class: "head" },
    crumb && h("nav", { class: "crumb", "aria-label": t("crumb") }, h("a", { href: crumb[0] }, "← ", crumb[1])),
    h("h1", { tabindex: "-1" }, title),
    actions && h("div", { class: "actions" }, actions),
    about && h("p", {}, about),
  );
}

/** A button that is off, and says why, where nothing may be changed. */
export function doer(page, label, click, { danger = false, main = false, quiet = false } = {}) {
  const kinds = [danger && "danger", main && "main", quiet && "link"].filter(Boolean).join(" ");
  const off = page.session.readOnly;
  const title = off ? t("readOnly") : null;
  return h("button", { type: "button", class: kinds || null, disabled: off, title, on: { click } }, label);
}

export const facts = (rows, kind = "") =>
  h(
    "dl",
    { class: `facts ${kind}` },
    rows.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value ?? "–")]),
  );

export const figures = (rows) =>
  h(
    "dl",
    { class: "figures" },
    rows.map(([name, value, small]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value, small && h("small", {}, small))),
    ),
  );

export const card = (title, ...rest) => h("section", { class: "card" }, title && h("h2", {}, title), rest);

/** A row of links of which one is current; choices: [[name, label, href]]. */
export const tabs = (label, choices, current) =>
  h(
    "nav",
    { class: "tabs", "aria-label": label },
    choices.map(([name, text, href]) =>
      h("a", { href, "aria-current": name === current ? "page" : null }, text),
    ),
  );

/** A box to type in that filters the list once the typing rests. */
export function filter(page, label) {
  const input = (event) => {
    clearTimeout(page.state.typing);
    const { value } = event.target;
    page.state.typing = setTimeout(() => page.set({ q: value || null, page: null }), 250);
  };
  return h("input", {
    type: "search", "aria-label": label, placeholder: label, value: page.get("q"), on: { input },
    autocomplete: "off", spellcheck: "false",
  });
}

export const topicLink = (name, tab) => link("/topic", { name, tab }, name);
export const groupLink = (name, tab) => link("/group", { name, tab }, name);
export const href = (path, values) =>
  `${path}?${new URLSearchParams(Object.entries(values).filter(([, value]) => value != null && value !== ""))}`;
export const link = (path, values, text) =>
  h("a", { href: href(path, values), translate: "no" }, text);

export const topicKind = (type) =>
  tag(named("topicType", type), { DLQ: "warn", NORMAL: "accent" }[type] ?? "");
