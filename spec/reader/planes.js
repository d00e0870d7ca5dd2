/**
 * Planes frames: a stream for each byte of a component (SPEC 6.2, 7.5).
 */

import { readStream } from './streams.js';
import { stepper } from './steps.js';
import { sizes } from './sizes.js';
import { wordsOf } from './elementtypes.js';

/**
 * @param {import('./elementtypes.js').ElementType} type
 * @param {Uint8Array} values the reference, or zeros; becomes what is decoded
 * @param {boolean} [relative] whether they are a reference
 * @returns {(block: import('./bytes.js').Cursor, start: number, count: number) => void} decodes a
 *   block of so many components from one on
 */
export function planesDecoder(type, values, relative = false) {
  const words = wordsOf(type, values);
  const step = stepper(type, words);
  const { size } = type;
  return (block, start, count) => {
    const reference = relative ? sizes(words, size, start) : null;
    const planes = Array.from({ length: size }, () => readStream(block, count, 1, reference));
    const low = codes(planes.slice(0, 4), count);
    const high = size === 8 ? codes(planes.slice(4), count) : null;
    for (let i = 0; i < count; i++) {
      // Undo the zigzag: (z >> 1) xor -(z & 1).
      const sign = -(low[i] & 1);
      const carried = high === null ? 0 : high[i] << 31;
      step(start + i, ((low[i] >>> 1) | carried) ^ sign, high === null ? 0 : (high[i] >>> 1) ^ sign);
    }
  };
}

/**
 * @param {Uint8Array[]} planes at most four, the lowest first
 * @param {number} count
 * @returns {Uint32Array} the integers of these bytes
 */
function codes(planes, count) {
  const result = new Uint32Array(count);
  planes.forEach((plane, k) => {
    for (let i = 0; i < count; i++) result[i] |= plane[i] << (8 * k);
  });
  return result;
}
