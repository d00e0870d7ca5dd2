// The charts as Vega-Lite specifications. Each function returns what `draw` asks for.

const INVISIBLE = { type: "point", size: 260, opacity: 0, filled: true, aria: false, tooltip: "x" };
const RULE = { type: "rule", color: "var(--mark)", strokeWidth: 1.5, aria: false };
const TIP = { aria: false, tooltip: "x" };

// Numbers as the axes of charts show them.
const NUMBER_LABELS = "datum.value == 0 || abs(datum.value) >= 1e-3 && abs(datum.value) < 1e6 ? format(datum.value, ',.4~r') : format(datum.value, '.2~e')";
const numberAxis = (extra = {}) => ({ title: null, labelExpr: NUMBER_LABELS, tickCount: 4, ...extra });
const stepAxis = (width) => ({ title: "step", format: ",~d", tickMinStep: 1, tickCount: Math.max(2, width / 90), grid: false });

// Bytes as the axis of a chart shows them.
const BYTE_LABELS = "datum.value >= 1e9 ? format(datum.value / 1e9, '~g') + ' GB' : datum.value >= 1e6 ? "
  + "format(datum.value / 1e6, '~g') + ' MB' : datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' kB' : datum.value";

// Ticks of a logarithmic axis: each power of ten, or closer where there are few.
function powerTicks(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)].map(Math.log10);
  const [low, high] = [Math.floor(least), Math.ceil(most)];
  const parts = most - least > 2 ? [1] : [1, 2, 5];
  return Array.from({ length: high - low + 1 }, (_, index) => parts.map((part) => part * 10 ** (low + index))).flat();
}

const byteAxis = (values) => numberAxis({ labelExpr: BYTE_LABELS, values: powerTicks(values) });

const KIND_SHAPES = { keyframe: "diamond", delta: "circle", interpolated: "triangle-up" };

function sizesChart(points) {
  const kinds = ["keyframe", "delta", "interpolated"].filter((kind) => points.some((point) => point.kind === kind));
  return (width) => ({
    height: 200, data: { values: points }, mark: { type: "point", filled: true, opacity: 0.9, ...TIP },
    encoding: {
      x: { field: "step", type: "quantitative", axis: stepAxis(width), scale: { zero: false } },
      y: { field: "bytes", type: "quantitative", axis: byteAxis(points.map(({ bytes }) => bytes)), scale: { type: "log" } },
      color: { field: "kind", type: "nominal", title: null, scale: { domain: kinds, range: kinds.map((kind) => COLOURS[kind]) } },
      size: { condition: { test: "datum.kind === 'keyframe'", value: 90 }, value: 40 },
      shape: { field: "kind", type: "nominal", title: null, scale: { domain: kinds, range: kinds.map((kind) => KIND_SHAPES[kind]) } },
    },
  });
}

function growthChart(points, names) {
  return (width) => ({
    height: 200, data: { values: points },
    encoding: {
      x: { field: "step", type: "quantitative", axis: stepAxis(width), scale: { zero: false } },
      y: { field: "bytes", type: "quantitative", axis: byteAxis(points.map(({ bytes }) => bytes)), scale: { type: "log" } },
    },
    layer: [
      {
        mark: { type: "line", strokeWidth: 2, aria: false },
        encoding: {
          color: { field: "name", type: "nominal", title: null, scale: { domain: names, range: [COLOURS.full, COLOURS.delta] }, legend: { symbolType: "stroke", labelLimit: width } },
          strokeDash: { field: "name", type: "nominal", title: null, scale: { domain: names, range: [[5, 4], [1, 0]] } },
        },
      },
      { mark: INVISIBLE },
    ],
  });
}

// Bars with a label each: rows {label, value, text}.
function barsChart(rows, { value = "value", colour = "var(--delta)", labelExpr = BYTE_LABELS, scale = {} } = {}) {
  const labels = rows.map(({ label }) => label);
  return (width) => ({
    height: 22 * rows.length, data: { values: rows.map((row, place) => ({ ...row, place })) },
    params: [{ name: "labels", value: rowNames(labels, width) }],
    mark: { type: "bar", color: colour, cornerRadiusEnd: 2, height: { band: 0.62 }, ...TIP },
    encoding: {
      y: { field: "place", type: "ordinal", axis: rowAxis(width, "labels") },
      x: { field: value, type: "quantitative", scale, axis: numberAxis({ labelExpr, tickCount: Math.max(2, width / 140), domain: false }) },
    },
  });
}

