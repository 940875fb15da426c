/* Requests to the console's JSON API (API.md), and the two steps of a dangerous one. */

import { confirmed } from "./dialog.js";
import { t } from "./text.js";

export const session = { readOnly: true, csrfToken: "", user: null };

/** An answer that is not 2xx. Attributes: message, whatToDo, code, status. */
export class Failed extends Error {
  constructor(status, body) {
    super(body.error || t("error.http", { status }));
    this.status = status;
    this.code = body.code || "";
    this.whatToDo = body.whatToDo || "";
  }
}

/** `/api/topics/{}` with names put in; `parameters` that are null or "" are left out. */
export function path(template, names = [], parameters = {}) {
  const rest = [...names];
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return template.replace(/\{\}/g, () => encodeURIComponent(rest.shift())) + (text && `?${text}`);
}

async function request(method, url, { body, confirm, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRF-Token"] = session.csrfToken;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (confirm) headers["X-Confirm"] = confirm;
  const options = { method, headers, signal, body: body && JSON.stringify(body), cache: "no-cache" };
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, { error: t("error.gone"), whatToDo: t("error.gone.do"), code: "GONE" });
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failed(answer.status, found);
  return { status: answer.status, found };
}

export async function get(url, signal) {
  return (await request("GET", url, { signal })).found;
}

/** A change. Where the server wants a confirmation first, its words are shown; null: not confirmed. */
export async function change(method, url, body, { title, label, danger = true } = {}) {
  const first = await request(method, url, { body });
  if (first.status !== 202) return first.found;
  if (!(await confirmed({ ...first.found, title, label, danger }))) return null;
  return (await request(method, url, { body, confirm: first.found.confirm })).found;
}

/** Fetch the session; the cookie and the token for changes come with it. */
export async function meet() {
  Object.assign(session, await get("/api/session"));
  return session;
}
