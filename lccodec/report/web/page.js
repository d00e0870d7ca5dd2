// The page: reads the document, makes its sections, and draws their charts one after the other. The
// first chart is on the screen before what comes after it is made.

function summaryOf(run) {
  const { checkpoints } = run;
  const readable = checkpoints.filter(({ kind }) => kind !== "unreadable");
  const steps = checkpoints.map(({ step }) => step).filter((step) => step !== null);
  const stored = checkpoints.reduce((sum, { bytes }) => sum + bytes, 0);
  const exact = run.streams["exact file"] ?? 0;
  const full = readable.reduce((sum, { nbytes }) => sum + nbytes, 0);
  const bad = checkpoints.filter(({ sound }) => !sound).length;
  const whole = bad ? `${formatCount(bad)} damaged` : "all intact";
  const times = full && stored ? `${(full / stored).toPrecision(3)} times smaller than full checkpoints` : "";
  return facts([
    ["checkpoints", checkpoints.length ? element("span", {}, `${formatCount(checkpoints.length)}, `, element("span", { class: bad ? "bad" : "good" }, whole)) : "none"],
    ["steps", steps.length ? `${formatCount(steps[0])}${steps.length > 1 ? ` to ${formatCount(steps.at(-1))}` : ""}` : "–"],
    ["arrays", formatCount(run.arrays.length)],
    ["history on the disk", [formatBytes(stored), times].filter(Boolean).join(", ")],
    ["exact newest state", exact ? formatBytes(exact) : null],
  ]);
}

// What movement does not say is said where movement is shown.
const isCaution = (note) => note.startsWith("Movement is not quality");

// What makes the parts of a run, one after the other; some make nothing.
function runParts(run, index, several, cautions) {
  const id = (name) => `${name}${several ? `-${index + 1}` : ""}`;
  const showArray = (array, step) => { location.hash = linkTo(index, run.arrays[array].name, step); };
  return [
    () => scalarsSection(id("run-scalars"), run), () => findingsSection(id("findings"), run, index),
    () => movementSection(id("movement"), run, cautions, showArray), () => treeSection(id("arrays"), run, index), () => lossSection(id("loss"), run),
    () => picturesSection(id("pictures"), run), () => arraySection(id("array"), run, index), () => chainSection(id("chain"), run),
  ];
}

// What a run looks like: of several, with its name in its colour.
function headOf(run, index, several) {
  const swatch = element("span", { class: "swatch" });
  swatch.style.background = RUN_COLOURS[index % RUN_COLOURS.length];
  return element("div", { class: several ? "one-of-several" : null },
    several ? element("p", { class: "which" }, swatch, element("a", { href: `#run-${index + 1}` }, runLabel(run, index))) : null,
    pathOf(run), verdictOf(run, index), summaryOf(run), notes(run.notes));
}

// One of several runs: all of it, in a fold that is filled when it is opened.
function foldedRun(run, index, cautions) {
  const fold = element("details", { class: "all" }, element("summary", {}, `All of run ${index + 1}`));
  const node = element("div", { class: "run", id: `run-${index + 1}` }, element("h2", {}, `Run ${index + 1}: `, nameText(nameOf(run), 40)), fold);
  let filled = null;
  const fill = async () => {
    const parts = runParts(run, index, true, cautions).map((make) => make()).filter(Boolean);
    for (const part of parts) {
      part.node.querySelectorAll("h2, h3").forEach((title) => title.setAttribute("aria-level", Number(title.tagName[1]) + 1));
      part.node.removeAttribute("aria-labelledby");
      part.node.setAttribute("aria-label", `${part.node.querySelector("h2").textContent}, run ${index + 1}`);
    }
    fold.append(...parts.map((part) => part.node));
    await drawAll(drawingsOf(parts));
    return parts.find(({ show }) => show);
  };
  const open = () => {
    fold.open = true;
    filled ??= fill();
    return filled;
  };
  fold.addEventListener("toggle", () => fold.open && open());
  return { node, drawings: [], show: async (...asked) => (await open()).show(...asked) };
}

const drawingsOf = (parts) => parts.flatMap(({ drawings }) => drawings);

