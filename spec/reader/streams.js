/**
 * Streams: the coded forms of a sequence of bytes (SPEC 7.4).
 */

import { packedSize, unpack } from './bits.js';
import { ChecksumError, FormatError, LimitError, UnsupportedError } from './errors.js';
import { readHuffmanRun } from './huffman.js';
import { rises } from './sizes.js';

const MAX_DEPTH = 4;
const MAX_LOW_BITS = 8;
const MAX_SIDE = 65535;
const MAX_CLASSES = 16;
const MAX_LEVEL = 15;
const MAX_PLACES = 256; // of a byte
const MAX_PARTS = 3;
const MAX_SPLIT_SYMBOLS = 4096; // of a byte

/**
 * Read a stream.
 * @param {import('./bytes.js').Cursor} cursor
 * @param {number} count of its symbols
 * @param {number} [depth] 1 for the outermost stream
 * @param {import('./sizes.js').Sizes?} [sizes] of the reference, for a stream that may be split
 * @returns {Uint8Array} the symbols; those of a raw stream are not copied
 */
export function readStream(cursor, count, depth = 1, sizes = null) {
  if (depth > MAX_DEPTH) throw new LimitError('LCC-STR-03', `streams nest ${depth} deep`);
  const form = cursor.u8();
  switch (form) {
    case 0:
      return new Uint8Array(count).fill(cursor.u8());
    case 1:
      return cursor.take(count);
    case 2:
      if (count === 0) throw new FormatError('LCC-STR-02', 'a Huffman run has no symbols');
      return readHuffmanRun(cursor, count);
    case 3:
      return readSparse(cursor, count, depth);
    case 4:
      return readPacked(cursor, count, depth);
    case 5:
      return readClassed(cursor, count, depth);
    case 6:
      return readSplit(cursor, count, depth, sizes);
    default:
      throw new UnsupportedError('LCC-STR-01', `a stream has the form ${form}`);
  }
}

/**
 * Read a packed stream (LCC-STR-05).
 * @param {import('./bytes.js').Cursor} cursor
 * @param {number} count
 * @param {number} depth
 */
function readPacked(cursor, count, depth) {
  const width = cursor.u8();
  if (width !== 1 && width !== 2 && width !== 4) {
    throw new FormatError('LCC-STR-05', `symbols are packed with ${width} bits`);
  }
  const packed = readStream(cursor, packedSize(count, width), depth + 1);
  const symbols = unpack(packed, count, width);
  if (symbols === null) throw new FormatError('LCC-STR-05', 'an unused bit of a packed stream is 1');
  return symbols;
}

/**
 * Read a sparse stream (LCC-STR-06).
 * @param {import('./bytes.js').Cursor} cursor
 * @param {number} count
 * @param {number} depth
 */
function readSparse(cursor, count, depth) {
  const start = cursor.position - 1;
  const lowBits = cursor.u8();
  if (lowBits > MAX_LOW_BITS) throw new FormatError('LCC-STR-06', `gaps have ${lowBits} low bits`);
  const gaps = cursor.u32();
  if (gaps > count) throw new FormatError('LCC-STR-06', `a stream of ${count} symbols has ${gaps} gaps`);
  const high = readStream(cursor, gaps, depth + 1);
  const low = unpack(cursor.take(packedSize(gaps, lowBits)), gaps, lowBits);
  if (low === null) throw new FormatError('LCC-STR-06', 'an unused bit of the gaps is 1');
  const positions = new Uint32Array(gaps);
  for (let i = 0, next = 0; i < gaps; i++) {
    const position = next + (high[i] << lowBits) + low[i];
    if (position >= count) {
      throw new FormatError('LCC-STR-06', `a gap leads to position ${position} of ${count} symbols`);
    }
    positions[i] = position;
    next = position + 1;
  }
  const values = readStream(cursor, gaps, depth + 1);
  checkPlaces(gaps, cursor.position - start);
  const symbols = new Uint8Array(count);
  for (let i = 0; i < gaps; i++) symbols[positions[i]] = values[i];
  return symbols;
}

/** LCC-LIM-14. */
function checkPlaces(places, size) {
  if (places > MAX_PLACES * size) {
    throw new LimitError('LCC-LIM-14', `a stream of ${size} bytes has ${places} places`);
  }
}

/**
 * Read a classed stream: that of a matrix, whose cells have classes by row and column (LCC-STR-07).
 * @param {import('./bytes.js').Cursor} cursor
 * @param {number} count
 * @param {number} depth
 */
