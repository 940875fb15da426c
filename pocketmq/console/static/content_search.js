/* Search for messages by what is in them: piece by piece, newest first, until enough are found or it is stopped.
 *
 * The server looks through one piece a request and keeps nothing: who asks no more has stopped the search.
 */

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { moment, number, t } from "./text.js";

const FOUND_MAX = 200;
const SCANNED_MAX = 1_000_000;
const FIELDS = ["tag", "key", "property", "text"];

/** Look until the end or a bound; `page.state.search` tells how far it is. */
export async function look(page, signal) {
  const query = Object.fromEntries(["topic", "begin", "end", ...FIELDS].map((name) => [name, page.get(name)]));
  const search = (page.state.search = { items: [], scanned: 0, left: null, reached: null, running: true, leftOut: [], bound: false });
  const stop = () => {
    search.running = false;
    page.redraw();
  };
  signal.addEventListener("abort", stop);
  let cursor = null;
  do {
    const piece = await get(path("/api/messages/search", [], { ...query, cursor, size: 50 }), signal);
    search.items.push(...piece.items);
    search.scanned += piece.scanned;
    search.leftOut.push(...piece.leftOut);
    Object.assign(search, { left: piece.left, reached: piece.reached ?? search.reached });
    cursor = piece.cursor;
    page.redraw();
  } while (cursor && search.items.length < FOUND_MAX && search.scanned < SCANNED_MAX);
  search.bound = cursor !== null;
  search.running = false;
  return search;
}

/** How far the search is, with a button that stops it. */
export function progress(page) {
  const { search } = page.state;
  if (!search) return null;
  const { scanned, items, left, reached, running, bound } = search;
  const told = t("content.scanned", { scanned: number(scanned), found: number(items.length) });
  const cancel = () => page.abort?.abort();
  return h(
    "p",
    { class: "row", role: "status", key: "progress" },
    told,
    reached && h("span", { class: "soft" }, t("content.reached"), " ", moment(reached)),
    running && h("button", { type: "button", on: { click: cancel } }, t("content.cancel")),
    !running && left > 0 && h("span", { class: "tag warn" }, t(bound ? "content.bound" : "content.stopped", { left: number(left) })),
  );
}
