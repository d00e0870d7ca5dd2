/**
 * Codebook frames: symbols that stand for representatives (SPEC 6.3, 7.6).
 */

import { wordsOf } from './elementtypes.js';
import { FormatError } from './errors.js';
import { numbersOf } from './floats.js';
import { stepper } from './steps.js';
import { readStream } from './streams.js';

const ESCAPES = 1;

/**
 * The representatives of all arrays of a frame, end to end.
 *
 * @typedef {object} Codebook
 * @property {Uint16Array} counts how many each array has
 * @property {Uint32Array} starts where those of each array begin
 * @property {boolean} wide whether symbols have two bytes
 * @property {Uint8Array} bytes of the representatives
 */

/**
 * @param {import('./bytes.js').Cursor} cursor
 * @param {import('./frame.js').Header} header
 * @returns {number} the bytes of the codebook; reads no more than the numbers of representatives
 */
export function codebookSize(cursor, header) {
  const counts = readCounts(cursor, header);
  return 2 * counts.length + header.type.size * counts.reduce((sum, count) => sum + count, 0);
}

/**
 * @param {import('./bytes.js').Cursor} cursor
 * @param {import('./frame.js').Header} header
 */
function readCounts(cursor, { shapes }) {
  return Uint16Array.from(shapes, () => cursor.u16());
}

/**
 * Read a codebook (LCC-CBK-01, LCC-CBK-02).
 * @param {import('./bytes.js').Cursor} cursor
 * @param {import('./frame.js').Header} header
 * @returns {Codebook}
 */
function readCodebook(cursor, header) {
  const { type, ordered } = header;
  const counts = readCounts(cursor, header);
  const starts = new Uint32Array(counts.length);
  let total = 0;
  counts.forEach((count, k) => {
    starts[k] = total;
    total += count;
  });
  const bytes = new Uint8Array(cursor.take(total * type.size));
  if (!ordered && !areFinite(type, bytes)) {
    throw new FormatError('LCC-CBK-02', 'a representative is not finite');
  }
  return { counts, starts, wide: counts.some((count) => count > 255), bytes };
}

/**
 * @param {import('./elementtypes.js').ElementType} type
 * @param {Uint8Array} bytes
 */
function areFinite(type, bytes) {
  const { size, exponentBits } = type;
  const words = wordsOf(type, bytes);
  const bits = size === 2 ? 16 : 32; // of the word that has the exponent
  const exponent = (2 ** exponentBits - 1) * 2 ** (bits - 1 - exponentBits);
  const stride = size === 8 ? 2 : 1;
  for (let i = stride - 1; i < words.length; i += stride) {
    if ((words[i] & exponent) === exponent) return false;
  }
  return true;
}

/**
 * @param {import('./bytes.js').Cursor} cursor at the codebook
 * @param {import('./frame.js').Header} header
 * @param {Uint8Array} values the reference, or zeros; becomes what is decoded
 * @returns {(block: import('./bytes.js').Cursor, start: number, count: number) => void} decodes a
 *   block of so many components from one on
 */
export function codebookDecoder(cursor, header, values) {
  const codebook = readCodebook(cursor, header);
  const { type } = header;
  const put = header.ordered
    ? stepping(type, values, codebook.bytes)
    : header.relative
      ? adding(type, values, codebook.bytes)
      : placing(type, values, codebook.bytes);
  const spans = spansOf(header);
  return (block, start, count) => {
    const flags = block.u8();
    if (flags & ~ESCAPES) throw new FormatError('LCC-CBK-05', `the flags of a block are ${flags}`);
    const low = readStream(block, count);
    const high = codebook.wide ? readStream(block, count) : null;
    const symbols = high === null ? low : Uint16Array.from(low, (byte, i) => byte | (high[i] << 8));
    for (const { array, from, to } of spans(start, count)) {
      checkSymbols(symbols.subarray(from, to), codebook.counts[array]);
    }
    const mask = flags & ESCAPES ? readStream(block, count) : null;
    for (const { array, from, to } of spans(start, count)) {
      const base = codebook.starts[array] - 1;
      for (let i = from; i < to; i++) {
        if (symbols[i] !== 0) put(start + i, base + symbols[i]);
      }
    }
    if (mask !== null) placeEscapes(block, mask, type.size, values, start);
  };
}

/**
 * LCC-CBK-03.
 * @param {Uint8Array|Uint16Array} symbols of one array
 * @param {number} most
 */
function checkSymbols(symbols, most) {
  for (const symbol of symbols) {
    if (symbol > most) {
      throw new FormatError('LCC-CBK-03', `a symbol is ${symbol}, of ${most} representatives`);
    }
  }
}

/**
 * Place the components that are stored exactly (LCC-CBK-06, LCC-REC-01).
 * @param {import('./bytes.js').Cursor} block
 * @param {Uint8Array} mask
 * @param {number} size of a component
 * @param {Uint8Array} values
 * @param {number} start of the block in components
 */
function placeEscapes(block, mask, size, values, start) {
  let count = 0;
  for (const marked of mask) count += marked === 0 ? 0 : 1;
  let from = block.skip(count * size);
  for (let i = 0; i < mask.length; i++) {
    if (mask[i] === 0) continue;
    for (let to = (start + i) * size, end = to + size; to < end;) values[to++] = block.bytes[from++];
  }
}

/**
 * Which array the components of a block belong to.
 * @param {import('./frame.js').Header} header
 * @returns {(start: number, count: number) => Iterable<{array: number, from: number, to: number}>}
 *   the parts of a block, each of one array, by their places in the block
 */
function spansOf({ counts }) {
  const ends = new Float64Array(counts.length);
  counts.reduce((end, count, array) => (ends[array] = end + count), 0);
  return function* spans(start, count) {
    let array = firstAbove(ends, start);
    for (let from = 0; from < count; array++) {
      const to = Math.min(count, ends[array] - start);
      if (to > from) yield { array, from, to };
      from = to;
    }
  };
}

/**
 * @param {Float64Array} rising
 * @param {number} limit
 * @returns {number} the first index whose number is above the limit
 */
function firstAbove(rising, limit) {
  let [low, high] = [0, rising.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rising[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Without a reference the component is the representative.
 * @returns {(i: number, k: number) => void} gives component i representative k
 */
function placing(type, values, representatives) {
  const [words, from] = [wordsOf(type, values), wordsOf(type, representatives)];
  if (type.size < 8) return (i, k) => void (words[i] = from[k]);
  return (i, k) => {
    words[2 * i] = from[2 * k];
    words[2 * i + 1] = from[2 * k + 1];
  };
}

/**
 * With a reference it is the sum of both, rounded to the element type (LCC-REC-03).
 * @returns {(i: number, k: number) => void} adds representative k to component i
 */
function adding(type, values, representatives) {
  const { get, set } = numbersOf(type, values);
  const steps = numbersOf(type, representatives);
  return (i, k) => set(i, get(i) + steps.get(k));
}

/**
 * In an ordered frame it is so many numbers further (LCC-REC-04).
 * @returns {(i: number, k: number) => void} moves component i by representative k
 */
function stepping(type, values, representatives) {
  const step = stepper(type, wordsOf(type, values));
  const steps = wordsOf(type, representatives);
  if (type.size < 8) return (i, k) => step(i, steps[k], 0);
  return (i, k) => step(i, steps[2 * k], steps[2 * k + 1]);
}
