/**
 * Tables of the pieces of a frame (LCC-PCS-01 to LCC-PCS-03).
 */

import { Cursor, sameBytes } from './bytes.js';
import { codebookSize } from './codebook.js';
import { ChecksumError, FormatError } from './errors.js';
import { countBlocks } from './frame.js';
import { sha256 } from './sha256.js';

/** The bytes of an entry of a table. */
export const PIECE_ENTRY_SIZE = 28;

const DIGEST_SIZE = 16;
const CHECKS_SIZE = 12;

/**
 * @typedef {object} Piece
 * @property {number} blocks how many it has
 * @property {number} start of the piece in the frame
 * @property {number} end of the piece in the frame
 * @property {Uint8Array} digest
 */

/**
 * Read a table (LCC-PCS-01).
 * @param {Uint8Array} bytes
 * @param {number} length of the frame
 * @returns {Piece[]}
 */
export function readTable(bytes, length) {
  const count = bytes.length / PIECE_ENTRY_SIZE;
  if (!Number.isInteger(count) || count < 2) {
    throw new FormatError('LCC-PCS-01', 'a table has no whole entries, or fewer than two');
  }
  const cursor = new Cursor(bytes);
  let start = 0;
  const pieces = Array.from({ length: count }, () => {
    const blocks = cursor.u32();
    const end = start + cursor.u64();
    const piece = { blocks, start, end, digest: cursor.take(DIGEST_SIZE) };
    start = end;
    return piece;
  });
  if (pieces.some(({ blocks }, i) => (blocks === 0) !== (i === 0))) {
    throw new FormatError('LCC-PCS-01', 'the first piece has blocks, or another one has none');
  }
  if (start !== length) {
    throw new FormatError('LCC-PCS-01', `the pieces have ${start} bytes, and the frame ${length}`);
  }
  return pieces;
}

/**
 * Compare the pieces of a frame with their digests (LCC-PCS-02).
 * @param {Uint8Array} frame
 * @param {Piece[]} pieces
 */
export function checkPieces(frame, pieces) {
  for (const { start, end, digest } of pieces) {
    if (!sameBytes(sha256(frame.subarray(start, end)).subarray(0, DIGEST_SIZE), digest)) {
      throw new ChecksumError('LCC-PCS-02', 'the digest of a piece does not match');
    }
  }
}

/**
 * Check where a frame is cut (LCC-PCS-03).
 * @param {Uint8Array} frame
 * @param {import('./frame.js').Header} header
 * @param {Piece[]} pieces
 */
export function checkCuts(frame, header, pieces) {
  const [head, ...others] = pieces;
  if (head.end !== firstBlock(frame, header)) {
    throw new FormatError('LCC-PCS-03', 'the first piece is not what stands before the first block');
  }
  const raw = header.method === 'raw';
  const total = countBlocks(header);
  if (others.reduce((sum, { blocks }) => sum + blocks, 0) !== total) {
    throw new FormatError('LCC-PCS-03', `the pieces do not have ${total} blocks together`);
  }
  others.forEach((piece, i) => {
    const last = i === others.length - 1;
    const end = raw ? piece.start + rawLength(header, piece) : blocksEnd(frame, piece);
    // What the last piece of a raw frame lacks, its body lacks (LCC-FRM-02).
    if (last ? end > piece.end && !raw : end !== piece.end) {
      throw new FormatError('LCC-PCS-03', 'a piece is not whole blocks');
    }
  });
}

/** Where the first block begins; nowhere if the codebook goes beyond the frame. */
function firstBlock(frame, header) {
  if (header.method !== 'codebook') return header.bodyStart;
  const room = frame.length - CHECKS_SIZE - header.bodyStart;
  if (2 * header.shapes.length > room) return NaN;
  return header.bodyStart + codebookSize(new Cursor(frame, header.bodyStart), header);
}

/** The bytes of the blocks of a piece of a raw frame that is not the last. */
function rawLength({ type, blockSize }, { blocks }) {
  return blockSize * blocks * type.size;
}

/** Where the blocks of a piece end, by their sizes; infinity if that is behind its end. */
function blocksEnd(frame, { start, end, blocks }) {
  const cursor = new Cursor(frame, start, end);
  for (let i = 0; i < blocks; i++) {
    if (cursor.left < 4) return Infinity;
    const size = cursor.u32();
    if (size > cursor.left) return Infinity;
    cursor.skip(size);
  }
  return cursor.position;
}