// Draws charts; each is on the screen before the next one is made.
async function drawAll(drawings) {
  for (const drawing of drawings) {
    await drawing();
    await new Promise((done) => setTimeout(done));
  }
}

// Resolves when what was drawn is on the screen; a page that is hidden does not wait for that.
const shown = () => new Promise((done) => {
  requestAnimationFrame(() => setTimeout(done));
  setTimeout(done, 100);
});

// The last part of a run's path, and where the run is, if its name does not say all of it.
const nameOf = (run) => run.path.split("/").filter(Boolean).at(-1) ?? run.path;
const pathOf = (run) => (nameOf(run) === run.path ? "" : element("p", { class: "path" }, wholeText(run.path, 160)));

const notes = (sentences) => element("div", { class: "notes" }, ...sentences.map((sentence) => element("p", {}, wholeText(sentence, 400))));

function sectionLinks(parts) {
  const links = parts.filter(({ node }) => node.id).map(({ node }) =>
    element("a", { href: `#${node.id}` }, node.querySelector("h2").textContent));
  return element("ul", {}, ...links.map((link) => element("li", {}, link)));
}

function connectTheme() {
  for (const input of document.querySelectorAll("#theme input")) {
    input.addEventListener("change", () => {
      if (input.value) document.documentElement.dataset.theme = input.value;
      else delete document.documentElement.dataset.theme;
    });
  }
}

// On paper nothing can be opened: whole names and all rows are there. Folded tables stay closed, as
// the charts show what they hold.
function openFoldsToPrint() {
  let opened = [];
  window.addEventListener("beforeprint", () => {
    for (const more of document.querySelectorAll(".more")) more.click();
    opened = [...document.querySelectorAll("details.whole:not([open])")];
    for (const fold of opened) fold.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const fold of opened) fold.open = false;
  });
}

async function main() {
  connectTheme();
  document.body.append(element("div", { id: "tip", role: "presentation", hidden: true }));
  const [data, library] = [readDocument(), inflated("library")];
  const report = await data;
  window.lccodecReport = report; // for whoever wants the numbers: in the console, or in a test
  const several = report.runs.length > 1;
  const title = report.runs.map((run) => shorten(nameOf(run), 40)).join(" and ");
  document.title = `${title} – lccodec report`;
  document.getElementById("title").replaceChildren(...report.runs.flatMap((run, index) => [index ? " and " : "", nameText(nameOf(run), 40)]));
  const summary = document.getElementById("summary");
  summary.append(...report.runs.map((run, index) => headOf(run, index, several)), notes(report.notes.filter((note) => !isCaution(note))));
  const cautions = report.notes.filter(isCaution);
  const makers = [
    ...(several ? [() => togetherSection("together", report.runs)] : runParts(report.runs[0], 0, false, cautions)),
    () => report.comparison && comparisonSection("comparison", report.comparison),
    ...(several ? report.runs.map((run, index) => () => foldedRun(run, index, cautions)) : []),
  ];
  const parts = [];
  const makeNext = () => {
    const part = makers.shift()();
    if (!part) return;
    parts.push(part);
    document.getElementById("report").append(part.node);
  };
  while (makers.length && !drawingsOf(parts).length) makeNext();
  document.getElementById("waiting").remove();
  runLibrary(await library);
  const first = drawingsOf(parts).slice(0, 1);
  await drawAll(first);
  await shown();
  while (makers.length) makeNext();
  document.getElementById("sections").append(sectionLinks(parts));
  document.getElementById("about").textContent = `Made by lccodec${report.lccodec ? ` ${visible(report.lccodec)}` : ""}. Figures have five digits. `
    + "Bars of histograms are rounded to 0.4 % of the highest one; lccodec report --json has their counts.";
  drawAnewOnResize();
  openFoldsToPrint();
  await drawAll(drawingsOf(parts).slice(first.length));
  await followLinks(report.runs, parts.filter(({ show }) => show));
  document.documentElement.dataset.state = "ready";
}

main().catch((error) => {
  document.getElementById("report").replaceChildren(paragraph(
    `This browser cannot show the report (${error.message}). It needs one from 2024 or later; lccodec report --json has the figures.`, "bad"));
  document.documentElement.dataset.state = "failed";
  throw error;
});
