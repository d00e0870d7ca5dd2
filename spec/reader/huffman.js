/**
 * Huffman runs: canonical codes (SPEC 7.2) in lanes (SPEC 7.3).
 */

import { packedSize, unpack } from './bits.js';
import { FormatError, LimitError } from './errors.js';

const MAX_LANE_SYMBOLS = 2048;

/**
 * Read a run of symbols.
 * @param {import('./bytes.js').Cursor} cursor
 * @param {number} count of the symbols, at least 1
 * @returns {Uint8Array}
 */
export function readHuffmanRun(cursor, count) {
  const table = decodingTable(readLengths(cursor));
  const sizes = readLaneSizes(cursor, count);
  const symbols = new Uint8Array(count);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  let start = cursor.skip(total);
  sizes.forEach((size, lane) => {
    readLane(cursor.bytes, start, start + size, table, symbols, lane, sizes.length);
    start += size;
  });
  return symbols;
}

/**
 * Read the table of code lengths (LCC-HUF-04).
 * @param {import('./bytes.js').Cursor} cursor
 * @returns {Uint8Array} the length of the code of each symbol, 0 for none
 */
function readLengths(cursor) {
  const last = cursor.u8();
  const lengths = unpack(cursor.take(packedSize(last + 1, 4)), last + 1, 4);
  if (lengths === null) {
    throw new FormatError('LCC-HUF-04', 'an unused bit of a table of code lengths is 1');
  }
  if (lengths[last] === 0) {
    throw new FormatError('LCC-HUF-04', `symbol ${last}, the last of a table, has no code`);
  }
  return lengths;
}

/**
 * Assign the codes (LCC-HUF-03), and make a table to decode them with.
 * @param {Uint8Array} lengths
 * @returns {{bits: number, entries: Uint16Array}} what begins with so many bits: 16 times the
 *   symbol, and the length of its code
 */
function decodingTable(lengths) {
  const bits = lengths.reduce((most, length) => Math.max(most, length), 0);
  const used = lengths.reduce((sum, length) => sum + (length && 2 ** (bits - length)), 0);
  if (used !== 2 ** bits || bits === 0) {
    throw new FormatError('LCC-HUF-02', 'the codes of a table are not complete');
  }
  const entries = new Uint16Array(2 ** bits);
  let code = 0; // of `bits` bits, the first in the highest
  for (let length = 1; length <= bits; length++) {
    for (let symbol = 0; symbol < lengths.length; symbol++) {
      if (lengths[symbol] !== length) continue;
      const entry = (symbol << 4) | length;
      for (let at = reversed(code, bits); at < entries.length; at += 2 ** length) entries[at] = entry;
      code += 2 ** (bits - length);
    }
  }
  return { bits, entries };
}

/**
 * @param {number} value
 * @param {number} width in bits
 * @returns {number} the same bits, the last one first
 */
function reversed(value, width) {
  let result = 0;
  for (let i = 0; i < width; i++) result |= ((value >> i) & 1) << (width - 1 - i);
  return result;
}

/**
 * Read the sizes of the lanes (LCC-LAN-02, LCC-LAN-03).
 * @param {import('./bytes.js').Cursor} cursor
 * @param {number} count of the symbols
 * @returns {number[]}
 */
function readLaneSizes(cursor, count) {
  const lanes = cursor.u16();
  if (lanes < 1 || lanes > count || count > MAX_LANE_SYMBOLS * lanes) {
    throw new LimitError('LCC-LAN-02', `${count} symbols are in ${lanes} lanes`);
  }
  const least = cursor.u16();
  const width = cursor.u8();
  if (width > 8 && width !== 16) {
    throw new FormatError('LCC-LAN-03', `the sizes of lanes have ${width} bits`);
  }
  const excess = unpack(cursor.take(packedSize(lanes, width)), lanes, width);
  if (excess === null) {
    throw new FormatError('LCC-LAN-03', 'an unused bit of the sizes of lanes is 1');
  }
  return Array.from(excess, (more) => least + more);
}

/**
 * Decode one lane (LCC-LAN-01, LCC-LAN-04).
 * @param {Uint8Array} bytes
 * @param {number} at where the lane begins
 * @param {number} end where it ends
 * @param {{bits: number, entries: Uint16Array}} table
 * @param {Uint8Array} symbols
 * @param {number} first symbol of the lane
 * @param {number} stride from one symbol of the lane to the next
 */
function readLane(bytes, at, end, { bits: width, entries }, symbols, first, stride) {
  const mask = entries.length - 1;
  let bits = 0;
  let held = 0; // bits that are left; below 0 behind the end
  for (let i = first; i < symbols.length; i += stride) {
    while (held < width && at < end) {
      bits |= bytes[at++] << held;
      held += 8;
    }
    const entry = entries[bits & mask];
    const length = entry & 15;
    symbols[i] = entry >> 4;
    bits >>>= length;
    held -= length;
    if (held < 0) throw new FormatError('LCC-LAN-04', 'a lane ends inside a code');
  }
  if (at < end || held > 7) {
    throw new FormatError('LCC-LAN-04', 'a lane has a byte behind its last code');
  }
  if (bits !== 0) throw new FormatError('LCC-LAN-04', 'a bit behind the last code of a lane is 1');
}
