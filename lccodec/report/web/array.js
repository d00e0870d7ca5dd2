// One array: found by its name, looked at step by step.

const FIGURES = [
  { key: "rms", title: "Root mean square" },
  { key: "movement", title: "Relative movement" },
  { key: "error", title: "Error, in movements" },
  { key: "lag", title: "Lag, in intervals" },
  { key: "rank", title: "Effective rank of the change", optional: true },
  { key: "zeros", title: "Share of zeros" },
  { key: "range", title: "Smallest and largest value" },
  { key: "not_finite", title: "Elements that are not finite" },
];

// Of these a chart of zeros says nothing.
const ZERO_IS_NOTHING = ["error", "lag", "zeros", "not_finite"];

function arraySection(id, run, place) {
  const result = section(id, "One array");
  if (!run.arrays.length) {
    result.append(paragraph("There is no array.", "empty"));
    return { node: result, drawings: [], show: () => {} };
  }
  const first = firstFinding(run);
  let current = first?.array ?? 0;
  let step = first?.step ?? Math.max(0, run.steps.length - 1);
  const search = element("input", { type: "search", id: `${id}-search`, autocomplete: "off", spellcheck: "false", oninput: () => list() });
  const found = element("select", { id: `${id}-found`, size: 6, onchange: () => choose(Number(found.value), step) });
  const status = element("p", { role: "status", class: "small" });
  const slider = element("input", { type: "range", id: `${id}-step`, min: 0, max: Math.max(0, run.steps.length - 1), value: step, step: 1, oninput: () => choose(current, Number(slider.value)) });
  const output = element("output", { for: slider.id });
  const detail = element("div");
  result.append(
    element("div", { class: "finder" },
      element("div", {}, element("label", { for: search.id }, "Search the names"), search, status),
      element("div", {}, element("label", { for: found.id }, "Arrays"), found)),
    detail);
  let open = [];
  const lower = run.arrays.map(({ name }) => shownName(name).toLowerCase());

  function list() {
    const wanted = search.value.trim().toLowerCase().split(/\s+/);
    const matches = lower.flatMap((name, index) => (wanted.every((word) => name.includes(word)) ? [index] : []));
    found.replaceChildren(...matches.slice(0, 500).map((index) =>
      element("option", { value: index, selected: index === current }, shorten(shownName(run.arrays[index].name), 80))));
    status.textContent = `${formatCount(matches.length)} of ${plural(run.arrays.length, "name")} found${matches.length > 500 ? ", the first 500 are listed" : ""}`;
    if (matches.length && !matches.includes(current)) show(matches[0]);
  }

  function setStep(place) {
    step = place;
    output.textContent = run.steps.length ? formatCount(run.steps[place]) : "–";
    slider.setAttribute("aria-valuetext", `step ${output.textContent}`);
    for (const { made, key } of open) setData(made, "chosen", [{ [key]: key === "x" ? place : run.steps[place] }]);
    atStep();
  }

  let atStep = () => {};
  let shown = 0;

  async function show(index) {
    current = index;
    if (found.value !== String(index)) found.value = String(index);
    open.forEach(({ made }) => drop(made));
    const view = arrayView(run, index, () => step);
    open = view.parts;
    atStep = view.atStep;
    const mine = (shown += 1);
    const control = run.steps.length > 1 ? element("div", { class: "slider" }, element("label", { for: slider.id }, "Step"), slider, output) : null;
    detail.replaceChildren(...[view.head, control, view.body].filter(Boolean));
    setStep(step);
    for (const drawing of view.drawings) {
      if (mine === shown) await drawing(); // else another array was chosen meanwhile
    }
  }

  // What the reader chooses stands in the address.
  function choose(index, at) {
    if (index !== current) show(index);
    if (at !== step) setStep(at);
    keepLink(place, run.arrays[index].name, run.steps[at] ?? null);
  }

  list();
  return { node: result, drawings: [() => show(current)], show: (index, at = null) => {
    search.value = "";
    current = index;
    list();
    result.scrollIntoView();
    found.focus({ preventScroll: true });
    const later = run.steps.findIndex((each) => at !== null && each >= at); // the step itself, or the next shown one
    if (later >= 0) {
      step = later;
      slider.value = later;
    }
    return show(index);
  } };
}

// Where the reader should look first; null if no finding is of an array that is shown.
function firstFinding(run) {
  for (const flag of run.flags) {
    const index = flag.severity === "note" ? -1 : run.arrays.findIndex(({ name }) => arraysOf(flag).includes(name));
    const at = run.steps.findIndex((each) => flag.step !== null && each >= flag.step);
    if (index >= 0) return { array: index, step: at < 0 ? null : at };
  }
  return null;
}

