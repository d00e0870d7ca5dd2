/**
 * Copies: arrays that are another one, bit for bit or rounded (LCC-CPY-02, LCC-CPY-03).
 */

import { aligned } from './elementtypes.js';
import { FormatError } from './errors.js';
import { numberToFloat16 } from './floats.js';

/**
 * @param {import('./frame.js').DecodedArray} source
 * @param {import('./elementtypes.js').ElementType|null} type float16 or bfloat16; null for an equal copy
 * @returns {import('./frame.js').DecodedArray}
 */
export function copyOf(source, type) {
  if (type === null) return { type: source.type, shape: source.shape, bytes: source.bytes.slice() };
  if (source.type.name !== 'float32') {
    throw new FormatError('LCC-CPY-02', `the source of a rounding is ${source.type.name}`);
  }
  const { buffer, byteOffset, length } = aligned(source.bytes);
  const patterns = new Uint32Array(buffer, byteOffset, length / 4);
  const numbers = new Float32Array(buffer, byteOffset, length / 4);
  const words = new Uint16Array(patterns.length);
  const half = type.name === 'float16';
  for (let i = 0; i < words.length; i++) {
    const pattern = patterns[i];
    if ((pattern & 0x7fffffff) > 0x7f800000)
      words[i] = half ? nanOfFloat16(pattern) : (pattern >>> 16) | 0x40;
    else if (half) words[i] = numberToFloat16(numbers[i]);
    else words[i] = (pattern + 0x7fff + ((pattern >>> 16) & 1)) >>> 16;
  }
  return { type, shape: source.shape, bytes: new Uint8Array(words.buffer) };
}

/** A quiet NaN of binary16, with the sign and the top bits of one of binary32. */
function nanOfFloat16(pattern) {
  return ((pattern >>> 16) & 0x8000) | 0x7e00 | ((pattern >>> 13) & 0x1ff);
}
