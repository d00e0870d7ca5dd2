/**
 * Bundles: whole checkpoint files in one file (LCC-BUN-01 to LCC-BUN-08).
 */

import { Cursor, fromBase64Url, sameBytes } from './bytes.js';
import { newestState, readState } from './chain.js';
import { openCheckpoint } from './checkpoint.js';
import {
  ArgumentError,
  ChecksumError,
  FormatError,
  LimitError,
  TruncatedError,
  UnsupportedError,
} from './errors.js';
import { isInteger, parseJson } from './json.js';
import { sha256 } from './sha256.js';
import { partOf, sourceOf } from './source.js';

const MAGIC = Uint8Array.of(0x4c, 0x43, 0x43, 0x42, 0x4e, 0x44, 0x4c, 0x1a);
const TRAILER_SIZE = 64;
const ROOT_OFFSET = 32; // in the trailer
const ROOT_SIZE = 32;
const MAX_INDEX_SIZE = 2 ** 26;
const MEMBERS = ['checkpoints', 'exact'];

/**
 * @typedef {object} Bundle
 * @property {BundleEntry[]} checkpoints by rising steps
 * @property {BundleEntry|null} exact the exact file
 *
 * @typedef {object} BundleEntry
 * @property {number|null} step null for the exact file
 * @property {string} root
 * @property {import('./source.js').Source} source of the file
 */

/**
 * @param {ArrayBuffer|ArrayBufferView|import('./source.js').Source} data
 * @returns {boolean} whether the bytes begin as those of a bundle do
 */
export function isBundle(data) {
  const source = sourceOf(data);
  return sameBytes(source.read(0, Math.min(MAGIC.length, source.size)), MAGIC);
}

/**
 * Open a bundle. Its files are not looked at yet.
 * @param {ArrayBuffer|ArrayBufferView|import('./source.js').Source} data
 * @returns {Bundle}
 */
export function openBundle(data) {
  const source = sourceOf(data);
  if (!isBundle(source)) throw new FormatError('LCC-BUN-01', 'the file does not begin as a bundle');
  if (source.size < MAGIC.length + TRAILER_SIZE)
    throw new TruncatedError('LCC-BUN-01', 'the bundle is cut off');
  const trailer = source.read(source.size - TRAILER_SIZE, TRAILER_SIZE);
  if (!sameBytes(trailer.subarray(0, MAGIC.length), MAGIC)) {
    throw new TruncatedError('LCC-BUN-01', 'the bundle does not end in a trailer');
  }
  const cursor = new Cursor(trailer, MAGIC.length);
  const [major, minor, reserved] = [cursor.u16(), cursor.u16(), cursor.u32()];
  const [filesLength, indexLength] = [cursor.u64(), cursor.u64()];
  if (major !== 1) throw new UnsupportedError('LCC-BUN-03', `the bundle is of version ${major}.${minor}`);
  if (reserved !== 0) throw new UnsupportedError('LCC-BUN-03', 'the reserved field is not 0');
  if (indexLength > MAX_INDEX_SIZE) throw new LimitError('LCC-LIM-04', `the index has ${indexLength} bytes`);
  if (source.size !== MAGIC.length + filesLength + indexLength + TRAILER_SIZE) {
    throw new FormatError('LCC-BUN-02', 'the lengths do not fit the size of the bundle');
  }
  const index = source.read(MAGIC.length + filesLength, indexLength);
  if (!sameBytes(sha256(MAGIC, index, trailer.subarray(0, ROOT_OFFSET)), trailer.subarray(ROOT_OFFSET))) {
    throw new ChecksumError('LCC-BUN-04', 'the root does not match the bytes around the files');
  }
  return readIndex(parseJson(index), source, filesLength);
}

