/* Spoken: the English sentences of brokers and of the server, in the language of the page.
 *
 * A table has their templates, {holes} for values. A value may be such a sentence itself,
 * or several behind each other. The template with the most text of its own is taken. What no template fits, as the error of an operating system, stays English and is marked so.
 */

import { data, h } from "./dom.js";
import { strings } from "./text.js";

const HOLE = /\{\w+\}/g;
let rules = null;

/** A sentence as people read it, an element. attributes: of the element. */
export function spoken(text, { tag = "span", ...attributes } = {}) {
  const parts = strings.spoken ? translated(String(text)) : null;
  return parts ? h(tag, attributes, parts) : h(tag, { ...attributes, lang: "en", translate: "no" }, text);
}

/** The parts of a translation, values marked as data; null if no template fits. */
function translated(text) {
  rules ??= Object.entries(strings.spoken).map(rule).sort((one, other) => other.size - one.size);
  for (const { pattern, names, parts } of rules) {
    const found = pattern.exec(text);
    if (!found) continue;
    const values = Object.fromEntries(names.map((name, at) => [name, found[at + 1]]));
    return parts.map((part, at) => (at % 2 ? value(values[part]) : part));
  }
  return null;
}

function value(text) {
  const whole = translated(text);
  if (whole || !text.includes("; ")) return whole ?? data(text);
  return text.split("; ").map((each, at) => [at > 0 && "; ", translated(each) ?? data(each)]);
}

function rule([english, own]) {
  const names = (english.match(HOLE) ?? []).map((each) => each.slice(1, -1));
  const fixed = english.split(HOLE).map((each) => each.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pattern = new RegExp(`^${fixed.join("(.+?)")}$`, "s");
  return { pattern, names, parts: own.split(/\{(\w+)\}/), size: fixed.join("").length };
}
