// What each save measured of its own loss: error and lag by role. A first save knows no movement.

function measuredPart(run) {
  const points = run.checkpoints.filter(({ step, figures }) => step !== null && Object.keys(figures).length);
  if (!points.length) return { nodes: [], drawings: [] };
  const roles = Object.keys(COLOURS).filter((role) => points.some(({ figures }) => Object.hasOwn(figures, role)));
  const names = roles.map(roleName);
  const series = (name) => points.flatMap(({ step, figures }) => roles.map((role) => ({
    step, name: roleName(role), value: figures[role]?.[name] ?? null,
  }))).filter(({ value }) => value !== null);
  const charts = [
    { title: "Error of each save,", words: "in movements since the save before.", of: series("error_in_movements") },
    { title: "Lag of each save,", words: "in intervals between saves: at 1, a restored state is that of the save before.", of: series("lag") },
  ].filter(({ of }) => new Set(of.map(({ step }) => step)).size > 1)
    .map((chart) => ({ ...chart, made: figure(chart.title, chart.words) }));
  const columns = roles.flatMap((role) => [
    { title: `${roleName(role)}: error in movements`, number: true }, { title: "lag in intervals", number: true }, { title: "error of spread", number: true },
  ]);
  const cells = (figures) => roles.flatMap((role) => [
    formatNumber(figures[role]?.error_in_movements), formatNumber(figures[role]?.lag), formatPercent(figures[role]?.error_in_spreads),
  ]);
  return {
    nodes: [
      paragraph("Each save measured its error, the root mean square of restored minus saved values, and its lag: how far restored "
        + "values lie behind, along the last movement. All elements of a role count equally, also below. A dash stands for what is not known: "
        + "the first save has no movement."),
      ...(charts.length ? [element("div", { class: "pair" }, ...charts.map(({ made }) => made.node))] : []),
      foldedTable("What each save measured, as a table", () => table("Error and lag of each save",
        [{ title: "step", number: true }, ...columns], points.map(({ step, figures }) => [formatCount(step), ...cells(figures)]), { lines: 100 })),
    ],
    drawings: charts.map(({ made, of }) => () => draw(made, linesChart(of, {
      names: names.filter((each) => of.some(({ name }) => name === each)),
      colours: roles.filter((role) => of.some(({ name }) => name === roleName(role))).map((role) => COLOURS[role]), height: 220, marks: keyframesOf(run),
    }), { describe: ({ step, name, value }) => `step ${formatCount(step)}\n${name}: ${formatNumber(value)}` })),
  };
}
