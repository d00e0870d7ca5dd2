/**
 * Parity files: they mend damaged files of a chain (LCC-PAR-01 to LCC-PAR-07).
 */

import { Cursor, fromBase64Url, sameBytes, toHex } from './bytes.js';
import { checkDigests, openCheckpoint } from './checkpoint.js';
import {
  ChecksumError,
  FormatError,
  LimitError,
  Refused,
  TruncatedError,
  UnsupportedError,
} from './errors.js';
import { addMultiple, coefficient, solve } from './galois.js';
import { isInteger, parseJson } from './json.js';
import { sha256 } from './sha256.js';
import { sourceOf } from './source.js';

const MAGIC = Uint8Array.of(0x4c, 0x43, 0x43, 0x50, 0x52, 0x54, 0x59, 0x1a);
const HEAD_SIZE = 64;
const DIGEST_OFFSET = 32; // in the head
const HASH_SIZE = 8;
const ROOT_SIZE = 32;
const MAX_INDEX_SIZE = 2 ** 26;
const MAX_FILES = 64;
const MAX_DATA_COLUMNS = 128;
const MAX_PARITY_COLUMNS = 64;
const MIN_BLOCK = 512;
const MAX_BLOCK = 2 ** 18;
const MEMBERS = ['block', 'rows', 'parity', 'redundancy', 'aligned', 'files'];
const FILE_NAME = /^(?:rank-(?:0|[1-9]\d{0,8})\/)?(?:(\d{12,16})\.lcc\.h5|exact\.lcc\.h5)$/;

/**
 * @typedef {object} Parity
 * @property {string} group the first part of the name
 * @property {number} column
 * @property {Description} description
 * @property {Uint8Array[][]} dataHashes by column and row; only of blocks with a byte of a file
 * @property {Uint8Array[][]} parityHashes by column and row
 * @property {Uint8Array[]} blocks of this column, row by row
 *
 * @typedef {object} Description
 * @property {number} block the bytes of a block
 * @property {number} rows
 * @property {number} parity the number of parity columns
 * @property {boolean} aligned whether each file is a data column of its own
 * @property {{name: string, length: number, root: string}[]} files
 */

/**
 * @param {ArrayBuffer|ArrayBufferView|import('./source.js').Source} data
 * @returns {boolean} whether the bytes begin as those of a parity file do
 */
export function isParity(data) {
  const source = sourceOf(data);
  return sameBytes(source.read(0, Math.min(MAGIC.length, source.size)), MAGIC);
}

/**
 * Open a parity file, and check all of it.
 * @param {ArrayBuffer|ArrayBufferView|import('./source.js').Source} data
 * @param {string} name
 * @returns {Parity}
 */
export function openParity(data, name) {
  const source = sourceOf(data);
  const { head, index, ...parity } = readCopy(source, 0);
  checkName(parity, name);
  const { block, rows } = parity.description;
  const start = HEAD_SIZE + index.length;
  const end = start + rows * block;
  if (source.size !== end + start) throw new FormatError('LCC-PAR-02', 'the parity file has another size');
  const copy = source.read(end, start);
  if (!sameBytes(copy.subarray(0, index.length), index) || !sameBytes(copy.subarray(index.length), head)) {
    throw new FormatError('LCC-PAR-02', 'the copies of head and index are not the same');
  }
  const blocks = readBlocks(source, start, parity);
  if (blocks.includes(null)) {
    throw new ChecksumError('LCC-PAR-04', 'a parity block does not match its hash');
  }
  return { ...parity, blocks };
}

/**
 * Open a parity file that may be damaged, by the first copy of its head and index or by the second.
 * @param {ArrayBuffer|ArrayBufferView|import('./source.js').Source} data
 * @param {string} name
 * @returns {Parity|null} with null for each block that does not match its hash; null if no copy is sound
 */
