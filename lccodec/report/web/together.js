// Several runs in the same charts: what was saved beside the arrays, movement, error, and bytes.

const RUN_COLOURS = ["var(--delta)", "var(--keyframe)", "var(--first)", "var(--full)"];

const runLabel = (run, index) => `${index + 1}: ${shorten(nameOf(run), 24)}`;

function togetherSection(id, runs) {
  const names = runs.map(runLabel);
  const charts = [
    ...[...new Set(runs.flatMap(({ scalars }) => Object.keys(scalars ?? {})))].map((name) => ({
      title: shorten(name, 60), series: (run) => atCheckpoints(run, (_, place) => run.scalars?.[name]?.[place] ?? null),
    })),
    { title: "Movement of weights, median", series: (run) => run.steps.map((step, place) => ({ step, value: median(ofWeights(run, "movement", place)) })) },
    { title: "Error of weights, in movements", series: (run) => atCheckpoints(run, ({ figures }) => figures.weight?.error_in_movements ?? null) },
    { title: "Lag of weights, in intervals", series: (run) => atCheckpoints(run, ({ figures }) => figures.weight?.lag ?? null) },
    { title: "Bytes on the disk so far", bytes: true, series: (run) => soFar(run) },
  ].map(({ series, ...chart }) => ({
    ...chart,
    points: runs.flatMap((run, index) => series(run).filter(({ step, value }) => step !== null && value !== null).map((point) => ({ ...point, name: names[index] }))),
  })).filter(({ points }) => new Set(points.map(({ step }) => step)).size > 1);
  if (!charts.length) return null;
  const result = section(id, runs.length === 2 ? "Both runs" : "All runs");
  const small = element("div", { class: "multiples" });
  result.append(small, foldedTable("Every number, as a table", () => table("Runs by step",
    [{ title: "what" }, { title: "run" }, { title: "step", number: true }, { title: "value", number: true }],
    charts.flatMap(({ title, bytes, points }) => points.map(({ step, name, value }) => [title, name, formatCount(step), bytes ? formatBytes(value) : formatNumber(value)])),
    { lines: 100 })));
  const all = charts.flatMap(({ points }) => points.map(({ step }) => step));
  const steps = [Math.min(...all), Math.max(...all)]; // of each chart, so that they can be compared
  const drawings = charts.map(({ title, bytes, points }) => {
    const log = !bytes && isLogarithmic(points);
    const made = figure(title, log ? "Logarithmic." : null);
    small.append(made.node);
    return () => draw(made, linesChart(points, { names, colours: names.map((_, index) => RUN_COLOURS[index % RUN_COLOURS.length]), height: 150, bytes, log, steps }), {
      describe: ({ step, name, value }) => `step ${formatCount(step)}\n${name}: ${bytes ? formatBytes(value) : formatNumber(value)}`,
    });
  });
  return { node: result, drawings };
}

const atCheckpoints = (run, value) => run.checkpoints.map((checkpoint, place) => ({ step: checkpoint.step, value: value(checkpoint, place) }));

const ofWeights = (run, key, place) => run.arrays.flatMap(({ role }, index) => (role === "weight" ? [run.figures[key]?.[index]?.[place] ?? null] : []));

function soFar(run) {
  let sum = 0;
  return run.checkpoints.map(({ step, bytes }) => ({ step, value: (sum += bytes) }));
}