function readClassed(cursor, count, depth) {
  const refuse = (message) => {
    throw new FormatError('LCC-STR-07', message);
  };
  const start = cursor.position - 1;
  if (depth !== 1) refuse('a classed stream is inside another');
  const columns = cursor.u16();
  const rows = Math.ceil(count / columns);
  if (columns < 1 || columns > count || rows > MAX_SIDE) refuse(`${count} symbols have ${columns} columns`);
  const classes = cursor.u8();
  if (classes < 2 || classes > MAX_CLASSES) refuse(`a classed stream has ${classes} classes`);
  const bounds = cursor.take(classes - 1);
  if (bounds.some((bound, k) => bound <= bounds[k - 1])) refuse('the bounds of classes do not rise');
  const stored = Array.from(bounds, () => cursor.u32());
  const rowLevels = readLevels(cursor, rows, depth, refuse);
  const columnLevels = readLevels(cursor, columns, depth, refuse);
  const classOf = Uint8Array.from(
    { length: 2 * MAX_LEVEL + 1 },
    (_, sum) => bounds.filter((bound) => bound <= sum).length,
  );
  const sizes = countCells(rowLevels, columnLevels, classOf, classes);
  if (stored.some((size, k) => size !== sizes[k])) refuse('the classes have other numbers of cells');
  const cells = Array.from(sizes, (size) => readStream(cursor, size, depth + 1));
  checkPlaces(nonzero(cells), cursor.position - start);
  const next = new Uint32Array(classes);
  const symbols = new Uint8Array(count);
  for (let row = 0, i = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, i++) {
      const k = classOf[rowLevels[row] + columnLevels[column]];
      const symbol = cells[k][next[k]++];
      if (i < count) symbols[i] = symbol;
      else if (symbol !== 0) refuse('a cell behind the last symbol is not 0');
    }
  }
  return symbols;
}

function readLevels(cursor, count, depth, refuse) {
  const levels = readStream(cursor, count, depth + 1);
  if (levels.some((level) => level > MAX_LEVEL)) refuse('a level of a row or a column is above 15');
  return levels;
}

/** How many cells each class has. */
function countCells(rowLevels, columnLevels, classOf, classes) {
  const histogram = (levels) => {
    const counts = new Array(MAX_LEVEL + 1).fill(0);
    for (const level of levels) counts[level]++;
    return counts;
  };
  const columns = histogram(columnLevels);
  const sizes = new Array(classes).fill(0);
  histogram(rowLevels).forEach((rowCount, row) => {
    columns.forEach((columnCount, column) => (sizes[classOf[row + column]] += rowCount * columnCount));
  });
  return sizes;
}

/** How many symbols of some streams are not 0. */
function nonzero(streams) {
  let count = 0;
  for (const symbols of streams) for (const symbol of symbols) count += symbol !== 0;
  return count;
}

/**
 * Read a split stream: components whose reference is small stand apart (LCC-STR-08, LCC-STR-09).
 * @param {import('./bytes.js').Cursor} cursor
 * @param {number} count
 * @param {number} depth
 * @param {import('./sizes.js').Sizes?} sizes
 */
function readSplit(cursor, count, depth, sizes) {
  const refuse = (message) => {
    throw new FormatError('LCC-STR-08', message);
  };
  const start = cursor.position - 1;
  if (depth !== 1) refuse('a split stream is inside another');
  if (sizes === null) refuse('a stream without a reference is split');
  const parts = cursor.u8();
  if (parts < 1 || parts > MAX_PARTS) refuse(`a split stream has ${parts} parts`);
  const bounds = sizes.readBounds(cursor, parts);
  if (bounds.some((bound, k) => k > 0 && !rises(bounds[k - 1], bound))) refuse('the bounds of parts do not rise');
  const stored = bounds.map(() => cursor.u32());
  const together = stored.reduce((sum, each) => sum + each, 0);
  if (together > count) refuse(`${together} of ${count} components are in parts`);
  const streams = [...stored, count].map((own) => readStream(cursor, own, depth + 1));
  const bytes = cursor.position - start;
  checkPlaces(nonzero(streams), bytes);
  if (count > MAX_SPLIT_SYMBOLS * bytes) {
    throw new LimitError('LCC-LIM-14', `a split stream of ${bytes} bytes has ${count} symbols`);
  }
  const symbols = Uint8Array.from(streams[parts]); // that of a raw stream is not ours
  const next = new Uint32Array(parts);
  let doubled = false;
  for (let i = 0; i < count; i++) {
    const k = bounds.findIndex((bound) => sizes.isBelow(i, bound));
    if (k < 0) continue;
    const symbol = streams[k][next[k]++] ?? 0;
    doubled ||= symbol !== 0 && symbols[i] !== 0;
    symbols[i] |= symbol;
  }
  if (stored.some((own, k) => own !== next[k]) || doubled) {
    throw new ChecksumError('LCC-STR-09', 'a split stream is not that of this reference');
  }
  return symbols;
}
