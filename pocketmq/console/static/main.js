/* The frame: which page is shown, and when its figures are fetched again.
 *
 * A page is a module under pages/ whose default export is {title, live, load, view}: `load(page, signal)`
 * fetches what `view(page, data)` draws; `live` is the pause between two fetches in ms, 0 for none, or a
 * function of the page.
 * 1. A fetch that was overtaken by another one is aborted, and never drawn.
 * 2. On the way to another page the focus goes to its heading; within a page it stays where it is.
 * 3. Nothing is fetched by itself while paused, hidden or while a dialog is open.
 */

import { change, meet, session } from "./api.js";
import { isOpen, problem, say } from "./dialog.js";
import { draw, h } from "./dom.js";
import { spoken } from "./spoken.js";
import { empty, head } from "./table.js";
import { clock, named, t } from "./text.js";

// The server's list: the module of a page has its name.
const PAGES = new Set(JSON.parse(document.getElementById("pages").textContent));
const moduleOf = (path) => (PAGES.has(path) ? path.slice(1).replaceAll("-", "_") || "overview" : null);
const place = document.getElementById("page");
const pauseButton = document.getElementById("pause");
const updated = document.getElementById("updated");
const cookie = (name, value) => {
  document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=strict`;
};
let paused = localStorage.getItem("paused") === "yes";
let page = null;

class Page {
  constructor(module, query) {
    this.module = module;
    this.query = query;
    this.session = session;
    this.state = {};
    this.data = undefined;
    this.abort = null;
    this.timer = 0;
    this.frame = 0;
  }

  /** A parameter of the address, "" when it is not there. */
  get(name) {
    return this.query.get(name) ?? "";
  }

  /** Change parameters of the address (null: take away) and fetch again. */
  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") this.query.delete(name);
      else this.query.set(name, value);
    }
    // Another list begins at its first page.
    Object.assign(this.state, { cursor: null, way: [] });
    const text = this.query.toString();
    history.replaceState(null, "", location.pathname + (text && `?${text}`));
    return this.refresh({ tell: true });
  }

  go = (to) => navigate(to);

  /** Fetch and draw; `tell`: say it to screen readers. */
  async refresh({ tell = false } = {}) {
    clearTimeout(this.timer);
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    try {
      const found = await this.module.load(this, abort.signal);
      if (abort.signal.aborted || page !== this) return;
      this.data = found;
      this.failed = null;
      updated.textContent = t("updated", { time: clock(Date.now()) });
      if (tell) document.getElementById("told").textContent = t("refreshed");
    } catch (error) {
      if (abort.signal.aborted || page !== this) return;
      if (error.code === "LOGIN") return navigate(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
      this.failed = error;
    }
    this.draw();
    this.wait();
  }

  wait() {
    clearTimeout(this.timer);
    if (!this.pause || paused) return;
    this.timer = setTimeout(() => {
      if (document.hidden || isOpen()) this.wait();
      else this.refresh();
    }, this.pause);
  }

  /** ms between two fetches, 0 for none; a page may have a faster part. */
  get pause() {
    const { live } = this.module;
    return typeof live === "function" ? live(this) : live;
  }

  redraw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => page === this && this.draw());
  }

  draw() {
    const wrong = this.failed && h("div", { role: "alert", key: "wrong" }, problem(this.failed));
    draw(place, wrong, this.data !== undefined ? this.module.view(this, this.data) : head(this.heading()));
    document.title = `${place.querySelector("h1")?.textContent ?? ""} · PocketMQ`;
  }

  heading() {
    return t(this.module.title);
  }

  /** Do something that may fail, say how it went, fetch again. `action` returns null when it was left. */
  async act(action, done) {
    try {
      const found = await action();
      if (found === null || found === undefined) return null;
      if (done) say(typeof done === "function" ? done(found) : done);
      if (!this.left) await this.refresh();
      return found;
    } catch (error) {
      say(problem(error).childNodes.length > 1 ? [spoken(error.message), " ", spoken(error.whatToDo)] : spoken(error.message), "bad");
      return null;
    }
  }

  leave() {
    this.left = true;
    clearTimeout(this.timer);
    this.abort?.abort();
  }
}

// The address that is shown. The skip link changes only what is behind its #: that is no way to another page.
let address;

async function show({ focus }) {
  page?.leave();
  address = location.pathname + location.search;
  openMenu(false);
  const name = moduleOf(location.pathname);
  for (const link of document.querySelectorAll("#nav a")) {
    const here = new URL(link.href).pathname === (PARENTS[location.pathname] ?? location.pathname);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const query = new URLSearchParams(location.search);
  if (!name) {
    page = null;
    pauseButton.hidden = updated.hidden = true;
    place.removeAttribute("aria-busy");
    document.title = `${t("lost.title")} · PocketMQ`;
    draw(place, head(t("lost.title")), empty(t("lost.title"), t("lost.text")));
    return;
  }
  place.setAttribute("aria-busy", "true");
  const { default: module } = await import(`./pages/${name}.js`);
  const shown = (page = new Page(module, query));
  pauseButton.hidden = updated.hidden = !page.pause;
  updated.textContent = "";
  await shown.refresh();
  if (page !== shown) return;
  place.removeAttribute("aria-busy");
  if (!focus) return;
  window.scrollTo(0, 0);
  place.querySelector("h1")?.focus();
}

// Which entry of the menu stands for a page that is not in it.
const PARENTS = { "/broker": "/cluster", "/topic": "/topics", "/group": "/groups", "/message": "/messages" };

export async function navigate(to) {
  history.pushState(null, "", to);
  await show({ focus: true });
}

function follow(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const to = new URL(link.href);
  if (to.origin !== location.origin || link.hasAttribute("download") || link.target || to.hash) return;
  event.preventDefault();
  navigate(to.pathname + to.search);
}

function drawPause() {
  pauseButton.setAttribute("aria-pressed", String(paused));
  pauseButton.textContent = t(paused ? "live.resume" : "live.pause");
}

/** The signed-in user, or that the console is read-only. */
export function drawSession() {
  document.getElementById("version").textContent = session.version ? `PocketMQ ${session.version}` : "";
  const leave = async () => {
    Object.assign(session, await change("POST", "/api/logout"));
    drawSession();
    await navigate("/login");
  };
  draw(
    document.getElementById("session"),
    session.readOnly && h("span", { class: "tag warn", title: session.reason }, t("readOnly.tag")),
    session.role && h("span", { class: "tag" }, named("sessionRole", session.role)),
    session.user && h("button", { on: { click: leave } }, t("logout", { user: session.user })),
    session.loginRequired && !session.user && h("a", { class: "button", href: "/login" }, t("login")),
  );
}

function frame() {
  document.addEventListener("click", follow);
  window.addEventListener("popstate", () => {
    if (location.pathname + location.search !== address) show({ focus: true });
  });
  pauseButton.addEventListener("click", () => {
    paused = !paused;
    localStorage.setItem("paused", paused ? "yes" : "no");
    drawPause();
    if (paused) clearTimeout(page?.timer);
    else page?.refresh({ tell: true });
  });
  document.getElementById("refresh").addEventListener("click", () => page?.refresh({ tell: true }));
  document.getElementById("theme").addEventListener("change", ({ target }) => {
    document.documentElement.dataset.theme = target.value;
    cookie("pocketmq_theme", target.value);
  });
  document.getElementById("language").addEventListener("change", ({ target }) => {
    cookie("pocketmq_language", target.value);
    location.reload();
  });
  drawPause();
  document.getElementById("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = event.target.elements.q.value.trim();
    if (text) navigate(`/search?q=${encodeURIComponent(text)}`);
  });
  const menu = document.getElementById("menu");
  menu.addEventListener("click", () => openMenu(menu.getAttribute("aria-expanded") !== "true"));
}

/** On a narrow window the menu and what is rarely used stand behind a button. */
function openMenu(open) {
  document.getElementById("menu").setAttribute("aria-expanded", String(open));
  document.body.classList.toggle("open", open);
}

// No await at the top: pages that import this module would wait for it, and it for them.
async function begin() {
  frame();
  try {
    await meet();
    drawSession();
  } catch (error) {
    // The page's own request fails, too, and tells what to do.
    if (error.status === undefined) throw error;
  }
  await show({ focus: false });
}

begin();
