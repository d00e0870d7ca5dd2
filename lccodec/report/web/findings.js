// What stands out: flags, the gravest first.

const SEVERITIES = ["error", "warning", "note"];

function findingsSection(id, run, place) {
  const result = section(id, "What stands out");
  const flags = [...run.flags].sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
  if (!flags.length) {
    result.append(paragraph("Nothing. All checkpoints can be restored. No loss and no score that was saved with them gets suddenly worse. No array becomes 0, stops moving, "
      + "moves much farther than before, grows suddenly, or has NaN. Restored weights are off by less than a third of their spread.", "empty"));
    return { node: result, drawings: [] };
  }
  const item = (flag) => element("li", { class: `flag ${SEVERITIES.includes(flag.severity) ? flag.severity : "note"}` },
    element("span", { class: "severity" }, flag.severity), element("span", { class: "flag-when" }, whenText(flag)), ...sentenceText(run, place, flag.sentence, 600));
  const list = element("ul", { class: "flags", tabindex: "-1" });
  result.append(limited(list, list, flags, item, 20));
  return { node: result, drawings: [] };
}

// Where a finding lies: between two saves, or at one.
function whenText({ kind, since, step }) {
  if (step === null || ["damaged", "missing"].includes(kind)) return "";
  return since === null || since === undefined ? `step ${formatCount(step)}` : `between steps ${formatCount(since)} and ${formatCount(step)}`;
}

// The arrays of a finding.
const arraysOf = ({ array, arrays }) => (arrays?.length ? arrays : array === null ? [] : [array]);

// How many findings an array has; notes do not count.
function findingsOf(run, name) {
  return run.flags.filter((flag) => flag.severity !== "note" && arraysOf(flag).includes(name)).length;
}

// A sentence of a finding or a verdict; one that is too long folds.
const sentenceText = (run, place, sentence, limit) => (visible(sentence).length > limit ? [wholeText(sentence, limit)] : linkedNames(run, place, sentence));

// The name of a flag's array; where the array is shown, a link that opens it at the flag's step.
function flagArray(run, place, name, step) {
  const array = run.arrays.find((each) => each.name === name);
  if (!array) return element("span", { class: "flag-array" }, nameText(name));
  return element("a", { class: "flag-array", href: linkTo(place, name, step) }, nameText(labelOf(array)));
}

// What a run looks like, in a sentence, at the top of the page; names of arrays are links.
function verdictOf(run, place) {
  const { state, sentence } = run.verdict ?? {};
  if (!sentence) return "";
  return element("div", { class: `verdict ${["healthy", "look"].includes(state) ? state : "broken"}` }, ...sentenceText(run, place, sentence, 800));
}

// The text and links of a sentence in which the arrays of findings are named.
function linkedNames(run, place, sentence) {
  const after = new Map(); // where the next finding of the same name is looked for
  const found = run.flags.flatMap((flag) => arraysOf(flag).flatMap((named) => {
    const array = run.arrays.find(({ name }) => name === named);
    const text = array ? labelOf(array) : "";
    const at = text ? sentence.indexOf(text, after.get(text) ?? 0) : -1;
    if (at < 0) return [];
    after.set(text, at + text.length);
    return [{ at, text, name: named, step: flag.step }];
  })).sort((a, b) => a.at - b.at || b.text.length - a.text.length);
  const between = (from, to) => (sentence.slice(from, to).trim() ? visible(sentence.slice(from, to)) : " ");
  const parts = [];
  let end = 0;
  for (const { at, text, name, step } of found) {
    if (at < end) continue; // within a name that is linked already
    parts.push(between(end, at), flagArray(run, place, name, step));
    end = at + text.length;
  }
  return [...parts, between(end)];
}