const labelWidth = (width) => (width < 500 ? 160 : 250);

// Names as they fit beside the rows. Where room is scarce, all lose the folders that they share, and
// longer ones their beginning, or their middle if only that leaves them different.
function rowNames(names, width) {
  const shared = width < 500 ? sharedFolders(names) : 0;
  const limit = Math.floor(labelWidth(width) / 7.2);
  const own = names.map((name) => (shared ? `…${name.slice(shared)}` : name));
  const [ends, both] = [shortenedAtStart, shorten].map((cut) => own.map((name) => cut(name, limit)));
  return new Set(ends).size < new Set(both).size ? both : ends;
}

function shortenedAtStart(text, limit) {
  const characters = Array.from(visible(text));
  return characters.length <= limit ? characters.join("") : `…${characters.slice(1 - limit).join("")}`;
}

function sharedFolders(names) {
  let shared = names.length > 1 ? Math.min(names[0].length, 200) : 0;
  for (const name of names) {
    while (!name.startsWith(names[0].slice(0, shared))) shared -= 1;
  }
  return names.length ? Math.max(...["/", "."].map((mark) => names[0].slice(0, shared).lastIndexOf(mark))) + 1 : 0;
}

const rowAxis = (width, labels) => ({
  title: null, labelExpr: `${labels}[datum.value]`, labelLimit: labelWidth(width), ticks: false, domain: false, labelOverlap: "greedy",
});

// Eight thresholds, evenly apart in the logarithm, between nearly all of the values.
function thresholds(values) {
  const sorted = present(values).filter((value) => value > 0).sort((a, b) => a - b);
  if (!sorted.length) return [1e-3, 1e-2, 1e-1, 1];
  const at = (share) => Math.log10(sorted[Math.round(share * (sorted.length - 1))]);
  const low = at(0.02);
  const high = Math.max(at(0.98), low + 0.8);
  const edges = HEAT.slice(1).map((_, index) => Number((10 ** (low + ((high - low) * (index + 0.5)) / 8)).toPrecision(2)));
  return [...new Set(edges)];
}

const MARKS = {
  keyframe: { type: "point", filled: true, size: 34, opacity: 1, aria: false, shape: "diamond", color: "var(--keyframe)" },
  finding: { type: "point", filled: true, size: 50, opacity: 1, aria: false, shape: "triangle-down", color: "var(--bad)" },
};

// Keyframes and findings at a height each; nothing where there are none.
const marksLayers = (marks, heights) => Object.keys(MARKS).map((kind) => ({
  data: { values: marks.filter((mark) => mark.kind === kind) }, mark: MARKS[kind], encoding: { y: { value: heights[kind] } },
})).filter(({ data }) => data.values.length);

// Rows by steps: cells {x, y, value}; labels of both; `edges` part the values in classes of colour.
function heatChart(cells, { stepLabels, rowLabels, edges, y = "row", rowHeight = 16, marks = [] }) {
  const range = HEAT.slice(0, edges.length + 1);
  return (width) => ({
    height: rowHeight * rowLabels.length, data: { values: cells }, view: { fill: "var(--none)", stroke: null },
    params: [
      { name: "stepLabels", value: stepLabels },
      { name: "rowLabels", value: rowNames(rowLabels, width) },
    ],
    encoding: {
      x: { field: "x", type: "ordinal", scale: { domain: stepLabels.map((_, index) => index) }, axis: {
        title: "step", labelExpr: "stepLabels[datum.value]", labelAngle: 0, ticks: false, domain: false,
        values: everyNth(stepLabels.length, width < 500 ? 4 : 10), labelOverlap: true,
      } },
    },
    layer: [
      {
        mark: { type: "rect", ...TIP },
        encoding: {
          y: { field: y, type: "ordinal", scale: { domain: rowLabels.map((_, index) => index) }, axis: rowAxis(width, "rowLabels") },
          color: { field: "value", type: "quantitative", scale: { type: "threshold", domain: edges, range }, legend: null },
        },
      },
      ...marksLayers(marks, { keyframe: -6, finding: -7 }),
    ],
  });
}

