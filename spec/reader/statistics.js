/**
 * Basic numbers of an array.
 */

import { aligned } from './elementtypes.js';
import { bfloat16ToNumber, float16ToNumber } from './floats.js';

/**
 * @typedef {object} Statistics
 * @property {number} elements
 * @property {number|bigint|null} minimum of what is finite; null if nothing is
 * @property {number|bigint|null} maximum of what is finite; null if nothing is
 * @property {number|null} mean of what is finite; null if nothing is, or if the sum is too large
 * @property {number} zeros
 * @property {number} nans
 * @property {number} infinities
 */

const VIEWS = {
  bool: Uint8Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  complex64: Float32Array,
  complex128: Float64Array,
};

/** The numbers of the 65,536 patterns of the types that JavaScript does not have. */
const tables = new Map([
  ['float16', float16ToNumber],
  ['bfloat16', bfloat16ToNumber],
]);

/** @param {string} name of a type */
function tableOf(name) {
  const table = tables.get(name);
  if (typeof table !== 'function') return table;
  tables.set(
    name,
    Float32Array.from({ length: 65536 }, (_, bits) => table(bits)),
  );
  return tables.get(name);
}

/**
 * @param {import('./frame.js').DecodedArray} array a complex element counts as two numbers
 * @returns {Statistics}
 */
export function statisticsOf({ type, bytes }) {
  const { buffer, byteOffset, length } = aligned(bytes);
  const components = new VIEWS[type.name](buffer, byteOffset, length / type.size);
  const numbers =
    type.size === 8 && type.exponentBits === 0
      ? ofBigints(components)
      : ofNumbers(components, tableOf(type.name));
  return { elements: components.length / type.components, ...numbers };
}

/**
 * @param {ArrayLike<number>} components
 * @param {Float32Array} [table] of the numbers that they stand for
 */
function ofNumbers(components, table) {
  let [minimum, maximum, sum, finite, zeros, nans] = [Infinity, -Infinity, 0, 0, 0, 0];
  for (let i = 0; i < components.length; i++) {
    const x = table === undefined ? components[i] : table[components[i]];
    if (x - x !== 0) {
      if (x !== x) nans++;
      continue;
    }
    finite++;
    sum += x;
    if (x === 0) zeros++;
    if (x < minimum) minimum = x;
    if (x > maximum) maximum = x;
  }
  const infinities = components.length - finite - nans;
  if (finite === 0) return { minimum: null, maximum: null, mean: null, zeros, nans, infinities };
  const mean = Number.isFinite(sum) ? sum / finite : null;
  return { minimum, maximum, mean, zeros, nans, infinities };
}

/** @param {BigInt64Array|BigUint64Array} components */
function ofBigints(components) {
  if (components.length === 0) return ofNumbers([]);
  let [minimum, maximum, sum, zeros] = [components[0], components[0], 0, 0];
  for (const x of components) {
    sum += Number(x);
    if (x === 0n) zeros++;
    if (x < minimum) minimum = x;
    else if (x > maximum) maximum = x;
  }
  return { minimum, maximum, mean: sum / components.length, zeros, nans: 0, infinities: 0 };
}
