/* Dialogs: a form, a confirmation, a page to read; and notices that pass. All are <dialog>, so that the
   browser keeps the focus inside and gives it back. */

import { data, draw, h } from "./dom.js";
import { table } from "./table.js";
import { spoken } from "./spoken.js";
import { fromInput, t, toInput } from "./text.js";

let count = 0;

/** Show a dialog until it is closed. Returns: what `submit` returned, or null when it was left.
 *
 * submit(values) may throw: its message is shown and the dialog stays open.
 */
function open({ title, body, label, danger = false, wide = false, submit, close = t("cancel") }) {
  count += 1;
  const heading = `dialog-${count}`;
  const wrong = h("div", { role: "alert" });
  const main = label && h("button", { class: danger ? "main danger" : "main" }, label);
  const leave = h("button", { type: "button", on: { click: () => dialog.close() } }, close);
  const form = h(
    "form",
    { method: "dialog", on: { submit: (event) => send(event) } },
    h("h2", { id: heading }, title),
    wrong,
    h("div", { class: "body" }, body),
    h("div", { class: "actions" }, leave, main),
  );
  const dialog = h("dialog", { "aria-labelledby": heading, class: wide ? "wide" : null }, form);
  let result = null;
  async function send(event) {
    event.preventDefault();
    if (!main || main.disabled) return;
    main.disabled = true;
    try {
      result = await submit(form);
      dialog.close();
    } catch (error) {
      draw(wrong, problem(error));
    } finally {
      main.disabled = false;
    }
  }
  document.body.append(dialog);
  dialog.showModal();
  // The first field, else the safe button: never the one that does it.
  (form.querySelector(".body input, .body select, .body textarea") ?? leave).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
  });
}

export const isOpen = () => document.querySelector("dialog[open]") !== null;

/** What is wrong and what to do about it. */
export function problem(error) {
  if (!(error instanceof Error) || error.status === undefined) console.error(error);
  return h(
    "div",
    { class: "note bad" },
    spoken(error.message, { tag: "p" }),
    error.whatToDo && spoken(error.whatToDo, { tag: "p" }),
  );
}

/** Say exactly what will happen and ask once. `steps`: rows of offsets from and to. */
export async function confirmed({ willDo, steps, title, label, danger }) {
  const body = [spoken(willDo, { tag: "p" }), steps?.length > 0 && offsetSteps(steps)];
  const done = await open({
    title: title ?? t("confirm.title"),
    body,
    label: label ?? t("confirm.do"),
    danger,
    submit: () => true,
  });
  return done === true;
}

export function offsetSteps(steps) {
  return table({
    caption: t("reset.steps"),
    columns: [
      { label: t("reset.place") }, { label: t("reset.from"), number: true }, { label: t("reset.to"), number: true },
    ],
    rows: steps.map(({ from, to, ...where }) => [
      data(Object.values(where).join(" ")), stepValue(from, to), stepValue(to, from),
    ]),
  });
}

/** A number or text as it is; of an object what differs from the other. */
function stepValue(value, other) {
  if (value === null || typeof value !== "object") return data(value ?? "–");
  const changed = Object.entries(value).filter(([name, each]) => JSON.stringify(each) !== JSON.stringify(other?.[name]));
  return changed.map(([name, each]) => h("div", {}, data(`${name}: ${typeof each === "object" ? JSON.stringify(each) : each}`)));
}

/** A form. fields: [{name, label, type, value, help, required, min, max, choices: [[value, label]]}].
 *
 * submit(values): values by name; numbers as numbers, times in ms, check boxes as booleans.
 */
export function form({ title, intro, fields, label, danger, wide, submit }) {
  const body = [intro && h("p", { class: "field" }, intro), fields.map(field)];
  return open({ title, body, label, danger, wide, submit: (shown) => submit(read(shown, fields)) });
}

export const show = (title, body) => open({ title, body, wide: true, close: t("close") });

function field(spec) {
  const id = `field-${spec.name}`;
  const help = spec.help && h("div", { class: "help", id: `${id}-help` }, spec.help);
  const described = spec.help ? `${id}-help` : null;
  const options = { id, name: spec.name, required: spec.required, "aria-describedby": described };
  if (spec.type === "check") {
    const box = h("input", { ...options, type: "checkbox", checked: spec.value });
    return h("div", { class: "field" }, h("label", { for: id }, box, spec.label), help);
  }
  if (spec.type === "radio") {
    const choices = spec.choices.map(([value, label, about]) =>
      h(
        "div",
        { class: "field" },
        h(
          "label",
          {},
          h("input", { type: "radio", name: spec.name, value, checked: value === spec.value }),
          label,
        ),
        about && h("div", { class: "help" }, about),
      ),
    );
    return h("fieldset", { class: "field" }, h("legend", {}, spec.label), choices);
  }
  return h("div", { class: "field" }, h("label", { for: id }, spec.label), input(spec, options), help);
}

function input(spec, options) {
  if (spec.type === "select") {
    const choices = spec.choices.map(([value, label]) =>
      h("option", { value, selected: String(value) === String(spec.value ?? "") }, label),
    );
    return h("select", options, choices);
  }
  // What is typed, and an example of it, is data.
  options.translate = "no";
  if (spec.type === "area") return h("textarea", { ...options, value: spec.value ?? "" });
  const value = spec.type === "time" && spec.value ? toInput(spec.value) : spec.value;
  const type = { number: "number", time: "datetime-local", password: "password" }[spec.type];
  const step = spec.type === "time" ? 1 : null;
  const { min, max, pattern, list, placeholder } = spec;
  return h("input", {
    ...options, type: type ?? "text", value, min, max, pattern, list, placeholder, step,
    autocomplete: "off", spellcheck: "false",
  });
}

function read(shown, fields) {
  const values = {};
  for (const { name, type } of fields) {
    const element = shown.elements.namedItem(name);
    if (type === "check") values[name] = element.checked;
    else if (type === "number") values[name] = element.value === "" ? null : Number(element.value);
    else if (type === "time") values[name] = fromInput(element.value);
    else values[name] = element.value;
  }
  return values;
}

/** A notice that goes by itself; wrong ones stay until they are closed. */
export function say(text, kind = "good") {
  const place = document.getElementById("said");
  const close = h("button", { "aria-label": t("close"), on: { click: () => note.remove() } }, "×");
  const role = kind === "bad" ? "alert" : "status";
  const note = h("div", { class: `note ${kind}`, role }, h("div", {}, text), close);
  place.append(note);
  if (kind !== "bad") setTimeout(() => note.remove(), 8000);
}
