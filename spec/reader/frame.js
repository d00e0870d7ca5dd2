/**
 * Frames: the self-contained bytes of one coded array, or of a run of arrays (SPEC 6).
 */

import { arraySum } from './arraysum.js';
import { Cursor, u32At } from './bytes.js';
import { codebookDecoder } from './codebook.js';
import { crc32 } from './crc32.js';
import { ELEMENT_TYPES, isFloating } from './elementtypes.js';
import {
  ArgumentError,
  ChecksumError,
  FormatError,
  LimitError,
  TruncatedError,
  UnsupportedError,
} from './errors.js';
import { planesDecoder } from './planes.js';
import { product, smoothDecoder, smoothLayout } from './smooth.js';

/** The methods, by their codes. */
export const METHODS = Object.freeze(['raw', 'planes', 'codebook', 'smooth']);

const HEADER_SIZE = 8;
const CHECKS_SIZE = 12; // the array sum and the CRC-32
const FLAG_RELATIVE = 1;
const FLAG_RUN = 2;
const FLAG_ORDERED = 4;
const MAX_DIMENSIONS = 32;
const MAX_ARRAYS = 2 ** 20;
const MAX_ELEMENTS = 2 ** 40;
const MAX_RUN_COMPONENTS = 2 ** 22;
const MAX_EXPANSION = 1024; // decoded bytes of a byte
const MAX_SMOOTH_COMPONENTS = 256; // of a byte
const RAW_BLOCK = 65536; // components; for pieces only

/**
 * What the header of a frame says.
 *
 * @typedef {object} Header
 * @property {'raw'|'planes'|'codebook'|'smooth'} method
 * @property {import('./elementtypes.js').ElementType} type
 * @property {boolean} relative whether the frame is decoded against a reference
 * @property {boolean} run whether the frame is a run of arrays
 * @property {boolean} ordered whether representatives are steps from number to number
 * @property {number} blockSize the components that a block has at most
 * @property {number[][]} shapes of the arrays; one if the frame is no run
 * @property {number[]} counts of the components of the arrays
 * @property {number} components of all arrays
 * @property {number} bodyStart where the body begins
 */

/**
 * An array, as it is decoded.
 *
 * @typedef {object} DecodedArray
 * @property {import('./elementtypes.js').ElementType} type
 * @property {number[]} shape
 * @property {Uint8Array} bytes of its components, little-endian
 */

/**
 * Decode a frame.
 * @param {Uint8Array} bytes
 * @param {Uint8Array|null} [reference] the components that it is decoded against, if it needs any
 * @returns {DecodedArray[]} one array, unless the frame is a run
 */
export function decodeFrame(bytes, reference = null) {
  return decodeBody(bytes, readHeader(bytes), reference);
}

/**
 * Read the header of a frame, and check what SPEC 12 puts before the CRC-32.
 * @param {Uint8Array} bytes of the whole frame
 * @returns {Header}
 */
export function readHeader(bytes) {
  if (bytes.length < HEADER_SIZE) {
    throw new TruncatedError('LCC-FRM-02', `the frame has ${bytes.length} bytes`);
  }
  const [magic0, magic1, version, methodCode, typeCode, flags, dimensions, blockLog2] = bytes;
  if (magic0 !== 0x4c || magic1 !== 0x43) {
    throw new FormatError('LCC-FRM-01', 'the frame does not begin with LC');
  }
  if (version !== 1) throw new UnsupportedError('LCC-VER-01', `the frame has version ${version}`);
  const method = METHODS[methodCode];
  if (method === undefined) throw new UnsupportedError('LCC-FRM-03', `the method is ${methodCode}`);
  const relative = (flags & FLAG_RELATIVE) !== 0;
  const run = (flags & FLAG_RUN) !== 0;
  const ordered = (flags & FLAG_ORDERED) !== 0;
  checkFlags(method, flags, { relative, run, ordered });
  const type = elementType(method, typeCode);
  checkBlockLog2(method, blockLog2);

  const cursor = new Cursor(bytes, HEADER_SIZE, Math.max(HEADER_SIZE, bytes.length - CHECKS_SIZE));
  const shapes = run ? readRunShapes(cursor, dimensions) : [readShape(cursor, dimensions)];
  if (bytes.length < cursor.position + CHECKS_SIZE) {
    throw new TruncatedError('LCC-FRM-02', 'the frame ends before its checksums');
  }
  checkExtents(shapes);
  const counts = shapes.map((shape) => shape.reduce((count, extent) => count * extent, type.components));
  const components = counts.reduce((sum, count) => sum + count, 0);
  if (run && components > MAX_RUN_COMPONENTS) {
    throw new LimitError('LCC-LIM-09', `a run has ${components} components`);
  }
  const blockSize = method === 'raw' ? RAW_BLOCK : 2 ** blockLog2;
  const bodyStart = cursor.position;
  return { method, type, relative, run, ordered, blockSize, shapes, counts, components, bodyStart };
}

