/**
 * The figures of a manifest: what a save measured (LCC-FIG-01 to LCC-FIG-05).
 */

import { fromBase64Url } from './bytes.js';
import { FormatError, UnsupportedError } from './errors.js';
import { bfloat16ToNumber } from './floats.js';
import { isInteger } from './json.js';

const OF_EACH_ARRAY = ['spread', 'movement', 'error', 'lag'];
const OF_WHAT_LOST = ['rms', 'minimum', 'maximum', 'zeros', 'not_finite', 'quantiles'];
const MEMBERS = ['since', ...OF_EACH_ARRAY, ...OF_WHAT_LOST];
const MAY_BE_NEGATIVE = new Set(['lag', 'minimum', 'maximum', 'quantiles']);
const QUANTILES = 7;
const NOT_KNOWN = 0x7fc0;

/**
 * Check the figures, and read their numbers.
 * @param {import('./json.js').JsonValue} value
 * @param {{step: number|null, exact: boolean, arrays: number}} manifest
 * @returns {{since: number|null, figures: Map<string, (number|null)[]>}} the numbers of each
 *   figure in the order in which they are stored; null for one that is not known
 */
export function readFigures(value, { step, exact, arrays }) {
  const json = checkMembers(value);
  if (step === null || exact) {
    throw new FormatError('LCC-FIG-01', 'figures are in a file without a step, or in an exact file');
  }
  const since = json.get('since') ?? null;
  if (json.has('since') && !isInteger(since, 0, step - 1)) {
    throw new FormatError('LCC-FIG-02', 'the save before is not of a step below that of the manifest');
  }
  const figures = new Map();
  for (const [name, text] of json) {
    if (name === 'since') continue;
    const lost = OF_WHAT_LOST.includes(name);
    const count = lost ? (figures.get('error') ?? []).filter(Boolean).length : arrays;
    figures.set(name, readNumbers(name, text, name === 'quantiles' ? QUANTILES * count : count));
  }
  return { since, figures };
}

/**
 * LCC-FIG-01.
 * @param {import('./json.js').JsonValue} json
 * @returns {Map<string, import('./json.js').JsonValue>}
 */
function checkMembers(json) {
  if (!(json instanceof Map) || json.size === 0) {
    throw new FormatError('LCC-FIG-01', 'figures are no object, or an empty one');
  }
  const places = Array.from(json.keys(), (name) => MEMBERS.indexOf(name));
  if (places.includes(-1)) throw new UnsupportedError('LCC-FIG-01', 'a figure is not known');
  if (places.some((place, i) => place < places[i - 1])) {
    throw new FormatError('LCC-FIG-01', 'figures are out of order');
  }
  if (json.has('since') !== (json.has('movement') || json.has('lag'))) {
    throw new FormatError(
      'LCC-FIG-01',
      'figures have a step that they begin at, or a movement, without the other',
    );
  }
  return json;
}

/** LCC-FIG-03, LCC-FIG-04. */
function readNumbers(name, text, count) {
  const bytes = typeof text === 'string' ? fromBase64Url(text) : null;
  if (bytes?.length !== 2 * count) {
    throw new FormatError('LCC-FIG-03', `the figure ${name} is no text of ${count} numbers`);
  }
  const numbers = Array.from({ length: count }, (_, i) => {
    const bits = bytes[2 * i] | (bytes[2 * i + 1] << 8);
    if (bits === NOT_KNOWN) return null;
    const number = bfloat16ToNumber(bits);
    const allowed = Number.isFinite(number) && !Object.is(number, -0);
    if (!allowed || (number < 0 && !MAY_BE_NEGATIVE.has(name))) {
      throw new FormatError('LCC-FIG-04', `a number of the figure ${name} is ${number}`);
    }
    return number;
  });
  if (numbers.every((number) => number === null)) {
    throw new FormatError('LCC-FIG-04', `the figure ${name} has no number that is known`);
  }
  return numbers;
}
