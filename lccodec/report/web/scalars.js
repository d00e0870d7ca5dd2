// Numbers that were saved beside the arrays, such as a loss: one small chart each, over all checkpoints.

function keyframesOf(run) {
  return run.checkpoints.filter(({ step, kind }) => step !== null && kind === "keyframe").map(({ step, kind }) => ({ step, kind }));
}

// The places of keyframes among the shown steps.
function keyframePlaces(run) {
  const keyframes = new Set(keyframesOf(run).map(({ step }) => step));
  return run.steps.flatMap((step, x) => (keyframes.has(step) ? [{ x }] : []));
}

// The steps of keyframes, and of what stands out.
function marksOf(run) {
  return [
    ...keyframesOf(run),
    ...[...new Set(run.flags.map(({ step }) => step))].filter((step) => step !== null).map((step) => ({ step, kind: "finding" })),
  ];
}

function scalarsSection(id, run) {
  const names = Object.keys(run.scalars ?? {});
  if (!names.length) return null;
  const result = section(id, "The run", paragraph("Numbers that were saved with the checkpoints, as metadata or in the state. Those that never change are left out. Diamonds on the axis are keyframes, triangles above are steps where something stands out."));
  const steps = run.checkpoints.map(({ step }) => step);
  const small = element("div", { class: "multiples" });
  result.append(small);
  const drawings = names.map((name) => {
    const made = figure(shorten(name, 60), null);
    small.append(made.node);
    const points = run.scalars[name].map((value, x) => ({ step: steps[x], value, name, kind: run.checkpoints[x].kind }))
      .filter(({ step, value }) => step !== null && value !== null);
    return () => draw(made, linesChart(points, { names: [name], colours: ["var(--delta)"], height: 150, marks: marksOf(run) }), {
      describe: ({ step, value, kind }) => `step ${formatCount(step)}\n${shorten(name, 60)}: ${formatNumber(value)}\n${kind}`,
    });
  });
  result.append(foldedTable("Every number, as a table", () => table("Numbers by step",
    [{ title: "step", number: true }, ...names.map((name) => ({ title: shorten(name, 40), number: true }))],
    steps.map((step, x) => [formatCount(step), ...names.map((name) => formatNumber(run.scalars[name][x]))]), { lines: 100 })));
  return { node: result, drawings };
}