// Keyframes, and what stands out of one array.
function marksFor(run, array) {
  return marksOf({ ...run, flags: run.flags.filter((flag) => arraysOf(flag).includes(array.name)) });
}

function arrayView(run, index, step) {
  const array = run.arrays[index];
  const head = element("div", {}, element("h3", { class: "name long", tabindex: array.name.length > 200 ? "0" : null }, visible(shownName(array.name))), facts([
    ["type", visible(array.dtype)], ["shape", array.shape.length ? array.shape.map(formatCount).join(" × ") : "one value"],
    ["role", roleName(array.role).replace(/s$/, "")], ["why this role", array.why ? visible(array.why) : null],
    ["stored", `${formatBytes(array.stored_bytes)} for ${formatBytes(array.nbytes)} (${formatRatio(array.nbytes, array.stored_bytes)})`],
  ]));
  const values = element("div");
  const body = element("div", {}, values);
  const parts = [];
  const drawings = [];
  const histogram = run.histograms[index];
  const quantiles = run.quantiles[index];
  let barsAt = () => {};
  let boxesAt = () => {};
  const atStep = () => {
    barsAt();
    boxesAt();
    values.replaceChildren(run.steps.length ? facts(FIGURES.filter(({ key, optional }) => !optional || present(run.figures[key]?.[index] ?? []).length).map(({ key, title }) => [title, valueText(run, index, key, step())])) : "");
  };
  if (quantiles) {
    const one = figure("Values at the chosen step, measured at the save.", "The line goes from the smallest to the largest, the boxes hold the middle 38, 68 and 87 % of the elements, the tick is the median.");
    const over = figure("Values over time, measured at each save.", "As above: extremes, the middle 87, 68 and 38 %, and the median.");
    body.append(element("div", { class: run.steps.length > 1 ? "pair" : null }, one.node, run.steps.length > 1 ? over.node : null));
    const rows = () => boxesOf(quantiles[step()]);
    boxesAt = () => setData(one, "boxes", rows());
    const known = quantiles.filter((row) => row[0] !== null);
    const ends = [Math.min(...known.map((row) => row[0])), Math.max(...known.map((row) => row[row.length - 1]))];
    drawings.push(() => draw(one, boxChart(rows, ends), { describe: boxText }));
    if (run.steps.length > 1) {
      parts.push({ made: over, key: "step" });
      const points = quantiles.flatMap((row, x) => boxesOf(row).map((box) => ({ ...box, step: run.steps[x], row })));
      drawings.push(() => draw(over, bandChart(points, { marks: marksFor(run, array), step: () => run.steps[step()] }), {
        describe: ({ step: at, row }) => `step ${formatCount(at)}\n${row.map((value) => formatNumber(value)).join("\n")}`,
      }));
    }
    body.append(foldedTable("What the saves measured, as a table", () => quantilesTable(run, index)));
  }
  if (histogram && run.steps.length) {
    const one = figure("Values at the chosen step.", "");
    const over = figure("Histogram over time.", "Stronger colours mean more; the line is the chosen step, diamonds are keyframes, triangles findings.");
    body.append(element("div", { class: run.steps.length > 1 ? "pair" : null }, one.node, run.steps.length > 1 ? over.node : null));
    const rows = () => histogramRows(histogram, step());
    barsAt = () => setData(one, "bars", rows());
    drawings.push(() => draw(one, histogramChart(rows), {
      describe: ({ low, high, count }) => `${formatNumber(low)} to ${formatNumber(high)}\nsome ${formatNumber(count, 3)} elements`,
    }));
    if (run.steps.length > 1) {
      parts.push({ made: over, key: "x" });
      drawings.push(() => draw(over, densityChart(densityCells(histogram), { stepLabels: run.steps.map(formatCount), chosen: step, marks: placesOfMarks(run, marksFor(run, array)) }), {
        describe: ({ x, low, high, count }) => `step ${formatCount(run.steps[x])}\n${formatNumber(low)} to ${formatNumber(high)}\nsome ${formatNumber(count, 3)} elements`,
      }));
    }
    body.append(foldedTable("The histograms, as a table", () => histogramTable(run, index)));
  } else if (!quantiles) {
    body.append(paragraph("There is no histogram: the array has no finite value, or was left out.", "empty"));
  }
  if (run.steps.length > 1) {
    const small = element("div", { class: "multiples" });
    body.append(small);
    for (const { key, title } of FIGURES) {
      const lines = figureLines(run, index, key);
      if (!lines.points.length || (ZERO_IS_NOTHING.includes(key) && lines.points.every(({ value }) => value === 0))) continue;
      const made = figure(title, null);
      small.append(made.node);
      parts.push({ made, key: "step" });
      drawings.push(() => draw(made, linesChart(lines.points, { ...lines, marks: marksFor(run, array), step: () => run.steps[step()] }), {
        describe: ({ step: at, name, value }) => `step ${formatCount(at)}\n${name}: ${formatNumber(value)}`,
      }));
    }
    body.append(foldedTable("Every figure, as a table", () => arrayTable(run, index)));
  }
  return { head, body, parts, drawings, atStep };
}