const everyNth = (count, most) => {
  const stride = Math.max(1, Math.ceil(count / most));
  return Array.from({ length: Math.ceil(count / stride) }, (_, index) => index * stride);
};

// Lines over steps: points {step, value, name}; a rule stands at the chosen step.
// Keyframes are marked on the axis, and what stands out above the lines.
function linesChart(points, { names, colours, marks = [], step = null, height = 110, log = false, bytes = false, steps = null }) {
  const several = names.length > 1;
  const found = marks.filter(({ kind }) => kind === "finding");
  return (width) => ({
    height, data: { values: points }, encoding: {
      x: { field: "step", type: "quantitative", axis: stepAxis(width), scale: { zero: false, ...(steps ? { domain: steps, nice: false } : {}) } },
      y: { field: "value", type: "quantitative", axis: numberAxis({ ...(bytes ? { labelExpr: BYTE_LABELS } : {}), ...(log ? { values: powerTicks(points.map(({ value }) => value)) } : {}) }), scale: log ? { type: "log", nice: false, padding: 8 } : { zero: false } },
    },
    layer: [
      ...(step ? [{ data: { name: "chosen", values: [{ step: step() }] }, mark: RULE, encoding: { y: null } }] : []),
      {
        mark: { type: "line", strokeWidth: 1.75, point: points.length > 80 * names.length ? false : { size: 14, filled: true }, aria: false },
        encoding: { color: { field: "name", type: "nominal", title: null, scale: { domain: names, range: colours }, legend: several ? { symbolType: "stroke", columns: width < 400 ? 2 : 4 } : null } },
      },
      ...(found.length ? [{ data: { values: found }, mark: { ...RULE, color: "var(--bad)", strokeWidth: 1, strokeDash: [3, 3] }, encoding: { y: null } }] : []),
      ...marksLayers(marks, { keyframe: height, finding: -4 }),
      { mark: INVISIBLE },
    ],
  });
}

// One histogram, of bars {low, high, count}; `rows` gives those to begin with.
function histogramChart(rows) {
  return (width) => ({
    height: 180, data: { name: "bars", values: rows() },
    mark: { type: "bar", color: "var(--delta)", binSpacing: 0.5, ...TIP },
    encoding: {
      x: { field: "low", type: "quantitative", bin: "binned", axis: numberAxis({ title: "value", tickCount: Math.max(2, width / 110), grid: false }), scale: { zero: false } },
      x2: { field: "high" },
      y: { field: "count", type: "quantitative", axis: numberAxis({ title: "elements" }) },
    },
  });
}

// Histograms over time: cells {x, low, high, value}, where `value` is the height of a bar, 0 to 1.
function densityChart(cells, { stepLabels, chosen, marks = [] }) {
  const edges = HEAT.slice(1).map((_, index) => (index + 0.5) / 8);
  return (width) => ({
    height: 220, data: { values: cells }, view: { fill: "var(--heat-0)", stroke: null },
    params: [{ name: "stepLabels", value: stepLabels }],
    encoding: {
      x: { type: "ordinal", field: "x", scale: { domain: stepLabels.map((_, index) => index) }, axis: {
        title: "step", labelExpr: "stepLabels[datum.value]", labelAngle: 0, ticks: false, domain: false,
        values: everyNth(stepLabels.length, width < 500 ? 4 : 8), labelOverlap: true,
      } },
    },
    layer: [
      {
        mark: { type: "rect", ...TIP },
        encoding: {
          y: { field: "low", type: "quantitative", axis: numberAxis({ title: "value", tickCount: 6, grid: false }), scale: { zero: false, nice: false } },
          y2: { field: "high" },
          color: { field: "value", type: "quantitative", scale: { type: "threshold", domain: edges, range: HEAT }, legend: null },
        },
      },
      { data: { name: "chosen", values: [{ x: chosen() }] }, mark: RULE },
      ...marksLayers(marks, { keyframe: -6, finding: -7 }),
    ],
  });
}

