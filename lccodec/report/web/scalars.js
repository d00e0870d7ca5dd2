// Numbers that were saved beside the arrays, such as a loss: one small chart each, over all checkpoints.

function keyframesOf(run) {
  return run.checkpoints.filter(({ step, kind }) => step !== null && kind === "keyframe").map(({ step, kind }) => ({ step, kind }));
}

// The places of marks among the shown steps; of one between them, that of the next shown step.
function placesOfMarks(run, marks) {
  return marks.map(({ step, kind }) => ({ x: run.steps.findIndex((shown) => (kind === "finding" ? shown >= step : shown === step)), kind }))
    .filter(({ x }) => x >= 0);
}

// The steps of keyframes, and of what stands out.
function marksOf(run) {
  return [
    ...keyframesOf(run),
    ...[...new Set(run.flags.map(({ step }) => step))].filter((step) => step !== null).map((step) => ({ step, kind: "finding" })),
  ];
}

// Whether an axis is logarithmic: of what is positive and spans powers of ten, a linear one shows only the beginning.
function isLogarithmic(points) {
  const values = points.map(({ value }) => value);
  const least = values.reduce((a, b) => Math.min(a, b));
  return least > 0 && largest(values) >= 10 * least;
}

function scalarsSection(id, run) {
  const names = Object.keys(run.scalars ?? {});
  if (!names.length) return null;
  const marked = run.flags.some(({ step }) => step !== null);
  const result = section(id, "The run", paragraph("Numbers that were saved with the checkpoints. Those that never change are left out. "
    + `Diamonds on the axis are keyframes${marked ? "; triangles and dashed lines are steps where something stands out" : ""}.`));
  const steps = run.checkpoints.map(({ step }) => step);
  const few = names.length < 3;
  const small = element("div", { class: few ? "pair" : "multiples" });
  result.append(small);
  const drawings = names.map((name) => {
    const points = run.scalars[name].map((value, x) => ({ step: steps[x], value, name, kind: run.checkpoints[x].kind }))
      .filter(({ step, value }) => step !== null && value !== null);
    const log = points.length > 0 && isLogarithmic(points);
    const made = figure(shorten(name, 60), log ? "Logarithmic." : null);
    small.append(made.node);
    return () => draw(made, linesChart(points, { names: [name], colours: ["var(--delta)"], height: few ? 200 : 150, marks: marksOf(run), log }), {
      describe: ({ step, value, kind }) => `step ${formatCount(step)}\n${shorten(name, 60)}: ${formatNumber(value)}\n${kind}`,
    });
  });
  result.append(foldedTable("Every number, as a table", () => table("Numbers by step",
    [{ title: "step", number: true }, ...names.map((name) => ({ title: shorten(name, 40), number: true }))],
    steps.map((step, x) => [formatCount(step), ...names.map((name) => formatNumber(run.scalars[name][x]))]), { lines: 100 })));
  return { node: result, drawings };
}