const NAMES = { minimum: "smallest", maximum: "largest" };

function figureLines(run, index, key) {
  const keys = key === "range" ? ["maximum", "minimum"] : [key];
  const names = keys.map((one) => NAMES[one] ?? FIGURES.find((figureOf) => figureOf.key === one).title.toLowerCase());
  const points = keys.flatMap((one, place) => (run.figures[one]?.[index] ?? []).map((value, x) => ({ step: run.steps[x], value, name: names[place] })))
    .filter(({ value }) => value !== null);
  return { points, names, colours: ["var(--delta)", "var(--keyframe)"].slice(0, keys.length) };
}

function valueText(run, index, key, place) {
  const at = (one) => run.figures[one]?.[index]?.[place] ?? null;
  if (key === "range") return `${formatNumber(at("minimum"))} to ${formatNumber(at("maximum"))}`;
  return key === "zeros" ? formatPercent(at(key)) : formatNumber(at(key));
}

function histogramRows({ low, high, counts, peaks }, place) {
  const heights = counts[place];
  const [from, to] = low < high ? [low, high] : [low - (Math.abs(low) / 2 || 0.5), low + (Math.abs(low) / 2 || 0.5)];
  const width = (to - from) / heights.length;
  return Array.from(heights, (height, bin) => ({
    low: from + bin * width, high: from + (bin + 1) * width, count: (height / 255) ** 2 * peaks[place],
  }));
}

// What lies between the quantiles: extremes, three boxes, and the median, if they are known.
const QUANTILE_NAMES = ["smallest", "6.7 %", "15.9 %", "30.9 %", "median", "69.1 %", "84.1 %", "93.3 %", "largest"];
const INSIDE = ["all elements", "the middle 87 %", "the middle 68 %", "the middle 38 %", "the median"];

function boxesOf(row) {
  if (row[0] === null) return [];
  return INSIDE.map((_, level) => ({ low: row[level], high: row[row.length - 1 - level], level }));
}

const boxText = ({ low, high, level }) => `${INSIDE[level]}\n${level === 4 ? formatNumber(low) : `${formatNumber(low)} to ${formatNumber(high)}`}`;

function quantilesTable(run, index) {
  return table(`What the saves measured of ${shorten(shownName(run.arrays[index].name), 60)}, by step`,
    [{ title: "step", number: true }, ...QUANTILE_NAMES.map((title) => ({ title, number: true }))],
    run.steps.map((step, x) => [formatCount(step), ...run.quantiles[index][x].map((value) => formatNumber(value))]));
}

function densityCells(histogram) {
  return histogram.counts.flatMap((heights, x) => histogramRows(histogram, x)
    .map((row, bin) => ({ ...row, x, value: heights[bin] / 255 })).filter(({ value }) => value > 0));
}

function arrayTable(run, index) {
  const keys = Object.keys(run.figures);
  return table(`${shorten(shownName(run.arrays[index].name), 60)}, by step`,
    [{ title: "step", number: true }, ...keys.map((key) => ({ title: key.replace("_", " "), number: true }))],
    run.steps.map((step, x) => [formatCount(step), ...keys.map((key) => formatNumber(run.figures[key][index]?.[x] ?? null))]));
}

function histogramTable(run, index) {
  const histogram = run.histograms[index];
  const bins = histogramRows(histogram, 0);
  return table(`Elements of ${shorten(shownName(run.arrays[index].name), 60)} by value and step, rounded`,
    [{ title: "step", number: true }, ...bins.map(({ low, high }) => ({ title: `${formatNumber(low, 3)} to ${formatNumber(high, 3)}`, number: true }))],
    run.steps.map((step, x) => [formatCount(step), ...histogramRows(histogram, x).map(({ count }) => formatNumber(count, 3))]));
}
