// Two states beside each other: what differs, and by how much.

function comparisonSection(id, comparison) {
  const order = Object.keys(ROLE_NAMES);
  const rows = [...comparison.rows].sort((a, b) => order.indexOf(a.role) - order.indexOf(b.role)); // weights first
  const result = section(id, "Two states", element("p", {},
    "From ", nameText(comparison.left, 80), " to ", nameText(comparison.right, 80), ": ",
    `${plural(rows.length, "array")} changed, ${formatCount(comparison.unchanged)} did not.`));
  const drawings = [];
  if (rows.length) {
    const shown = rows.slice(0, 30);
    const which = rows.length > 30 ? "The first 30: weights first, those that differ most." : "";
    const relative = figure("Relative difference.", `Root mean square, over that of the left state. ${which}`.trim());
    const cosine = figure("Cosine of both.", `1 is the same direction. ${which}`.trim());
    result.append(element("div", { class: "pair" }, relative.node, cosine.node), table("Arrays that differ", [
      { title: "array" }, { title: "role" }, { title: "relative difference", number: true }, { title: "largest difference", number: true },
      { title: "cosine", number: true }, { title: "elements changed", number: true },
    ], rows.map((row) => [nameText(shownName(row.name)), roleName(row.role).replace(/s$/, ""), formatNumber(row.relative), formatNumber(row.largest),
      formatNumber(row.cosine, 6), formatPercent(row.share)]), { lines: 100 }));
    const bars = (made, key, digits, options) => () => draw(made, barsChart(
      shown.map((row) => ({ label: shownName(row.name), value: row[key], digits })), { labelExpr: NUMBER_LABELS, ...options }), {
      describe: ({ label, value }) => `${shorten(label, 80)}\n${formatNumber(value, digits)}`,
    });
    drawings.push(bars(relative, "relative", 4, {}), bars(cosine, "cosine", 6, { colour: "var(--first)" }));
  }
  const lists = [
    ["Only in the right one", comparison.appeared],
    ["Only in the left one", comparison.disappeared],
    ["With another type or shape", comparison.replaced],
    ["Other values that differ", comparison.scalars],
  ].filter(([, items]) => items.length);
  for (const [title, items] of lists) {
    result.append(element("h3", {}, `${title} (${formatCount(items.length)})`), namesList(items));
  }
  return { node: result, drawings };
}

function namesList(items) {
  const list = element("ul", { class: "names", tabindex: "-1" });
  return limited(list, list, items, (item) => element("li", {}, item.name === undefined ? wholeText(shownName(item)) : changeText(item)), 100);
}

function changeText({ name, old, new: now }) {
  return element("span", {}, wholeText(shownName(name)), ": ", wholeText(String(old)), " became ", wholeText(String(now)));
}
