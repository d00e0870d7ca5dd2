// Numbers and names as text. Names come from files that may be hostile: nothing of them is markup,
// and characters that hide or reorder others are shown as escapes.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}]/gu;

function visible(text) {
  if (!String(text).trim()) return `"${text}"`;
  return String(text).replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
  });
}

// At most `limit` characters; what is left out is in the middle, nearer to the beginning.
function shorten(text, limit) {
  const characters = Array.from(visible(text.length > 4 * limit ? text.slice(0, limit) + text.slice(-2 * limit) : text));
  if (characters.length <= limit) return characters.join("");
  const head = Math.floor((limit - 1) / 3);
  return `${characters.slice(0, head).join("")}…${characters.slice(head + 1 - limit).join("")}`;
}

const COUNTS = new Intl.NumberFormat("en");
const DECIMALS = new Intl.NumberFormat("en", { maximumFractionDigits: 8 });

// A number of the document has five digits, which rounding brings back (see payload.py).
function formatNumber(stored, digits = 4) {
  if (stored === null || stored === undefined) return "–";
  if (stored === 0) return "0";
  const value = Number(stored.toPrecision(Math.max(5, digits)));
  const size = Math.abs(value);
  const text = size >= 1e-3 && size < 1e6
    ? DECIMALS.format(Number(value.toPrecision(digits)))
    : value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  return text.replace("-", "−").replace("e-", "e−");
}

function formatCount(value) {
  return value === null || value === undefined ? "–" : COUNTS.format(value);
}

function formatPercent(share) {
  return share === null || share === undefined ? "–" : `${formatNumber(100 * share, 3)} %`;
}

function formatBytes(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit ? value.toPrecision(3) : value} ${units[unit]}`;
}

function formatRatio(whole, stored) {
  return stored ? `${(whole / stored).toPrecision(3)}×` : "–";
}

function plural(count, one, many = `${one}s`) {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

const ROLE_NAMES = {
  weight: "weights",
  first_moment: "first moments",
  second_moment: "second moments",
  other: "other arrays",
};

function roleName(role) {
  return Object.hasOwn(ROLE_NAMES, role) ? ROLE_NAMES[role] : visible(role);
}

// The roles of some arrays, weights first.
function rolesOf(run, places) {
  const roles = [...new Set(places.map((index) => run.arrays[index].role))];
  return Object.keys(ROLE_NAMES).filter((role) => roles.includes(role)).concat(roles.filter((role) => !Object.hasOwn(ROLE_NAMES, role)));
}

// The name of an array with the `/` and `~` of its keys, which a state escapes. Links keep the stored name.
function shownName(name) {
  return name.replaceAll("~1", "/").replaceAll("~0", "~");
}

// The name of an array as the user knows it: of a moment, the weight that it belongs to.
function labelOf({ name, of, role }) {
  return of ? `${shownName(of)}, ${roleName(role).replace(/s$/, "")}` : shownName(name);
}

// The values that are numbers.
function present(values) {
  return values.filter((value) => value !== null && value !== undefined);
}

function mean(values) {
  const all = present(values);
  return all.length ? all.reduce((sum, value) => sum + value, 0) / all.length : null;
}

function median(values) {
  const all = present(values).sort((a, b) => a - b);
  return all.length ? (all[(all.length - 1) >> 1] + all[all.length >> 1]) / 2 : null;
}

function largest(values) {
  return values.reduce((best, value) => (value !== null && (best === null || value > best) ? value : best), null);
}

// The value that is farthest from 0.
function farthest(values) {
  return present(values).reduce((best, value) => (best === null || Math.abs(value) > Math.abs(best) ? value : best), null);
}
