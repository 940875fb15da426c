/* What people read: sentences from the table of their language, numbers, sizes, times. */

import { data, h } from "./dom.js";

export const strings = JSON.parse(document.getElementById("strings").textContent);
export const language = document.documentElement.lang;
const HOUR_MS = 3_600_000;

/** The sentence of a key with {names} filled in. */
export function t(key, values = {}) {
  const sentence = strings[key];
  if (sentence === undefined) {
    console.error(`there is no sentence for ${key}`);
    return key;
  }
  return sentence.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** Like t, for values that are elements; strings among them are marked as data. */
export function sentence(key, values = {}) {
  return t(key, new Proxy({}, { get: (_, name) => `\0${String(name)}\0` }))
    .split("\0")
    .map((part, index) => {
      if (index % 2 === 0) return part;
      const value = values[part];
      return value instanceof Node || Array.isArray(value) ? value : data(value);
    });
}

/** The sentence of `prefix.name`, or the name itself without one. */
export const named = (prefix, name) => strings[`${prefix}.${name}`] ?? name;

const whole = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat(language, { maximumSignificantDigits: 3 });
export const number = (value) => (value == null ? "–" : whole.format(value));
export const rate = (value) => (value == null ? "–" : value < 100 ? few.format(value) : whole.format(value));

export function size(bytes) {
  if (bytes == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) {
    bytes /= 1024;
    at += 1;
  }
  return `${few.format(bytes)} ${units[at]}`;
}

const two = (value) => String(value).padStart(2, "0");

/** Local time, 2026-01-31 08:05:09, with .123 if wanted. */
export function moment(ms, { millis = false } = {}) {
  if (!ms || ms < 0) return h("span", {}, "–");
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const rest = millis ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
  return h("time", { datetime: at.toISOString(), translate: "no" }, `${day} ${time}${rest}`);
}

export const clock = (ms) => {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
};

/** Time of day; of a longer span the day, too. */
export function stamp(ms, spanMs, { short = false } = {}) {
  const at = new Date(ms);
  if (spanMs <= 24 * HOUR_MS) return short && at.getSeconds() === 0 ? clock(ms).slice(0, 5) : clock(ms);
  return `${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return unit(Math.round(ms), "ms");
  if (ms < 60_000) return unit(few.format(ms / 1000), "s");
  if (ms < HOUR_MS) return twoUnits(ms, 60_000, "min", 1_000, "s");
  if (ms < 48 * HOUR_MS) return twoUnits(ms, HOUR_MS, "h", 60_000, "min");
  return twoUnits(ms, 24 * HOUR_MS, "d", HOUR_MS, "h");
}

const unit = (count, name) => `${count} ${t(`unit.${name}`)}`;

/** 583_000 -> 9 min 43 s; the second unit is left out where there is nothing of it. */
function twoUnits(ms, large, name, small, less) {
  const count = Math.round(ms / small);
  const per = large / small;
  const rest = count % per;
  return unit(Math.floor(count / per), name) + (rest ? ` ${unit(rest, less)}` : "");
}

/** The version that a broker has: of PocketMQ its own, and that of RocketMQ that it speaks. */
export const versionText = ({ release, version }) => (release ? t("version.both", { release, version }) : version);

/** How long ago, or in how long; the moment itself when pointed at. 0: never. */
export function age(ms) {
  if (!ms || ms < 0) return h("span", {}, t("never"));
  const past = Date.now() - ms;
  const text = t(past < 0 ? "in" : "ago", { time: duration(Math.abs(past)) });
  const at = new Date(ms);
  return h("time", { datetime: at.toISOString(), title: `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}` }, text);
}

/** For <input type="datetime-local">, and back. */
export function toInput(ms) {
  const at = new Date(ms);
  return new Date(ms - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
export const fromInput = (text) => (text ? new Date(text).getTime() : null);
