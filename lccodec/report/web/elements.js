// The few elements that the page is made of. Text is set as text, never as markup.

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const paragraph = (text, kind) => element("p", { class: kind }, text);

// A name from a file: short in the line, whole in its title or, where asked for, on a click.
function nameText(text, limit = 60) {
  const short = shorten(text, limit);
  const whole = visible(text);
  return element("span", { class: "name", title: short === whole ? null : whole.slice(0, 2000) }, short);
}

function wholeText(text, limit = 60) {
  const whole = visible(text);
  if (Array.from(whole).length <= limit) return element("span", { class: "name" }, whole);
  return element("details", { class: "whole" },
    element("summary", { class: "name" }, shorten(text, limit)),
    element("span", { class: "name", role: "group", tabindex: "0", "aria-label": "The whole text" }, whole));
}

function section(id, title, ...children) {
  const heading = element("h2", { id: `${id}-title` }, title);
  return element("section", { id, "aria-labelledby": heading.id }, heading, ...children);
}

let madeIds = 0;
const newId = (prefix) => `${prefix}-${(madeIds += 1)}`;

// columns: {title, number: right-aligned, wide: may break}; rows: texts or elements.
function table(caption, columns, rows, { lines = 0 } = {}) {
  const head = element("tr", {}, ...columns.map(({ title, number }) =>
    element("th", { scope: "col", class: number ? "number" : null }, title)));
  const cell = (value, index) => index
    ? element("td", { class: columns[index].number ? "number" : null }, value)
    : element("th", { scope: "row", class: columns[0].number ? "number" : null }, value);
  const body = element("tbody");
  const result = element("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": caption },
    element("table", {}, element("caption", {}, caption), element("thead", {}, head), body));
  return limited(result, body, rows, (row) => element("tr", {}, ...row.map(cell)), lines || rows.length);
}

// Puts what `make` makes of items into a parent; a button shows those beyond the limit.
function limited(whole, parent, items, make, limit) {
  parent.append(...items.slice(0, limit).map(make));
  if (items.length <= limit) return whole;
  const more = element("button", { type: "button", class: "more" }, `Show all ${formatCount(items.length)}`);
  more.addEventListener("click", () => {
    parent.append(...items.slice(limit).map(make));
    more.remove();
    whole.focus();
  });
  return element("div", {}, whole, more);
}

// A table that is made when it is opened.
function foldedTable(summary, make) {
  const details = element("details", { class: "data" }, element("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(make());
  });
  return details;
}

// Buttons of which one is chosen: radio buttons, so that arrow keys move between them.
function choice(legend, options, choose) {
  if (options.length < 2) return "";
  const name = newId("choice");
  return element("fieldset", { class: "choice" }, element("legend", {}, legend),
    ...options.map(({ value, label }, index) => element("label", {},
      element("input", { type: "radio", name, value, checked: index === 0, onchange: () => choose(value) }),
      element("span", {}, label))));
}

// A chart with its title, what it shows in words, and room for the same as a table.
function figure(title, words, ...after) {
  const chart = element("div", { class: "chart" });
  const node = element("figure", {},
    element("figcaption", {}, element("strong", {}, title), words ? ` ${words}` : null), chart, ...after);
  return { node, chart, title: words ? `${title}. ${words}` : title };
}

function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== null).map(([term, value]) =>
    element("div", {}, element("dt", {}, term), element("dd", {}, value))));
}

// A raster as a picture: `stops` are the colours of its bytes, from 1 to 255. A pixel without a
// number has the colour of the paper. Colours are those of the theme, also if that changes.
function rasterPicture({ rows, columns, pixels }, stops, words) {
  const svg = (tag, properties) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(properties)) node.setAttribute(name, value);
    return node;
  };
  const picture = svg("svg", { class: "raster", role: "img", "aria-label": words, viewBox: `0 0 ${columns} ${rows}`, preserveAspectRatio: "none" });
  picture.style.aspectRatio = Math.min(Math.max(columns / rows, 1 / 2), 3);
  const shades = new Map(); // of each, the pixels as runs of a row
  const shadeOf = (byte) => (byte ? Math.round(((byte - 1) / 254) * SHADES) : -1);
  for (let row = 0; row < rows; row += 1) {
    for (let x = 0, next = 0; x < columns; x = next) {
      const shade = shadeOf(pixels[row * columns + x]);
      do next += 1; while (next < columns && shadeOf(pixels[row * columns + next]) === shade);
      if (shade < 0) continue;
      if (!shades.has(shade)) shades.set(shade, []);
      shades.get(shade).push(`M${x} ${row}h${next - x}v1H${x}z`);
    }
  }
  for (const [shade, runs] of shades) {
    const path = svg("path", { d: runs.join("") });
    path.style.fill = between(stops, shade / SHADES);
    picture.append(path);
  }
  return picture;
}

const SHADES = 48; // distances between the colours of a picture

// The colour at a share of the way from the first of some to the last.
function between(stops, share) {
  const place = Math.min(share * (stops.length - 1), stops.length - 1);
  const before = Math.min(Math.floor(place), stops.length - 2);
  return `color-mix(in srgb, ${stops[before + 1]} ${Math.round((place - before) * 100)}%, ${stops[before]})`;
}