export function openDamagedParity(data, name) {
  const source = sourceOf(data);
  for (const at of [0, source.size - HEAD_SIZE]) {
    try {
      const { index, ...parity } = readCopy(source, at);
      checkName(parity, name);
      return { ...parity, blocks: readBlocks(source, HEAD_SIZE + index.length, parity) };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }
  return null;
}

function checkName({ group, column }, name) {
  if (name !== `${group}-${String(column).padStart(2, '0')}.lcc.par`) {
    throw new FormatError('LCC-PAR-01', 'the parity file has another name than its description gives it');
  }
}

/** The parity blocks of a column; null for one that does not match its hash. */
function readBlocks(source, start, { description: { block, rows }, column, parityHashes }) {
  return Array.from({ length: rows }, (_, row) => {
    const bytes = source.read(start + row * block, block);
    return matches(bytes, parityHashes[column][row]) ? bytes : null;
  });
}

/** What the head at a place and its index say (LCC-PAR-02). */
function readCopy(source, at) {
  const { head, column, index, descriptionLength } = readIndex(source, at);
  const text = index.subarray(0, descriptionLength);
  const description = readDescription(parseJson(text));
  const { dataHashes, parityHashes } = readHashes(index.subarray(descriptionLength), description);
  if (column >= description.parity) {
    throw new FormatError('LCC-PAR-02', `the parity file is of column ${column} of ${description.parity}`);
  }
  const group = toHex(sha256(text).subarray(0, 8));
  return { head, index, group, column, description, dataHashes, parityHashes };
}

/** LCC-PAR-02. */
function readIndex(source, at) {
  if (source.size < 2 * HEAD_SIZE) throw new TruncatedError('LCC-PAR-02', 'the parity file is cut off');
  const head = source.read(at, HEAD_SIZE);
  if (!sameBytes(head.subarray(0, MAGIC.length), MAGIC)) {
    throw new FormatError('LCC-PAR-02', 'the file does not begin as a parity file');
  }
  const cursor = new Cursor(head, MAGIC.length);
  const [major, minor, column] = [cursor.u16(), cursor.u16(), cursor.u32()];
  const [descriptionLength, indexLength] = [cursor.u64(), cursor.u64()];
  if (major !== 1)
    throw new UnsupportedError('LCC-PAR-02', `the parity file is of version ${major}.${minor}`);
  if (indexLength > MAX_INDEX_SIZE) throw new LimitError('LCC-LIM-04', `the index has ${indexLength} bytes`);
  if (source.size < 2 * HEAD_SIZE + indexLength)
    throw new TruncatedError('LCC-PAR-02', 'the parity file is cut off');
  if (descriptionLength > indexLength) {
    throw new FormatError('LCC-PAR-02', 'the description is longer than the index');
  }
  const index = source.read(at === 0 ? HEAD_SIZE : at - indexLength, indexLength);
  if (!sameBytes(sha256(head.subarray(0, DIGEST_OFFSET), index), head.subarray(DIGEST_OFFSET))) {
    throw new ChecksumError('LCC-PAR-02', 'the digest of the index does not match');
  }
  return { head, column, index, descriptionLength };
}

/**
 * LCC-PAR-03, LCC-LIM-11.
 * @param {import('./json.js').JsonValue} json
 * @returns {Description}
 */
function readDescription(json) {
  const refuse = (message) => {
    throw new FormatError('LCC-PAR-03', message);
  };
  if (!(json instanceof Map)) refuse('the description is no object');
  const names = [...json.keys()];
  if (names.some((name) => !MEMBERS.includes(name))) {
    throw new UnsupportedError('LCC-PAR-03', 'a member of the description is not known');
  }
  if (names.join() !== MEMBERS.join()) refuse('a member of the description is missing or out of order');
  const [block, rows, parity, redundancy, aligned, list] = json.values();
  if (!isInteger(block, MIN_BLOCK) || 2 ** Math.round(Math.log2(block)) !== block) {
    refuse('the bytes of a block are no power of two from 512 on');
  }
  if (![rows, parity, redundancy].every((number) => isInteger(number, 1))) {
    refuse('a number of the description is no integer from 1 to 2^53 - 1');
  }
  if (typeof aligned !== 'boolean') refuse('the member aligned is neither true nor false');
  if (!Array.isArray(list) || list.length === 0) refuse('the files are no list, or an empty one');
  if (list.length > MAX_FILES || parity > MAX_PARITY_COLUMNS || block > MAX_BLOCK) {
    throw new LimitError('LCC-LIM-11', 'a group has too many files or parity columns, or too large blocks');
  }
  const seen = new Set();
  const files = list.map((entry) => {
    if (!Array.isArray(entry) || entry.length !== 3)
      refuse('the entry of a file is no name, length and root');
    const [name, length, root] = entry;
    if (!isFileName(name) || seen.has(name))
      refuse('a name is that of no file of a chain, or is there twice');
    seen.add(name);
    if (name.includes('/') !== list[0][0].includes('/'))
      refuse('some files are of ranks, and others are not');
    if (!isInteger(length, 1)) refuse('the length of a file is no integer from 1 to 2^53 - 1');
    if (typeof root !== 'string' || fromBase64Url(root)?.length !== ROOT_SIZE)
      refuse('the root of a file is none');
    return { name, length, root };
  });
  const description = { block, rows, parity, aligned, files };
  const lengths = columnLengths(description, MAX_DATA_COLUMNS + 1);
  if (lengths.length > MAX_DATA_COLUMNS) {
    throw new LimitError('LCC-LIM-11', 'a group has more than 128 data columns');
  }
  const blocks = lengths.map((length) => Math.ceil(length / block));
  const fits = aligned ? Math.max(...blocks) === rows : rows <= blocks.reduce((sum, count) => sum + count, 0);
  if (!fits) refuse('the number of rows is not that of the files');
  return description;
}

/** Whether a name is that of a checkpoint or of the exact file, maybe of a rank. */
function isFileName(name) {
  const found = typeof name === 'string' ? FILE_NAME.exec(name) : null;
  if (found === null) return false;
  const digits = found[1];
  if (digits === undefined) return true;
  return Number.isSafeInteger(Number(digits)) && (digits.length === 12 || !digits.startsWith('0'));
}

/**
 * The bytes of the data columns.
 * @param {Description} description
 * @param {number} [most] columns that are counted
 */
function columnLengths({ block, rows, aligned, files }, most = MAX_DATA_COLUMNS) {
  if (aligned) return files.map(({ length }) => length);
  const full = rows * block;
  const lengths = [];
  let left = files.reduce((sum, { length }) => sum + length, 0);
  for (; left > 0 && lengths.length < most; left -= full) lengths.push(Math.min(left, full));
  return lengths;
}

/** LCC-PAR-04. */
function readHashes(bytes, description) {
  const { block, rows, parity } = description;
  const counts = columnLengths(description).map((length) => Math.ceil(length / block));
  const total = counts.reduce((sum, count) => sum + count, parity * rows);
  if (bytes.length !== total * HASH_SIZE)
    throw new FormatError('LCC-PAR-04', `there are no hashes of ${total} blocks`);
  const cursor = new Cursor(bytes);
  const hashes = (count) => Array.from({ length: count }, () => cursor.take(HASH_SIZE));
  return { dataHashes: counts.map(hashes), parityHashes: Array.from({ length: parity }, () => hashes(rows)) };
}

/** Whether a block has a hash. */
function matches(block, hash) {
  return sameBytes(sha256(block).subarray(0, HASH_SIZE), hash);
}

/**
 * Mend the files of a group (LCC-PAR-07).
 * @param {Parity[]} columns parity files of one group, which may lack blocks
 * @param {Map<string, Uint8Array>} found the files that are there, by name
 * @returns {Map<string, Uint8Array>} the files as they are then: one that cannot be mended is what it was
 */
export function mend(columns, found) {
  const [{ description, dataHashes }] = columns;
  const { block, rows, files } = description;
  const data = layOut(description, found);
  for (let row = 0; row < rows; row++) {
    const at = (column) => data[column].subarray(row * block, (row + 1) * block);
    const lost = [];
    dataHashes.forEach((hashes, column) => {
      if (row < hashes.length && !matches(at(column), hashes[row])) lost.push(column);
    });
    const used = columns.filter(({ blocks }) => blocks[row] !== null).slice(0, lost.length);
    if (used.length < lost.length) continue;
    const sides = used.map(({ column, blocks }) => {
      const side = Uint8Array.from(blocks[row]);
      dataHashes.forEach((_, k) => lost.includes(k) || addMultiple(side, at(k), coefficient(column, k)));
      return side;
    });
    solve(
      used.map(({ column }) => lost.map((k) => coefficient(column, k))),
      sides,
    );
    lost.forEach((column, k) => {
      if (!matches(sides[k], dataHashes[column][row])) {
        throw new ChecksumError('LCC-PAR-04', 'a block is mended to another one');
      }
      at(column).set(sides[k]);
    });
  }
  const roots = new Map([...found].map(([name, bytes]) => [name, rootOfSound(bytes)]));
  // Where a sound file has another root, parity is older: what is missing may be so on purpose.
  const isOlder = files.some(({ name, root }) => (roots.get(name) ?? root) !== root);
  const mended = new Map();
  const computed = takeFiles(description, data);
  for (const { name, root } of files) {
    const isWanted = found.has(name) ? roots.get(name) === null : !isOlder;
    if (isWanted && rootOfSound(computed.get(name)) === root) mended.set(name, computed.get(name));
    else if (found.has(name)) mended.set(name, found.get(name));
  }
  return mended;
}

/** The root of a checkpoint file all of whose digests match; null if it is not sound. */
function rootOfSound(bytes) {
  try {
    const checkpoint = openCheckpoint(bytes);
    checkDigests(checkpoint);
    return checkpoint.root;
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}

/** The data columns: files as far as they are there, and zeros. */
function layOut(description, found) {
  const { block, rows, aligned, files } = description;
  const full = block * rows;
  const columns = columnLengths(description);
  const bytes = new Uint8Array(columns.length * full);
  let start = 0;
  files.forEach(({ name, length }, k) => {
    bytes.set((found.get(name) ?? new Uint8Array()).subarray(0, length), aligned ? k * full : start);
    start += length;
  });
  return columns.map((_, k) => bytes.subarray(k * full, (k + 1) * full));
}

/** The files of data columns that lie end to end. */
function takeFiles({ block, rows, aligned, files }, data) {
  const bytes = new Uint8Array(data[0].buffer);
  let start = 0;
  return new Map(
    files.map(({ name, length }, k) => {
      const from = aligned ? k * block * rows : start;
      start += length;
      return [name, bytes.slice(from, from + length)];
    }),
  );
}
