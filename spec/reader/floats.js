/**
 * Floating-point components, binary16 and bfloat16 among them.
 */

import { wordsOf } from './elementtypes.js';

const FLOAT = new Float32Array(1);
const BITS = new Uint32Array(FLOAT.buffer);

/**
 * @param {number} bits of a bfloat16
 * @returns {number}
 */
export function bfloat16ToNumber(bits) {
  BITS[0] = bits << 16;
  return FLOAT[0];
}

/**
 * @param {number} x rounded to binary32 first, then to bfloat16, both to nearest, ties to even
 * @returns {number} bits
 */
export function numberToBfloat16(x) {
  FLOAT[0] = x;
  const bits = BITS[0];
  if (x !== x) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/**
 * @param {number} bits of a binary16
 * @returns {number}
 */
export function float16ToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (0x400 + fraction) * 2 ** (exponent - 25);
}

/**
 * @param {number} x rounded to nearest, ties to even
 * @returns {number} bits
 */
export function numberToFloat16(x) {
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  if (x !== x) return 0x7e00;
  const magnitude = Math.abs(x);
  if (magnitude >= 65520) return sign | 0x7c00;
  // Add a number whose last place is that of the result, so that the addition rounds.
  const exponent = Math.max(-14, exponentOf(magnitude));
  const place = 2 ** (exponent + 42);
  const fraction = (magnitude + place - place) * 2 ** (10 - exponent);
  return sign + ((exponent + 14) << 10) + fraction;
}

/**
 * The exponent of a number that binary32 has as a normal one; less for others.
 * @param {number} magnitude
 */
function exponentOf(magnitude) {
  FLOAT[0] = magnitude;
  const exponent = (BITS[0] >>> 23) - 127;
  return exponent;
}

/**
 * The components of an array as numbers.
 *
 * Binary64 is wide enough that a sum, a difference or a product of two components which is rounded
 * once more, by `set`, is the one rounded to the element type.
 * @param {import('./elementtypes.js').ElementType} type
 * @param {Uint8Array} bytes
 * @returns {{get: (i: number) => number, set: (i: number, x: number) => void}} `set` rounds
 */
export function numbersOf(type, bytes) {
  if (type.size === 2) {
    const half = type.name === 'float16';
    const toNumber = half ? float16ToNumber : bfloat16ToNumber;
    const toBits = half ? numberToFloat16 : numberToBfloat16;
    const words = wordsOf(type, bytes);
    return { get: (i) => toNumber(words[i]), set: (i, x) => void (words[i] = toBits(x)) };
  }
  const Numbers = type.size === 4 ? Float32Array : Float64Array;
  const numbers = new Numbers(bytes.buffer, bytes.byteOffset, bytes.length / type.size);
  return { get: (i) => numbers[i], set: (i, x) => void (numbers[i] = x) };
}

/**
 * Rounding to an element type, to nearest, ties to even.
 * @param {import('./elementtypes.js').ElementType} type
 * @returns {(x: number) => number}
 */
export function roundingTo(type) {
  switch (type.size) {
    case 2: {
      const { get, set } = numbersOf(type, new Uint8Array(2));
      return (x) => {
        set(0, x);
        return get(0);
      };
    }
    case 4:
      return Math.fround;
    default:
      return (x) => x;
  }
}
