/**
 * The parts of a checkpoint file: head, payload, manifest, trailer (SPEC 8).
 */

import { Cursor, sameBytes, toBase64Url, u64At } from './bytes.js';
import { ChecksumError, FormatError, LimitError, TruncatedError, UnsupportedError } from './errors.js';
import { sha256 } from './sha256.js';

const HEAD_SIZE = 445;
const TRAILER_SIZE = 88;
const ROOT_OFFSET = 56; // in the trailer
const MAX_MANIFEST_SIZE = 2 ** 26;
const TRAILER_MAGIC = Uint8Array.of(0x4c, 0x43, 0x43, 0x4f, 0x44, 0x45, 0x43, 0x1a);
const SUPERBLOCK = [0x89, 0x48, 0x44, 0x46, 0x0d, 0x0a, 0x1a, 0x0a, 2]; // signature and version
const DATASET_NAME = [...new TextEncoder().encode('payload')];
const DATASET_NAME_OFFSET = 94;
const END_OF_HDF5 = 28; // in the superblock

/**
 * @typedef {object} Trailer
 * @property {number} major
 * @property {number} minor
 * @property {number} payloadOffset
 * @property {number} payloadLength
 * @property {number} manifestOffset
 * @property {number} manifestLength
 * @property {Uint8Array} bytes all 88
 * @property {Uint8Array} rootBytes
 * @property {string} root as manifests name it
 */

/**
 * Read the trailer of a file, and check it against the size of the file.
 * @param {import('./source.js').Source} source
 * @returns {Trailer}
 */
export function readTrailer(source) {
  const bytes = source.read(Math.max(0, source.size - TRAILER_SIZE), Math.min(source.size, TRAILER_SIZE));
  if (bytes.length < TRAILER_SIZE || !sameBytes(bytes.subarray(0, 8), TRAILER_MAGIC)) {
    if (isTruncated(source)) throw new TruncatedError('LCC-H5-01', 'the file is cut off');
    throw new FormatError('LCC-TRL-01', 'the file does not end in the trailer of a checkpoint');
  }
  const cursor = new Cursor(bytes, 8);
  const major = cursor.u16();
  const minor = cursor.u16();
  const layout = cursor.u32();
  const [payloadOffset, payloadLength, manifestOffset, manifestLength, fileLength] = [0, 0, 0, 0, 0].map(() =>
    cursor.u64(),
  );
  if (major !== 1) throw new UnsupportedError('LCC-TRL-03', `the file is of version ${major}.${minor}`);
  if (layout !== 1) throw new UnsupportedError('LCC-TRL-04', `the layout is ${layout}`);
  if (manifestLength > MAX_MANIFEST_SIZE) {
    throw new LimitError('LCC-LIM-04', `the manifest has ${manifestLength} bytes`);
  }
  // Lengths of 2^53 and more are rounded, and too large for any file all the same.
  const fits =
    payloadOffset === HEAD_SIZE &&
    manifestOffset === HEAD_SIZE + payloadLength &&
    fileLength === HEAD_SIZE + payloadLength + manifestLength + TRAILER_SIZE &&
    fileLength === source.size;
  if (!fits) throw new FormatError('LCC-TRL-06', 'offsets and lengths do not fit together and the file');
  const rootBytes = bytes.subarray(ROOT_OFFSET);
  return {
    major,
    minor,
    payloadOffset,
    payloadLength,
    manifestOffset,
    manifestLength,
    bytes,
    rootBytes,
    root: toBase64Url(rootBytes),
  };
}

/**
 * Whether a file without a trailer is the beginning of a checkpoint (LCC-TRL-01).
 * @param {import('./source.js').Source} source
 */
function isTruncated(source) {
  const start = source.read(0, Math.min(source.size, DATASET_NAME_OFFSET + DATASET_NAME.length));
  const hasAsFarAsItGoes = (expected, offset) =>
    expected.every((byte, i) => offset + i >= start.length || start[offset + i] === byte);
  if (start.length === 0) return false;
  if (!hasAsFarAsItGoes(SUPERBLOCK, 0) || !hasAsFarAsItGoes(DATASET_NAME, DATASET_NAME_OFFSET)) return false;
  return start.length < END_OF_HDF5 + 8 || source.size < u64At(start, END_OF_HDF5) + TRAILER_SIZE;
}

/**
 * Read the manifest, after the root is verified (LCC-TRL-05).
 * @param {import('./source.js').Source} source
 * @param {Trailer} trailer
 * @returns {Uint8Array}
 */
export function readVerifiedManifest(source, trailer) {
  const head = source.read(0, HEAD_SIZE);
  const manifest = source.read(trailer.manifestOffset, trailer.manifestLength);
  const root = sha256(head, manifest, trailer.bytes.subarray(0, ROOT_OFFSET));
  if (!sameBytes(root, trailer.rootBytes)) {
    throw new ChecksumError('LCC-TRL-05', 'the root does not match the bytes around the payload');
  }
  return manifest;
}
