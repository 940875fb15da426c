"""Looks: what every page must keep to, asked of the browser. Each script returns a list of complaints."""

# Names, headings, landmarks and tables, as a screen reader needs them (WCAG 1.3.1, 2.4.6, 4.1.2).
ACCESSIBILITY = """
const found = [];
const seen = (each) => each.checkVisibility();
const tell = (what, each) => found.push(`${what}: ${each.outerHTML.slice(0, 160)}`);
const name = (each) => (each.getAttribute('aria-label') || each.labels?.[0]?.textContent || each.textContent
  || document.getElementById(each.getAttribute('aria-labelledby') ?? '')?.textContent || '').trim();
const all = (css) => [...document.querySelectorAll(css)].filter(seen);
for (const css of ['header', 'main', ':is(nav[aria-label], #menu)']) {
  if (!all(css).length) found.push(`no ${css}`);
}
if (all('h1').length !== 1) found.push(`${all('h1').length} h1`);
let level = 1;
for (const each of all('main :is(h1, h2, h3, h4)')) {
  const next = Number(each.localName[1]);
  if (next > level + 1) tell(`heading leaps from ${level} to ${next}`, each);
  level = next;
  if (!name(each)) tell('empty heading', each);
}
for (const each of all('button, a, select, textarea, input, summary, [role=region], [role=img], dialog')) {
  // What is typed into a field is not its name.
  const label = each.getAttribute('aria-label') || each.labels?.[0]?.textContent.trim();
  if (each.localName === 'input' ? !label : !name(each)) tell('no name', each);
}
for (const each of all('th')) if (!each.scope) tell('th without scope', each);
for (const each of all('table')) if (!each.caption?.textContent.trim()) tell('table without caption', each);
for (const each of all('nav')) if (!each.getAttribute('aria-label')) tell('nav without name', each);
const ids = [...document.querySelectorAll('[id]')].map(({id}) => id);
for (const id of ids) if (ids.filter((each) => each === id).length > 1) found.push(`id ${id} twice`);
for (const each of document.querySelectorAll('[tabindex]')) {
  if (each.tabIndex > 0) tell('tabindex above 0', each);
}
for (const each of document.querySelectorAll('[aria-describedby]')) {
  if (!document.getElementById(each.getAttribute('aria-describedby'))) tell('describedby nothing', each);
}
if (!document.documentElement.lang || !document.title.includes('·')) found.push('no language or title');
return [...new Set(found)];
"""

# What axe-core finds by these of its rules; its script has been run on the page before.
AXE = """
const options = {runOnly: arguments[0], resultTypes: ['violations'], preload: false};
// Of a long table's rows, which are alike, some are enough; our own looks are at all of them.
const where = {exclude: [['tbody tr:nth-child(n+31)']]};
return axe.run(where, options).then(({violations}) => violations.flatMap(({id, help, nodes}) =>
  nodes.map(({html}) => `${id}: ${help}: ${html.slice(0, 160)}`)));
"""
# WCAG 2.2 at levels A and AA, and what Deque thinks good; those whose outcome depends on colours, of which
# CONTRAST looks at the contrast, too, in a hundredth of the time.
ALL_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["link-in-text-block"]

# Text against its ground: at least 4.5, or 3 when it is large (WCAG 1.4.3).
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const known = new Map();
const rgba = (colour) => {
  if (!known.has(colour)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    known.set(colour, [r, g, b, a / 255]);
  }
  return known.get(colour);
};
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
const ground = (each) => {
  const layers = [];
  for (let at = each; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
};
const light = (colour) => {
  const [r, g, b] = colour.map((each) => {
    const part = each / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const found = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const each = walker.currentNode.parentElement;
  const words = walker.currentNode.data.trim().slice(0, 40);
  if (!words || !each.checkVisibility() || each.closest('script, :disabled, option')) continue;
  const style = getComputedStyle(each);
  const below = ground(each);
  const text = over(rgba(each.namespaceURI.includes('svg') ? style.fill : style.color), below);
  const [dark, bright] = [light(below), light(text)].sort((a, b) => a - b);
  const contrast = (bright + 0.05) / (dark + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (contrast < (large ? 3 : 4.5)) {
    found.add(`${contrast.toFixed(2)} ${each.localName}.${each.className} "${words}"`);
  }
}
return [...found];
"""

# What people read that is not data: text, and the attributes that are read out. Data is marked
# translate=no, sentences of the broker lang=en.
SENTENCES = """
const mine = (each) => !each.closest('[translate="no"], [lang]:not(html), code, pre, script, noscript');
const found = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.data.trim();
  if (text && mine(walker.currentNode.parentElement)) found.add(text);
}
for (const each of document.querySelectorAll('[aria-label], [title], [placeholder]')) {
  for (const name of ['aria-label', 'title', 'placeholder']) {
    const text = each.getAttribute(name);
    if (text && mine(each)) found.add(text);
  }
}
return [...found];
"""

# What stands out of the window, tables and bodies aside, which scroll by themselves (WCAG 1.4.10).
TOO_WIDE = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll('body *')]
  .filter((each) => !each.parentElement.closest('.table, pre, .hidden-text, svg'))
  // What is folded keeps the size that it was laid out with last, for a wider window.
  .filter((each) => each.checkVisibility())
  .filter((each) => each.getBoundingClientRect().right > width + 1)
  .map((each) => each.outerHTML.slice(0, 100));
"""
# Names of columns in front of their cells, as a telephone shows them, that are higher than the cell: they
# would lie over the next one.
COVERING = """
return [...document.querySelectorAll('.table td[data-label]')]
  .filter((each) => parseFloat(getComputedStyle(each, '::before').height) > each.clientHeight + 1)
  .map((each) => each.outerHTML.slice(0, 100));
"""
# Pages and tables that can be scrolled sideways: what is out of sight is not looked for.
SCROLLING = """
return [document.documentElement, ...document.querySelectorAll('.table')]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.scrollWidth} of ${each.clientWidth}: ${each.outerHTML.slice(0, 100)}`);
"""
