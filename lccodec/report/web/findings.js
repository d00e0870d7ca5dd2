// What stands out: flags, the gravest first.

const SEVERITIES = ["error", "warning", "note"];

function findingsSection(id, run, showArray) {
  const result = section(id, "What stands out");
  const flags = [...run.flags].sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
  if (!flags.length) {
    result.append(paragraph("Nothing: no checkpoint is damaged or missing, and no array is dead, frozen, exploding or not finite, and no error is a third of the weights' spread.", "empty"));
    return { node: result, drawings: [] };
  }
  const names = new Map(run.arrays.map(({ name }, index) => [name, index]));
  const item = ({ severity, kind, array, sentence }) => element("li", { class: `flag ${SEVERITIES.includes(severity) ? severity : "note"}` },
    element("span", { class: "severity" }, severity), element("span", { class: "flag-kind" }, kind),
    array === null ? null : arrayName(array, names, showArray), wholeText(sentence, 240));
  const list = element("ul", { class: "flags", tabindex: "-1" });
  result.append(limited(list, list, flags, item, 20));
  return { node: result, drawings: [] };
}

// The name of a flag's array; where the array is shown, a button that leads there.
function arrayName(array, names, showArray) {
  if (!names.has(array)) return element("span", { class: "flag-array" }, nameText(array));
  return element("button", { type: "button", class: "link flag-array", onclick: () => showArray(names.get(array)) }, nameText(array));
}