/** LCC-BUN-05, LCC-BUN-06. */
function readIndex(json, source, filesLength) {
  if (!(json instanceof Map)) throw new FormatError('LCC-BUN-05', 'the index is no object');
  const names = [...json.keys()];
  if (names.some((name) => !MEMBERS.includes(name))) {
    throw new UnsupportedError('LCC-BUN-05', 'a member of the index is not known');
  }
  if (names[0] !== 'checkpoints') {
    throw new FormatError('LCC-BUN-05', 'the members of the index are not in their order, or one is missing');
  }
  const list = json.get('checkpoints');
  if (!Array.isArray(list) || list.length === 0) {
    throw new FormatError('LCC-BUN-06', 'the index has no list of checkpoints');
  }
  let offset = MAGIC.length;
  const entryOf = (step, length, root) => {
    const sound =
      isInteger(length, 1) && typeof root === 'string' && fromBase64Url(root)?.length === ROOT_SIZE;
    if (!sound) throw new FormatError('LCC-BUN-06', 'an entry has no length or no root');
    const entry = { step, root, source: partOf(source, offset, length) };
    offset += length;
    return entry;
  };
  let last = -1;
  const checkpoints = list.map((entry) => {
    if (!Array.isArray(entry) || entry.length !== 3 || !isInteger(entry[0], last + 1)) {
      throw new FormatError('LCC-BUN-06', 'an entry is no step, length and root, or the steps do not rise');
    }
    last = entry[0];
    return entryOf(...entry);
  });
  const exact = json.get('exact') ?? null;
  if (json.has('exact') && (!Array.isArray(exact) || exact.length !== 2)) {
    throw new FormatError('LCC-BUN-06', 'the exact file is no length and root');
  }
  const bundle = { checkpoints, exact: exact && entryOf(null, ...exact) };
  if (offset !== MAGIC.length + filesLength) {
    throw new FormatError('LCC-BUN-06', 'the lengths do not sum to that of the files');
  }
  return bundle;
}

/**
 * Open a file of a bundle (LCC-BUN-07).
 * @param {Bundle} bundle
 * @param {BundleEntry} entry
 * @returns {import('./checkpoint.js').Checkpoint}
 */
export function openEntry(bundle, entry) {
  const checkpoint = openCheckpoint(entry.source);
  const isExact = entry === bundle.exact;
  if (checkpoint.root !== entry.root || (!isExact && checkpoint.manifest.step !== entry.step)) {
    throw new FormatError('LCC-BUN-07', 'a file of the bundle is not the one that the index names');
  }
  if (isExact && checkpoint.kind !== 'exact') {
    throw new FormatError('LCC-EXA-01', 'the exact file of the bundle does not say that it is one');
  }
  return checkpoint;
}

/**
 * @param {Bundle} bundle
 * @returns {(step: number) => import('./checkpoint.js').Checkpoint|null} finds parents in the bundle
 */
export function finderOf(bundle) {
  return (step) => {
    const entry = bundle.checkpoints.find((each) => each.step === step);
    return entry === undefined ? null : openEntry(bundle, entry);
  };
}

/**
 * Read the state of a step of a bundle, as its checkpoint has it.
 * @param {Bundle} bundle
 * @param {number} step
 * @returns {import('./chain.js').State}
 */
export function readStep(bundle, step) {
  const find = finderOf(bundle);
  const checkpoint = find(step);
  if (checkpoint === null) throw new ArgumentError(`the bundle has no checkpoint of step ${step}`);
  return readState(checkpoint, find);
}

/**
 * Read the newest state of a bundle: that of the exact file, or of the last checkpoint (LCC-EXA-04).
 * @param {Bundle} bundle
 * @returns {import('./chain.js').State}
 */
export function readNewest(bundle) {
  const openExact = () => bundle.exact && openEntry(bundle, bundle.exact);
  return newestState(openExact, bundle.checkpoints.at(-1).step, finderOf(bundle));
}

/**
 * Read all states of a bundle, one after the other, and refuse what breaks a rule.
 * @param {Bundle} bundle
 * @returns {Generator<import('./chain.js').State>}
 */
export function* readAllStates(bundle) {
  const find = finderOf(bundle);
  const entries = bundle.exact === null ? bundle.checkpoints : [...bundle.checkpoints, bundle.exact];
  for (const entry of entries) yield readState(openEntry(bundle, entry), find);
}
