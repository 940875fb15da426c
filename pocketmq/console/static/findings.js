/* Findings: what is wrong, the gravest first, and what to do about it.
 *
 * 1. Findings of one kind and severity are one row with a count, which opens; a single one is a row.
 * 2. Notes stand behind a click, and so do those that were dismissed or snoozed.
 */

import { change, path } from "./api.js";
import { data, h } from "./dom.js";
import { doer, groupLink, KINDS, link, tag, topicLink } from "./table.js";
import { spoken } from "./spoken.js";
import { clock, named, number, t } from "./text.js";

const HOUR_S = 3600;
// So many rows leave the figures below them in sight.
const ROWS_MAX = 5;
const SUBJECTS_MAX = 3;
const NAMES_MAX = 8;

/** The findings of a page of their own: all of them, none folded. */
export const warnings = (list) =>
  h("section", { "aria-label": t("warnings"), "aria-live": "polite" }, list.map((each) => row(each)));

/** What the overview shows. */
export function findings(page, list) {
  const loud = list.filter(({ quiet }) => !quiet);
  const wrong = loud.filter(({ severity }) => severity !== "info");
  const notes = loud.filter(({ severity }) => severity === "info");
  const hidden = list.filter(({ quiet }) => quiet);
  const kinds = folded(wrong);
  const rest = kinds.slice(ROWS_MAX);
  return h(
    "section",
    { class: "findings", "aria-label": t("warnings") },
    wrong.length === 0
      ? h("p", { class: "note good", key: "fine" }, t("warnings.none"))
      : h("h2", { key: "title" }, t("warnings"), " ", counts(wrong)),
    h("div", { "aria-live": "polite", key: "rows" }, kinds.slice(0, ROWS_MAX).map((each) => kind(page, each))),
    rest.length > 0 && fold("rest", t("findings.more", { count: rest.length }), rest.map((each) => kind(page, each))),
    notes.length > 0 && fold("notes", t("findings.notes", { count: notes.length }), notes.map((each) => row(each, quieting(page, each)))),
    hidden.length > 0 && fold("hidden", t("findings.hidden", { count: hidden.length }), hidden.map((each) => row(each, again(page, each)))),
  );
}

const fold = (key, label, rows) => h("details", { class: "fold", key }, h("summary", {}, label), rows);

function counts(list) {
  return ["error", "warning"].map((severity) => {
    const count = list.filter((each) => each.severity === severity).length;
    return count > 0 && [tag(t(`findings.${severity}`, { count }), KINDS[severity]), " "];
  });
}

/** Lists of findings of one kind and severity, in the order of their first. */
function folded(list) {
  const found = new Map();
  for (const each of list) {
    const key = `${each.kind} ${each.severity}`;
    found.set(key, [...(found.get(key) ?? []), each]);
  }
  return [...found.values()];
}

function kind(page, list) {
  const [one] = list;
  if (list.length === 1) return row(one, quieting(page, one));
  const names = [...new Set(list.map(({ subject: name }) => name))];
  const shown = names.slice(0, SUBJECTS_MAX).join(", ");
  return h(
    "details",
    { class: `note tight ${KINDS[one.severity] ?? "warn"}`, key: `${one.kind} ${one.severity}` },
    h(
      "summary",
      {},
      tag(named("severity", one.severity), KINDS[one.severity]), " ",
      h("strong", {}, named("symptom", one.kind)), ` (${number(list.length)}): `,
      data(shown), names.length > SUBJECTS_MAX && ` ${t("findings.andMore", { count: names.length - SUBJECTS_MAX })}`,
    ),
    list.map((each) => row(each, quieting(page, each))),
  );
}

function row(warning, actions) {
  return h(
    "div",
    { class: `note tight ${KINDS[warning.severity] ?? "warn"}`, key: `${warning.kind} ${warning.subject} ${warning.topic}` },
    actions,
    h(
      "p",
      {},
      tag(named("severity", warning.severity), KINDS[warning.severity]), " ",
      h("strong", {}, subject(warning)),
      warning.topic && [" / ", topicLink(warning.topic)],
      ": ", spoken(warning.text),
    ),
    warning.advice && spoken(warning.advice, { tag: "p", class: "soft advice" }),
  );
}

function subject({ kind: what, subject: name }) {
  if (what === "DEAD_LETTERS") return link("/dead-letters", { group: name }, name);
  if (what === "DISK" || what.startsWith("BROKER")) return link("/broker", { name }, name);
  return what.startsWith("NAME_SERVER") ? data(name) : groupLink(name);
}

// ---------------------------------------------------------------- dismiss, snooze

function quieting(page, { kind: what, subject: name, topic }) {
  const quiet = (forS, done) => () =>
    page.act(() => change("PUT", "/api/warnings/quiet", { kind: what, subject: name, topic, forS }), done);
  return h(
    "div",
    { class: "actions quiet" },
    doer(page, t("snooze"), quiet(HOUR_S, t("snooze.done")), { quiet: true }),
    doer(page, t("dismiss"), quiet(null, t("dismiss.done")), { quiet: true }),
  );
}

function again(page, { kind: what, subject: name, topic, quiet: { until } }) {
  const show = () => page.act(() => change("DELETE", path("/api/warnings/quiet", [], { kind: what, subject: name, topic })));
  return h(
    "div",
    { class: "actions quiet" },
    h("span", { class: "soft small" }, until ? t("snooze.until", { time: clock(until) }) : t("dismiss.until")),
    doer(page, t("findings.show"), show, { quiet: true }),
  );
}