// What a save measured of an array, as nested boxes {low, high, level}; the level of the median is 4.
// The axis is that of all steps, between the given ends.
function boxChart(rows, ends) {
  return (width) => ({
    height: 70, data: { name: "boxes", values: rows() },
    encoding: { x: { field: "low", type: "quantitative", axis: numberAxis({ title: "value", tickCount: Math.max(2, width / 110), grid: false }), scale: { zero: false, domain: ends } } },
    layer: [
      { transform: [{ filter: "datum.level == 0" }], mark: { type: "rule", color: "var(--delta)", strokeWidth: 1.5, ...TIP }, encoding: { x2: { field: "high" } } },
      { transform: [{ filter: "datum.level > 0 && datum.level < 4" }], mark: { type: "bar", color: "var(--delta)", opacity: 0.35, height: 34, ...TIP }, encoding: { x2: { field: "high" } } },
      { transform: [{ filter: "datum.level == 4" }], mark: { type: "tick", color: "var(--ink)", thickness: 2, size: 40, ...TIP } },
    ],
  });
}

// The same over the steps, as nested bands: {step, low, high, level}.
function bandChart(rows, { marks = [], step }) {
  return (width) => ({
    height: 220, data: { values: rows }, encoding: {
      x: { field: "step", type: "quantitative", axis: stepAxis(width), scale: { zero: false } },
      y: { field: "low", type: "quantitative", axis: numberAxis({ title: "value", tickCount: 6 }), scale: { zero: false } },
    },
    layer: [
      { data: { name: "chosen", values: [{ step: step() }] }, mark: RULE, encoding: { y: null } },
      ...[0, 1, 2, 3].map((level) => ({
        transform: [{ filter: `datum.level == ${level}` }],
        mark: { type: "area", color: "var(--delta)", opacity: level ? 0.3 : 0.12, aria: false }, encoding: { y2: { field: "high" } },
      })),
      { transform: [{ filter: "datum.level == 4" }], mark: { type: "line", color: "var(--ink)", strokeWidth: 1.75, aria: false } },
      ...marksLayers(marks, { keyframe: 220, finding: -4 }),
      { transform: [{ filter: "datum.level == 4" }], mark: INVISIBLE },
    ],
  });
}

// A point for each array: {x, y, role}.
function scatterChart(points, roles, { x, y }) {
  const shapes = { weight: "circle", first_moment: "triangle-up", second_moment: "square", other: "cross" };
  return (width) => ({
    height: 260, data: { values: points }, mark: { type: "point", size: 50, strokeWidth: 1.75, ...TIP },
    encoding: {
      x: { field: "x", type: "quantitative", axis: numberAxis({ title: x, tickCount: Math.max(2, width / 110) }) },
      y: { field: "y", type: "quantitative", axis: numberAxis({ title: y }) },
      color: { field: "name", type: "nominal", title: null, legend: { columns: width < 400 ? 2 : 4 }, scale: { domain: roles.map(roleName), range: roles.map((role) => COLOURS[role] ?? COLOURS.other) } },
      shape: { field: "name", type: "nominal", title: null, scale: { domain: roles.map(roleName), range: roles.map((role) => shapes[role] ?? "cross") } },
    },
  });
}

// Power over frequency: points {frequency, power, name}; both axes are logarithmic.
function spectrumChart(points, names, colours) {
  return (width) => ({
    height: 220, data: { values: points }, encoding: {
      x: { field: "frequency", type: "quantitative", scale: { type: "log", nice: false }, axis: numberAxis({
        title: "cycles per element", grid: false, values: powerTicks(points.map(({ frequency }) => frequency)), labelOverlap: true,
      }) },
      y: { field: "power", type: "quantitative", scale: { type: "log", nice: false, padding: 8 }, axis: numberAxis({
        title: "power", values: powerTicks(points.map(({ power }) => power)), labelOverlap: true,
      }) },
    },
    layer: [
      {
        mark: { type: "line", strokeWidth: 1.75, aria: false },
        encoding: {
          color: { field: "name", type: "nominal", title: null, scale: { domain: names, range: colours }, legend: names.length > 1 ? { symbolType: "stroke", columns: width < 400 ? 2 : 4 } : null },
          strokeDash: { field: "name", type: "nominal", title: null, scale: { domain: names, range: [[1, 0], [5, 4]] } },
        },
      },
      { mark: INVISIBLE },
    ],
  });
}
