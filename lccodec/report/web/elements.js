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
