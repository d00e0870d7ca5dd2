/**
 * Checkpoint files: one state at one step (SPEC 8).
 */

import { sameBytes } from './bytes.js';
import { readTrailer, readVerifiedManifest } from './container.js';
import { copyOf } from './copies.js';
import { ChecksumError, FormatError } from './errors.js';
import { decodeBody, readHeader } from './frame.js';
import { readManifest } from './manifest.js';
import { checkCuts, checkPieces, readTable } from './pieces.js';
import { sha256 } from './sha256.js';
import { sourceOf } from './source.js';
import { arrayNames } from './tree.js';

const DIGEST_SIZE = 16;

/**
 * A checkpoint file whose trailer, root and manifest are sound. Its frames are not read yet.
 *
 * @typedef {object} Checkpoint
 * @property {string} root
 * @property {'keyframe'|'delta'|'interpolated'|'exact'} kind
 * @property {import('./manifest.js').Manifest} manifest
 * @property {import('./json.js').JsonValue|undefined} tree undefined if it is that of a parent which
 *   is not known yet
 * @property {string[]|null} names of the arrays, by index; null without a tree
 * @property {import('./source.js').Source} source
 * @property {number} payloadOffset
 */

/**
 * An array of a state.
 *
 * @typedef {import('./frame.js').DecodedArray & {name: string, index: number}} StateArray
 *
 * What frames are decoded against: arrays by their names.
 *
 * @typedef {{get: (name: string) => import('./frame.js').DecodedArray|undefined}} References
 */

/**
 * Open a checkpoint file.
 * @param {ArrayBuffer|ArrayBufferView|import('./source.js').Source} data
 * @returns {Checkpoint}
 */
export function openCheckpoint(data) {
  const source = sourceOf(data);
  const trailer = readTrailer(source);
  const manifest = readManifest(readVerifiedManifest(source, trailer), trailer);
  return {
    root: trailer.root,
    kind: kindOf(manifest),
    manifest,
    tree: manifest.tree,
    names: manifest.names,
    source,
    payloadOffset: trailer.payloadOffset,
  };
}

/** @param {import('./manifest.js').Manifest} manifest */
function kindOf({ parent, later, exact }) {
  if (later) return 'interpolated';
  if (parent) return 'delta';
  return exact === true ? 'exact' : 'keyframe';
}

/**
 * Give a delta the tree of its parent, if it has none of its own (LCC-MAN-07).
 * @param {Checkpoint} checkpoint
 * @param {Checkpoint} parent that has a tree
 * @returns {Checkpoint}
 */
export function withInheritedTree(checkpoint, parent) {
  if (checkpoint.names !== null) return checkpoint;
  const { arrays, scalars } = checkpoint.manifest;
  const names = arrayNames(parent.tree, arrays.length, scalars.length);
  return { ...checkpoint, tree: parent.tree, names };
}

/**
 * Decode the arrays of a checkpoint, frame by frame; those of the parent first (LCC-CHN-03).
 * @param {Checkpoint} checkpoint that has a tree
 * @param {References|null} parent the arrays of the parent; null for a keyframe
 * @returns {Generator<StateArray>} a copy follows its source
 */
export function* decodeArrays(checkpoint, parent) {
  const { manifest, names } = checkpoint;
  const copies = copiesBySource(manifest);
  function* withCopy(array, index) {
    yield { ...array, name: names[index], index };
    for (const copy of copies.get(index) ?? [])
      yield { ...copyOf(array, copy.type), name: names[copy.index], index: copy.index };
  }
  for (const [index, number] of manifest.arrays.entries()) {
    if (number === 0) yield* withCopy(arrayOf(parent, names[index]), index);
  }
  for (const frame of readFrames(checkpoint)) {
    const own = frame.indices.map((index) => names[index]);
    const reference = frame.header.relative ? referenceOf(frame.header, own, parent) : null;
    const arrays = decodeFrameOfFile(frame, reference);
    for (const [i, index] of frame.indices.entries()) yield* withCopy(arrays[i], index);
  }
}

/**
 * @param {import('./manifest.js').Manifest} manifest
 * @returns {Map<number, {index: number, type: import('./elementtypes.js').ElementType|null}[]>} the
 *   copies by the indices of their sources
 */
function copiesBySource({ arrays, copies }) {
  const indices = [...arrays.keys()].filter((index) => arrays[index] === null);
  const found = new Map(copies.map(({ source }) => [source, []]));
  for (const [k, { source, type }] of copies.entries()) found.get(source).push({ index: indices[k], type });
  return found;
}

/**
 * What can be known of an array without the parents of its file.
 *
 * @typedef {object} SurveyedArray
 * @property {number} index
 * @property {import('./elementtypes.js').ElementType|null} type null if only a parent tells
 * @property {number[]|null} shape null if only a parent tells
 * @property {Uint8Array|null} bytes of its components; null if only parents tell them
 * @property {string} [why] the bytes are null
 */

