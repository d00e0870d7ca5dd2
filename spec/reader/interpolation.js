/**
 * Interpolation: the reference of a checkpoint between two that are known (LCC-INT-04).
 */

import { aligned, isFloating } from './elementtypes.js';
import { numbersOf, roundingTo } from './floats.js';

/**
 * The references of an interpolated checkpoint. Each is made when it is asked for.
 * @param {import('./checkpoint.js').References} earlier the arrays of the earlier parent
 * @param {import('./checkpoint.js').References} later those of the later parent
 * @param {number} weight in 256ths
 * @returns {import('./checkpoint.js').References}
 */
export function interpolation(earlier, later, weight) {
  return {
    get(name) {
      const low = earlier.get(name);
      const high = later.get(name);
      const alike = low && high && low.type === high.type && String(low.shape) === String(high.shape);
      return alike && isFloating(low.type) ? between(low, high, weight / 256) : low;
    },
  };
}

/**
 * @param {import('./frame.js').DecodedArray} low
 * @param {import('./frame.js').DecodedArray} high
 * @param {number} weight
 * @returns {import('./frame.js').DecodedArray}
 */
function between({ type, shape, bytes: from }, high, weight) {
  const bytes = new Uint8Array(from);
  const { get, set } = numbersOf(type, bytes);
  const { get: getHigh } = numbersOf(type, aligned(high.bytes));
  const round = roundingTo(type);
  for (let i = 0; i < bytes.length / type.size; i++) {
    const l = get(i);
    const r = round(l - round(round(l - getHigh(i)) * weight));
    if (Number.isFinite(r)) set(i, r);
  }
  return { type, shape, bytes };
}
