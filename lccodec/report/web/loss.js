// What was lost: error over movement, bias, and the bound where there is one.

function lossSection(id, run) {
  const { loss } = run;
  const measured = measuredPart(run);
  const result = section(id, "What was lost", ...measured.nodes);
  if (!loss) {
    result.append(paragraph("There are no originals beside these checkpoints to compare with.", "empty"));
    return { node: result, drawings: measured.drawings };
  }
  if (measured.nodes.length) result.append(element("h3", {}, "Compared with originals"));
  result.append(paragraph(`Originals: ${visible(loss.against)}.`),
    paragraph("Error is the root mean square of restored minus original, over that of the movement since the previous shown step. Bias "
      + "is the correlation of error and movement: below 0 the restored state trails behind. A bias harms a run that resumes more than an error does "
      + "that points in no direction. If the step before has no original, the movement is the one that the save measured."));
  const roles = Object.keys(loss.roles);
  if (roles.length) {
    result.append(table("Error and bias by role", [{ title: "role" }, { title: "error over movement", number: true }, { title: "bias", number: true }],
      roles.map((role) => [roleName(role), formatNumber(loss.roles[role].error), formatNumber(loss.roles[role].bias)])));
  }
  const rows = run.arrays.map((array, index) => ({
    array, name: roleName(array.role), x: mean(loss.error[index] ?? []), y: mean(loss.bias[index] ?? []),
    largest: largest(loss.largest[index] ?? []), bound: loss.bound[index] ?? null,
  })).filter((row) => row.x !== null || row.largest !== null);
  if (!rows.length) {
    result.append(paragraph("No array has an error that is defined.", "empty"));
    return { node: result, drawings: measured.drawings };
  }
  const scatter = figure("Error and bias of each array,", "means over the steps.");
  const lines = figure("Error over movement at each step,", "of all elements of a role.");
  const list = table("Error and bias by array", [
    { title: "array" }, { title: "error over movement", number: true }, { title: "bias", number: true },
    { title: "largest error", number: true }, { title: "guaranteed bound", number: true }, { title: "bound holds" },
  ], rows.map(({ array, x, y, largest: most, bound }) => [nameText(shownName(array.name)), formatNumber(x), formatNumber(y), formatNumber(most),
    formatNumber(bound), boundText(most, bound)]), { lines: 100 });
  const dots = rows.filter(({ x, y }) => x !== null && y !== null);
  const shown = [...new Set(dots.map(({ array }) => array.role))];
  const points = roles.flatMap((role) => loss.steps.map((step, x) => ({
    step, name: roleName(role), value: loss.roles[role].steps?.[x] ?? null,
  }))).filter(({ value }) => value !== null);
  const names = [...new Set(points.map(({ name }) => name))];
  const several = loss.steps.length > 1 && points.length > 0;
  result.append(element("div", { class: "pair" }, several && dots.length ? scatter.node : null, several ? lines.node : null),
    element("details", { class: "data" }, element("summary", {}, "Every array, as a table"), list));
  if (several) {
    result.append(foldedTable("Every step, as a table", () => table("Error over movement by step",
      [{ title: "step", number: true }, ...names.map((name) => ({ title: name, number: true }))],
      loss.steps.map((step) => [formatCount(step), ...names.map((name) =>
        formatNumber(points.find((point) => point.step === step && point.name === name)?.value ?? null))]))));
  }
  return { node: result, drawings: [
    ...measured.drawings,
    () => several && dots.length && draw(scatter, scatterChart(dots, shown, { x: "error over movement", y: "bias" }), {
      describe: ({ array, x, y }) => `${shorten(shownName(array.name), 80)}\nerror ${formatNumber(x)}, bias ${formatNumber(y)}`,
    }),
    () => several && draw(lines, linesChart(points, {
      names, colours: roles.filter((role) => names.includes(roleName(role))).map((role) => COLOURS[role] ?? COLOURS.other), height: 260, marks: keyframesOf(run),
    }), { describe: ({ step, name, value }) => `step ${formatCount(step)}\n${name}: ${formatNumber(value)}` }),
  ] };
}

function boundText(most, bound) {
  if (bound === null || most === null) return "–";
  return most <= bound ? element("span", { class: "good" }, "yes") : element("span", { class: "bad" }, "no");
}
