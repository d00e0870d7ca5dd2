// What stands out: flags, the gravest first.

const SEVERITIES = ["error", "warning", "note"];

function findingsSection(id, run, place) {
  const result = section(id, "What stands out");
  const flags = [...run.flags].sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
  if (!flags.length) {
    result.append(paragraph("Nothing: no checkpoint is damaged or missing, no number jumps, no array is dead, frozen, exploding or not finite, most do not shift at once, and no error is a third of the weights' spread.", "empty"));
    return { node: result, drawings: [] };
  }
  const item = ({ severity, kind, array, step, sentence }) => element("li", { class: `flag ${SEVERITIES.includes(severity) ? severity : "note"}` },
    element("span", { class: "severity" }, severity), element("span", { class: "flag-kind" }, kind),
    array === null ? null : flagArray(run, place, array, step), wholeText(sentence, 600));
  const list = element("ul", { class: "flags", tabindex: "-1" });
  result.append(limited(list, list, flags, item, 20));
  return { node: result, drawings: [] };
}

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
  const text = visible(sentence).length > 800 ? [wholeText(sentence, 800)] : linkedNames(run, place, sentence);
  return element("div", { class: `verdict ${["healthy", "look"].includes(state) ? state : "broken"}` }, ...text);
}

// The text and links of a sentence in which the arrays of findings are named.
function linkedNames(run, place, sentence) {
  const after = new Map(); // where the next finding of the same name is looked for
  const found = run.flags.flatMap((flag) => {
    const array = flag.array !== null && run.arrays.find(({ name }) => name === flag.array);
    const text = array ? labelOf(array) : "";
    const at = text ? sentence.indexOf(text, after.get(text) ?? 0) : -1;
    if (at < 0) return [];
    after.set(text, at + text.length);
    return [{ at, text, flag }];
  }).sort((a, b) => a.at - b.at || b.text.length - a.text.length);
  const between = (from, to) => (sentence.slice(from, to).trim() ? visible(sentence.slice(from, to)) : " ");
  const parts = [];
  let end = 0;
  for (const { at, text, flag } of found) {
    if (at < end) continue; // within a name that is linked already
    parts.push(between(end, at), flagArray(run, place, flag.array, flag.step));
    end = at + text.length;
  }
  return [...parts, between(end)];
}