/**
 * Survey the arrays of a file whose parents are not there.
 * @param {Checkpoint} checkpoint
 * @returns {Generator<SurveyedArray>}
 */
export function* surveyArrays(checkpoint) {
  const copies = copiesBySource(checkpoint.manifest);
  const unchanged = checkpoint.manifest.later ? 'between the parents' : 'as in the parent';
  function* withCopy(array) {
    yield array;
    for (const copy of copies.get(array.index) ?? []) {
      const type = copy.type ?? array.type;
      const bytes = array.bytes && copyOf(array, copy.type).bytes;
      yield { index: copy.index, type, shape: array.shape, bytes, why: 'a copy of another array' };
    }
  }
  for (const [index, number] of checkpoint.manifest.arrays.entries()) {
    if (number === 0) yield* withCopy({ index, type: null, shape: null, bytes: null, why: unchanged });
  }
  for (const frame of readFrames(checkpoint)) {
    const { type, shapes, relative } = frame.header;
    const known = relative ? [] : decodeFrameOfFile(frame, null);
    for (const [i, index] of frame.indices.entries()) {
      const bytes = known[i]?.bytes ?? null;
      yield* withCopy({ index, type, shape: shapes[i], bytes, why: 'a change from the parent' });
    }
  }
}

/**
 * Compare all frames of a file with their digests, and decode none.
 * @param {Checkpoint} checkpoint
 */
export function checkDigests(checkpoint) {
  for (const _ of readFrames(checkpoint));
}

/**
 * A frame of a file, verified by its digest.
 *
 * @typedef {object} FrameOfFile
 * @property {Uint8Array} bytes
 * @property {import('./frame.js').Header} header
 * @property {import('./pieces.js').Piece[]|null} pieces
 * @property {number[]} indices of its arrays
 */

/**
 * @param {Checkpoint} checkpoint
 * @returns {Generator<FrameOfFile>}
 */
function* readFrames({ manifest, source, payloadOffset }) {
  const indices = manifest.frames.map(() => []);
  manifest.arrays.forEach((number, index) => number > 0 && indices[number - 1].push(index));
  for (const [k, { offset, length, tableLength, digest }] of manifest.frames.entries()) {
    const bytes = source.read(payloadOffset + offset, length);
    const table = tableLength > 0 ? source.read(payloadOffset + offset + length, tableLength) : null;
    if (!sameBytes(sha256(table ?? bytes).subarray(0, DIGEST_SIZE), digest)) {
      throw new ChecksumError('LCC-MAN-08', 'the digest of a frame does not match');
    }
    const pieces = table && readTable(table, length);
    if (pieces) checkPieces(bytes, pieces);
    const header = readHeader(bytes);
    if (header.shapes.length !== indices[k].length) {
      throw new FormatError(
        'LCC-CHN-03',
        `a frame of ${header.shapes.length} arrays is for ${indices[k].length}`,
      );
    }
    yield { bytes, header, pieces, indices: indices[k] };
  }
}

/**
 * @param {FrameOfFile} frame
 * @param {Uint8Array|null} reference
 */
function decodeFrameOfFile({ bytes, header, pieces }, reference) {
  if (pieces) checkCuts(bytes, header, pieces);
  return decodeBody(bytes, header, reference);
}

/**
 * @param {References|null} parent
 * @param {string} name
 */
function arrayOf(parent, name) {
  const found = parent?.get(name);
  if (found === undefined) {
    throw new FormatError('LCC-CHN-03', `the parent has no array ${JSON.stringify(name)}`);
  }
  return found;
}

/**
 * What a frame is decoded against: the arrays of the parent, end to end (LCC-CHN-03).
 * @param {import('./frame.js').Header} header
 * @param {string[]} names
 * @param {References|null} parent
 * @returns {Uint8Array}
 */
function referenceOf(header, names, parent) {
  if (parent === null) throw new FormatError('LCC-CHN-03', 'a frame of a keyframe has a reference');
  const arrays = names.map((name) => arrayOf(parent, name));
  arrays.forEach(({ type, shape }, k) => {
    const wanted = header.shapes[k];
    const same = shape.length === wanted.length && shape.every((extent, axis) => extent === wanted[axis]);
    if (type !== header.type || !same) {
      throw new FormatError(
        'LCC-CHN-03',
        `${JSON.stringify(names[k])} is ${header.type.name} (${wanted}), and ${type.name} (${shape}) in the parent`,
      );
    }
  });
  if (arrays.length === 1) return arrays[0].bytes;
  const reference = new Uint8Array(header.components * header.type.size);
  let start = 0;
  for (const { bytes } of arrays) {
    reference.set(bytes, start);
    start += bytes.length;
  }
  return reference;
}
