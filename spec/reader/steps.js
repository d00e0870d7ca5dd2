/**
 * Steps from number to number: differences of components modulo 2^b (LCC-PLN-01, LCC-PLN-02).
 *
 * Integers step by their patterns. Floating-point numbers step by the integers that have the order
 * of the numbers: the pattern with its top bit inverted where that is 0, and with all bits inverted
 * where it is 1.
 */

import { isFloating } from './elementtypes.js';

/**
 * @param {import('./elementtypes.js').ElementType} type
 * @param {Uint8Array|Uint16Array|Uint32Array} words of components (`wordsOf`)
 * @returns {(i: number, low: number, high: number) => void} adds a difference of 64 bits, of which
 *   so many count as a component has, to component i
 */
export function stepper(type, words) {
  if (type.size === 8) return isFloating(type) ? floatSteps64(words) : integerSteps64(words);
  return isFloating(type) ? floatSteps(words, 8 * type.size) : integerSteps(words);
}

function integerSteps(words) {
  return (i, low) => {
    words[i] += low;
  };
}

const TOP = 0x80000000 | 0;

function floatSteps(words, bits) {
  const unused = 32 - bits; // below a pattern that is moved to the top of a word
  return (i, low) => {
    const pattern = words[i] << unused;
    const place = ((pattern ^ ((pattern >> 31) | TOP)) + (low << unused)) | 0;
    words[i] = (place ^ (~(place >> 31) | TOP)) >>> unused;
  };
}

function integerSteps64(words) {
  return (i, low, high) => {
    const sum = words[2 * i] + (low >>> 0);
    words[2 * i] = sum;
    words[2 * i + 1] += high + (sum > 0xffffffff ? 1 : 0);
  };
}

function floatSteps64(words) {
  return (i, low, high) => {
    const negative = (words[2 * i + 1] | 0) >> 31;
    const sum = ((words[2 * i] ^ negative) >>> 0) + (low >>> 0);
    const carry = sum > 0xffffffff ? 1 : 0;
    const place = ((words[2 * i + 1] ^ (negative | TOP)) + high + carry) | 0;
    const inverted = ~(place >> 31);
    words[2 * i] = sum ^ inverted;
    words[2 * i + 1] = place ^ (inverted | TOP);
  };
}
