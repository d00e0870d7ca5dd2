/**
 * Scalars and their canonical texts (LCC-STA-04, LCC-STA-05).
 */

import { fromBase64 } from './bytes.js';
import { FormatError } from './errors.js';

const WITHOUT_NUMBERS = new Map([
  ['nan', NaN],
  ['inf', Infinity],
  ['-inf', -Infinity],
]);

/**
 * The canonical text of a finite number: the shortest decimal that reads back as the same.
 * @param {number} number
 * @returns {string}
 */
export function floatText(number) {
  const sign = number < 0 || Object.is(number, -0) ? '-' : '';
  const [decimal, exponentText] = Math.abs(number).toExponential().split('e');
  const exponent = Number(exponentText);
  if (exponent < -4 || exponent > 15) {
    const magnitude = String(Math.abs(exponent)).padStart(2, '0');
    return `${sign}${decimal}e${exponent < 0 ? '-' : '+'}${magnitude}`;
  }
  const digits = decimal.replace('.', '');
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0');
  return `${sign}${whole}.${digits.slice(exponent + 1) || '0'}`;
}

/**
 * Check an entry of the list of scalars, and return its value.
 * @param {import('./json.js').JsonValue} entry
 * @returns {null|boolean|string|bigint|number|Uint8Array} an integer as a bigint, a float as a number
 */
export function scalarValue(entry) {
  switch (typeof entry) {
    case 'boolean':
    case 'string':
      return entry;
    case 'number':
    case 'bigint':
      return BigInt(entry);
  }
  if (entry === null) return null;
  if (entry instanceof Map && entry.size === 1) {
    const [[form, text]] = entry;
    if (typeof text === 'string' && form === 'f') return floatOf(text);
    if (typeof text === 'string' && form === 'b') return bytesOf(text);
  }
  throw new FormatError('LCC-STA-04', 'a scalar has no form of a scalar');
}

/** @param {string} text */
function floatOf(text) {
  const special = WITHOUT_NUMBERS.get(text);
  if (special !== undefined) return special;
  const number = Number(text);
  if (!/^-?\d/.test(text) || !Number.isFinite(number) || floatText(number) !== text) {
    throw new FormatError('LCC-STA-05', `a float is written ${JSON.stringify(text.slice(0, 40))}`);
  }
  return number;
}

/** @param {string} text */
function bytesOf(text) {
  const bytes = fromBase64(text);
  if (bytes === null) throw new FormatError('LCC-STA-05', 'a byte string is not canonical base64');
  return bytes;
}