/** LCC-FRM-04, LCC-FRM-12. */
function checkFlags(method, flags, { relative, run, ordered }) {
  const reserved = flags & ~(FLAG_RELATIVE | FLAG_RUN | FLAG_ORDERED);
  if (reserved || (relative && method === 'raw') || (run && method === 'smooth')) {
    throw new UnsupportedError('LCC-FRM-04', `the flags of a ${method} frame are ${flags}`);
  }
  if (ordered && !(relative && method === 'codebook')) {
    throw new UnsupportedError('LCC-FRM-12', 'an ordered frame is no codebook frame with a reference');
  }
}

/** LCC-FRM-06. */
function elementType(method, code) {
  const type = ELEMENT_TYPES[code];
  if (type === undefined) throw new UnsupportedError('LCC-FRM-06', `the element type is ${code}`);
  if ((method === 'codebook' && !isFloating(type)) || (method === 'smooth' && type.kind !== 'float')) {
    throw new FormatError('LCC-FRM-06', `a ${method} frame has the element type ${type.name}`);
  }
  return type;
}

/** LCC-LIM-02. */
function checkBlockLog2(method, blockLog2) {
  const least = { raw: 0, planes: 10, codebook: 10, smooth: 16 }[method];
  const most = { raw: 0, planes: 22, codebook: 22, smooth: 24 }[method];
  if (blockLog2 < least || blockLog2 > most) {
    throw new LimitError('LCC-LIM-02', `the blocks of a ${method} frame have 2^${blockLog2} components`);
  }
}

/** The fields of a run (LCC-FRM-11). */
function readRunShapes(cursor, dimensions) {
  if (dimensions !== 0) throw new FormatError('LCC-FRM-11', `a run has ${dimensions} dimensions`);
  const arrays = cursor.u32();
  if (arrays < 1 || arrays > MAX_ARRAYS) throw new FormatError('LCC-FRM-11', `a run has ${arrays} arrays`);
  return Array.from(cursor.take(arrays), (each) => readShape(cursor, each));
}

/** LCC-FRM-05. */
function readShape(cursor, dimensions) {
  if (dimensions > MAX_DIMENSIONS) {
    throw new LimitError('LCC-FRM-05', `an array has ${dimensions} dimensions`);
  }
  return Array.from({ length: dimensions }, () => cursor.u64());
}

/** LCC-LIM-01. Products beyond 2^53 may be rounded, and are too large all the same. */
function checkExtents(shapes) {
  let sum = 0;
  for (const shape of shapes) {
    sum += shape.reduce((product, extent) => product * (extent || 1), 1);
    if (sum > MAX_ELEMENTS) throw new LimitError('LCC-LIM-01', 'the extents multiply to more than 2^40');
  }
}

/**
 * Decode what is behind the header of a frame, in the order of SPEC 12.
 * @param {Uint8Array} bytes of the whole frame
 * @param {Header} header
 * @param {Uint8Array|null} reference
 * @returns {DecodedArray[]}
 */
