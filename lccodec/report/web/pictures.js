// What fields look like: a slice as restored, what it is off by, and the spectrum of both.

const OFF = ["var(--keyframe)", "var(--raised)", "var(--delta)"];

function picturesSection(id, run) {
  if (!run.pictures.length) return null;
  const known = run.pictures.some(({ error }) => error);
  const result = section(id, "Fields", paragraph(
    `The middle of ${run.pictures.length === 1 ? "the array" : `${run.pictures.length} arrays`} stored as a smooth field, at step ${formatCount(run.pictures[0].step)}. `
    + `The spectrum has the mean power of all waves of a length.${known ? " Where its two lines part, the error is as large as the waves of the field." : ""}`),
  known ? null : paragraph("The originals are not at hand, so only what the save measured of the error is shown. lccodec report --against has its map.", "caution"));
  const parts = run.pictures.map((picture) => pictureOf(picture, run.arrays.find(({ name }) => name === picture.name)));
  result.append(...parts.flatMap(({ nodes }) => nodes));
  return { node: result, drawings: parts.flatMap(({ drawings }) => drawings) };
}

function pictureOf(picture, array) {
  const { values, error, frequencies } = picture;
  const name = shownName(picture.name);
  const slice = figure("As restored.", `The slice ${picture.place}.`, coloursOf(HEAT, [values.low, values.high], values));
  const off = error ? figure("Restored less original.", error.high ? "" : "Both are the same.", coloursOf(OFF, [error.low, 0, error.high], error)) : null;
  const names = ["as restored", ...(picture.original_power ? ["original"] : [])];
  const points = [picture.power, picture.original_power ?? []].flatMap((series, index) =>
    series.map((power, place) => ({ frequency: frequencies[place], power, name: names[index] }))).filter(({ power }) => power > 0);
  const waves = points.length ? figure("Power of waves", "by their frequency.") : null;
  const words = (what, { low, high }) => `${what} of ${shorten(name, 60)}, from ${formatNumber(low)} to ${formatNumber(high)}`;
  return {
    nodes: [
      element("h3", {}, nameText(name)),
      facts([
        ["shape", array ? array.shape.map(formatCount).join(" × ") : null],
        ["stored with", array ? nameText(array.quantizer) : null],
        ["largest error of the slice", picture.largest === null ? null : formatNumber(picture.largest)],
        ["error that the save measured, root mean square", picture.measured === null ? null : formatNumber(picture.measured)],
      ]),
      element("div", { class: "multiples" }, slice.node, off ? off.node : null, waves ? waves.node : null),
      waves ? foldedTable("The spectrum, as a table", () => table(`Power by frequency of ${shorten(name, 60)}`,
        [{ title: "cycles per element", number: true }, ...names.map((title) => ({ title, number: true }))],
        frequencies.map((frequency, place) => [formatNumber(frequency), formatNumber(picture.power[place]),
          ...(picture.original_power ? [formatNumber(picture.original_power[place])] : [])]))) : "",
    ],
    drawings: [
      () => slice.chart.append(rasterPicture(values, HEAT, words("A slice", values))),
      () => off && off.chart.append(rasterPicture(error, OFF, words("The error of a slice", error))),
      () => waves && draw(waves, spectrumChart(points, names, ["var(--delta)", "var(--keyframe)"]), {
        describe: ({ frequency, power, name: of }) => `${formatNumber(frequency)} cycles per element\n${of}: ${formatNumber(power)}`,
      }),
    ],
  };
}

// What the colours of a picture stand for.
function coloursOf(stops, numbers, { pixels }) {
  const known = [...new Set(numbers)].map((number) => ({ text: formatNumber(number), colour: between(stops, numbers.length > 1 ? numbers.indexOf(number) / (numbers.length - 1) : 0) }));
  if (pixels.includes(0)) known.push({ text: "no number", colour: "var(--paper)" });
  return element("ul", { class: "key", "aria-label": "Colours" }, ...known.map(({ text, colour }) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = colour;
    return element("li", {}, swatch, text);
  }));
}
