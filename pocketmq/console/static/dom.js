/* Elements, and how a page is drawn again without losing focus, typing or scroll.
 *
 * 1. Text enters the document as text nodes only: no function here parses HTML.
 * 2. A page is built anew at each refresh; `patch` then changes the old tree into the new one, so that what
 *    did not change stays the same element. Children with `key` are matched by it, others by position.
 * 3. Handlers stand on the element ($on) and one listener per event type calls them, so patch can move them.
 */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "g", "rect", "circle", "text", "polyline"]);
const EVENTS = ["click", "input", "change", "submit", "keydown", "pointerdown", "pointermove", "pointerup", "pointerleave"];

/** h("button", {class: "small", on: {click}}, "text", node, [nodes], null) */
export function h(tag, options = {}, ...children) {
  const svg = SVG_TAGS.has(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") element.$on = value;
    else if (name === "key") element.$key = String(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  if (tag === "textarea" && options.value != null) {
    element.removeAttribute("value");
    children = [options.value];
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Data of users or of the broker: no translation, no hyphens. */
export const data = (text, options = {}) =>
  h("span", { translate: "no", ...options }, text ?? "");
export const code = (text, options = {}) => h("code", { translate: "no", ...options }, text ?? "");

/** Make the children of `parent` equal to `nodes`. */
export function draw(parent, ...nodes) {
  const wanted = document.createElement("div");
  append(wanted, nodes);
  patchChildren(parent, wanted);
}

function patch(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  old.$on = fresh.$on;
  // Once clicked, a box no longer follows its attribute.
  const ticked = fresh.hasAttribute("checked");
  if (old.hasAttribute("checked") !== ticked) old.checked = ticked;
  for (const { name } of [...old.attributes]) {
    // What the user opened stays open.
    if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) {
      old.removeAttribute(name);
    }
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  patchChildren(old, fresh);
}

function same(old, fresh) {
  return (
    old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && old.$key === fresh.$key
  );
}

function patchChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.$key) keyed.set(child.$key, child);
  let at = parent.firstChild;
  for (const fresh of [...wanted.childNodes]) {
    const found = fresh.$key ? keyed.get(fresh.$key) : at;
    if (found && same(found, fresh)) {
      if (found === at) at = at.nextSibling;
      else parent.insertBefore(found, at);
      patch(found, fresh);
    } else {
      parent.insertBefore(fresh, at);
      if (at && !at.$key && !fresh.$key) {
        const gone = at;
        at = at.nextSibling;
        gone.remove();
      }
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Call the nearest handler of the event on the way up from its target. */
function dispatch(event) {
  for (let at = event.target; at; at = event.bubbles ? at.parentNode : null) {
    const handler = at.$on?.[event.type];
    if (handler && !(event.type === "click" && at.disabled)) {
      handler(event, at);
      return;
    }
  }
}

for (const type of EVENTS) document.addEventListener(type, dispatch, type === "pointerleave");