export function decodeBody(bytes, header, reference) {
  const { method, type, relative, components } = header;
  const end = bytes.length - CHECKS_SIZE;
  if (crc32(bytes.subarray(0, bytes.length - 4)) !== u32At(bytes, bytes.length - 4)) {
    throw new ChecksumError('LCC-FRM-08', 'the CRC-32 of the frame does not match');
  }
  const size = components * type.size; // of what is decoded
  if (relative && reference?.length !== size) {
    throw new ArgumentError(`the frame needs a reference of ${size} bytes`);
  }
  if (!relative && size > MAX_EXPANSION * bytes.length) {
    throw new LimitError('LCC-LIM-03', `${bytes.length} bytes decode to ${size}`);
  }
  if (method === 'smooth' && components > MAX_SMOOTH_COMPONENTS * bytes.length) {
    throw new LimitError(
      'LCC-LIM-12',
      `a smooth frame of ${bytes.length} bytes has ${components} components`,
    );
  }
  const cursor = new Cursor(bytes, header.bodyStart, end);
  let values;
  if (method === 'raw') {
    values = new Uint8Array(cursor.take(size));
  } else {
    values = relative ? new Uint8Array(reference) : new Uint8Array(size);
    decodeBlocks(cursor, header, values);
    const fields = method === 'smooth' ? components / MAX_SMOOTH_COMPONENTS : 0;
    const least = Math.max(fields, relative ? 0 : size / MAX_EXPANSION);
    skipPadding(cursor, Math.ceil(least), bytes.length);
  }
  if (cursor.left > 0) throw new FormatError('LCC-FRM-07', 'the body has bytes behind its end');
  if (type.kind === 'bool' && values.some((value) => value > 1)) {
    throw new FormatError('LCC-FRM-10', 'a bool is neither 0 nor 1');
  }
  const [low, high] = arraySum(values);
  if (low !== u32At(bytes, end) || high !== u32At(bytes, end + 4)) {
    throw new ChecksumError('LCC-FRM-09', 'the array sum does not match');
  }
  return takeApart(header, values);
}

/**
 * @param {Header} header
 * @returns {number} how many blocks the frame has
 */
export function countBlocks({ method, shapes, components, blockSize }) {
  return method === 'smooth' ? smoothLayout(shapes[0], blockSize).blocks : Math.ceil(components / blockSize);
}

/**
 * @param {Cursor} cursor at the body
 * @param {Header} header
 * @param {Uint8Array} values the reference, or zeros; becomes what is decoded
 */
function decodeBlocks(cursor, header, values) {
  const { method, type, relative, shapes, components, blockSize } = header;
  const inBlock = (decode) => {
    const block = cursor.part(cursor.u32());
    decode(block);
    if (block.left > 0) throw new FormatError('LCC-FRM-07', 'a block has bytes behind its end');
  };
  if (method === 'smooth') {
    const decode = smoothDecoder(type, values, relative);
    const { blocks, extents } = smoothLayout(shapes[0], blockSize);
    for (let i = 0, start = 0; i < blocks; i++) {
      inBlock((block) => decode(block, start, extents(i)));
      start += product(extents(i));
    }
    return;
  }
  const decode = method === 'planes' ? planesDecoder(type, values, relative) : codebookDecoder(cursor, header, values);
  for (let start = 0; start < components; start += blockSize) {
    inBlock((block) => decode(block, start, Math.min(blockSize, components - start)));
  }
}

/**
 * Step over the zeros that make a frame as long as its limit asks for (LCC-FRM-07).
 * @param {Cursor} cursor behind the last block
 * @param {number} least the bytes that the frame has at least
 * @param {number} length of the frame
 */
function skipPadding(cursor, least, length) {
  const needed = Math.max(0, least - (length - cursor.left));
  if (cursor.take(needed).some((byte) => byte !== 0)) {
    throw new FormatError('LCC-FRM-07', 'a byte of the padding is not 0');
  }
}

/**
 * @param {Header} header
 * @param {Uint8Array} values of all arrays, end to end
 * @returns {DecodedArray[]}
 */
function takeApart({ type, shapes, counts }, values) {
  let start = 0;
  return shapes.map((shape, k) => {
    const bytes = values.subarray(start, (start += counts[k] * type.size));
    return { type, shape, bytes };
  });
}
