// Movement: arrays by steps, for one role at a time.

const ROWS_AT_ONCE = 40;

function movementSection(id, run, cautions, showArray) {
  const result = section(id, "Movement",
    paragraph("How far each array moved since the save before: the root mean square of its difference, over that of the array. Of an array that lost something, the save measured it. Lossy files of other programs do not tell it."),
    ...cautions.map((note) => paragraph(visible(note), "caution")));
  const movement = run.figures.movement ?? [];
  const moving = run.arrays.map((_, index) => index).filter((index) => present(movement[index] ?? []).length);
  if (!moving.length) {
    result.append(paragraph(run.steps.length < 2 ? "There is no movement to show with fewer than two steps." : "No array has a movement that is defined.", "empty"));
    return { node: result, drawings: [] };
  }
  const order = rolesOf(run, moving);
  const edges = thresholds(moving.flatMap((index) => movement[index]));
  let role = order[0];
  let first = 0;
  const members = () => moving.filter((index) => run.arrays[index].role === role);
  const chart = figure("Relative movement of arrays over steps.", "Stronger colours mean more; empty cells are undefined. Diamonds are keyframes, triangles findings. Choose a cell to see its array.");
  const data = element("div");
  const status = element("span", { role: "status" });
  const turn = (by) => element("button", { type: "button", onclick: () => show(first + by) }, by < 0 ? "Earlier rows" : "Later rows");
  const [earlier, later] = [turn(-ROWS_AT_ONCE), turn(ROWS_AT_ONCE)];
  const pager = element("div", { class: "pager" }, earlier, status, later);
  result.append(choice("Show", order.map((value) => ({ value, label: roleName(value) })), (value) => {
    role = value;
    show(0);
  }), pager, chart.node, data);
  chart.chart.before(heatKey(edges));

  async function show(start) {
    const all = members();
    first = Math.max(0, Math.min(start, all.length - 1));
    const rows = all.slice(first, first + ROWS_AT_ONCE);
    pager.hidden = all.length <= ROWS_AT_ONCE;
    status.textContent = `Rows ${first + 1} to ${first + rows.length} of ${formatCount(all.length)}`;
    earlier.disabled = first === 0;
    later.disabled = first + rows.length >= all.length;
    const cells = rows.flatMap((index, row) => movement[index].map((value, x) => ({ x, row, value, index })))
      .filter(({ value }) => value !== null);
    data.replaceChildren(movementTables(run, rows, roleName(role)));
    return draw(chart, heatChart(cells, {
      stepLabels: run.steps.map(formatCount), rowLabels: rows.map((index) => shownName(run.arrays[index].name)), edges,
      rowHeight: rows.length > 25 ? 15 : 18, marks: placesOfMarks(run, marksOf(run)),
    }), {
      describe: ({ x, value, index }) => `${shorten(shownName(run.arrays[index].name), 80)}\nstep ${formatCount(run.steps[x])}: ${formatNumber(value)}`,
      click: ({ index, x }) => index !== undefined && showArray(index, run.steps[x]),
    });
  }
  return { node: result, drawings: [() => show(0)] };
}

// What the colours stand for.
function heatKey(edges) {
  const words = [`< ${formatNumber(edges[0], 2)}`, ...edges.map((edge) => `≥ ${formatNumber(edge, 2)}`)];
  return element("ul", { class: "key", "aria-label": "Colours" }, ...words.map((text, place) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = HEAT[place];
    return element("li", {}, swatch, text);
  }));
}

function movementTables(run, rows, what) {
  const movement = run.figures.movement;
  const steps = run.steps.map((step, x) => ({ step, x }));
  const summary = foldedTable("In short, as a table", () => table(`Movement of ${what}`, [
    { title: "array" }, { title: "median", number: true }, { title: "largest", number: true }, { title: "at step", number: true }, { title: "latest", number: true },
  ], rows.map((index) => {
    const values = movement[index];
    const most = largest(values);
    return [nameText(shownName(run.arrays[index].name)), formatNumber(median(values)), formatNumber(most),
      formatCount(most === null ? null : run.steps[values.indexOf(most)]), formatNumber(values.at(-1) ?? null)];
  })));
  const whole = foldedTable("Every value, as a table", () => table(`Movement of ${what}, by step`,
    [{ title: "array" }, ...steps.map(({ step }) => ({ title: formatCount(step), number: true }))],
    rows.map((index) => [nameText(shownName(run.arrays[index].name), 40), ...movement[index].map((value) => formatNumber(value, 3))])));
  return element("div", {}, summary, whole);
}
