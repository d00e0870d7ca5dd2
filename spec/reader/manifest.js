/**
 * The manifest of a checkpoint file (SPEC 8), checked in the order that its "Precedence" gives.
 */

import { fromBase64Url } from './bytes.js';
import { FormatError, LimitError, UnsupportedError } from './errors.js';
import { ELEMENT_TYPES } from './elementtypes.js';
import { readFigures } from './figures.js';
import { isInteger, parseJson } from './json.js';
import { PIECE_ENTRY_SIZE } from './pieces.js';
import { scalarValue } from './scalars.js';
import { arrayNames } from './tree.js';

const MEMBERS = [
  'lccodec',
  'step',
  'parent',
  'later',
  'replaces',
  'exact',
  'policy',
  'figures',
  'metadata',
  'tree',
  'scalars',
  'arrays',
  'copies',
  'frames',
];
const OPTIONAL = new Set(['later', 'replaces', 'exact', 'figures', 'metadata', 'tree', 'scalars', 'copies']);
const MAX_ARRAYS = 2 ** 20;
const MIN_PIECE_BYTES = 1024;
const ROOT_SIZE = 32;
const DIGEST_SIZE = 16;
const COPY_TYPES = ['float16', 'bfloat16'];
const EQUAL_COPY = 255;

/**
 * @typedef {import('./json.js').JsonValue} JsonValue
 *
 * @typedef {object} Manifest
 * @property {[number, number]} version
 * @property {number|null} step
 * @property {{step: number, root: string}|null} parent the earlier parent
 * @property {{step: number, root: string, weight: number}|null} later the later parent
 * @property {string[]} replaces roots
 * @property {true|string|null} exact true for an exact file; the root of the exact file
 * @property {JsonValue} policy
 * @property {ReturnType<typeof readFigures>|null} figures
 * @property {Map<string, string>} metadata
 * @property {JsonValue|undefined} tree undefined if it is that of the parent
 * @property {string[]|null} names of the arrays, by index; null if the tree is that of the parent
 * @property {JsonValue[]} scalars as they are stored
 * @property {(number|null)[]} arrays the number of the frame of each, from 1 on; 0 for an array of
 *   the parent, null for a copy
 * @property {{source: number, type: import('./elementtypes.js').ElementType|null}[]} copies in the
 *   order of the nulls of `arrays`; the type is null for an equal copy
 * @property {FrameEntry[]} frames
 *
 * @typedef {object} FrameEntry
 * @property {number} offset in the payload
 * @property {number} length of the frame
 * @property {number} tableLength of the table of pieces behind it; 0 without one
 * @property {Uint8Array} digest of the table, or of the frame without one
 */

/**
 * Parse a manifest, and check it.
 * @param {Uint8Array} bytes
 * @param {import('./container.js').Trailer} trailer
 * @returns {Manifest}
 */
export function readManifest(bytes, trailer) {
  const json = checkMembers(parseJson(bytes));
  const version = readVersion(json.get('lccodec'));
  const step = readStep(json.get('step'), true);
  const metadata = readMetadata(json);
  if (json.get('parent') === null && !json.has('tree')) {
    throw new FormatError('LCC-MAN-07', 'a keyframe has no tree');
  }
  const parent = readParent(json.get('parent'));
  const later = json.has('later') ? readLater(json.get('later'), step, parent) : null;
  const exact = json.get('exact') ?? null;
  const replaces = json.has('replaces') ? readReplaces(json.get('replaces'), step, exact) : [];
  if (json.has('exact')) checkExact(exact, step, parent);
  const scalars = readScalars(json);
  const { frames, total } = readFrames(json.get('frames'));
  const arrays = readArrays(json.get('arrays'), frames.length, parent !== null);
  const copies = readCopies(json, arrays);
  const figures = json.has('figures')
    ? readFigures(json.get('figures'), { step, exact: exact === true, arrays: arrays.length })
    : null;
  const tree = json.get('tree');
  const names = json.has('tree') ? arrayNames(tree, arrays.length, scalars.length) : null;
  if (version[0] !== trailer.major || version[1] !== trailer.minor) {
    throw new FormatError(
      'LCC-MAN-09',
      `the manifest has version ${version.join('.')}, and the trailer another`,
    );
  }
  if (total !== trailer.payloadLength) {
    throw new FormatError(
      'LCC-MAN-05',
      `the frames have ${total} bytes, and the payload ${trailer.payloadLength}`,
    );
  }
  checkSteps(step, parent);
  return {
    version,
    step,
    parent,
    later,
    replaces,
    exact,
    figures,
    metadata,
    tree,
    names,
    scalars,
    arrays,
    copies,
    frames,
    policy: json.get('policy'),
  };
}

/**
 * LCC-MAN-03.
 * @param {JsonValue} json
 * @returns {Map<string, JsonValue>}
 */
function checkMembers(json) {
  if (!(json instanceof Map)) throw new FormatError('LCC-MAN-03', 'the manifest is no object');
  const names = [...json.keys()];
  const unknown = names.find((name) => !MEMBERS.includes(name));
  if (unknown !== undefined) {
    throw new UnsupportedError('LCC-MAN-03', `the member ${JSON.stringify(unknown)} is not known`);
  }
  const missing = MEMBERS.find((name) => !OPTIONAL.has(name) && !json.has(name));
  if (missing !== undefined) throw new FormatError('LCC-MAN-03', `the member ${missing} is missing`);
  const inOrder = MEMBERS.filter((name) => json.has(name));
  if (names.some((name, i) => name !== inOrder[i])) {
    throw new FormatError('LCC-MAN-03', 'the members are not in their order');
  }
  return json;
}

/** LCC-MAN-09. */
function readVersion(json) {
  if (!Array.isArray(json) || json.length !== 2 || !json.every((part) => isInteger(part, 0, 65535))) {
    throw new FormatError('LCC-MAN-09', 'the version is not two integers of 16 bits');
  }
  if (json[0] !== 1) throw new UnsupportedError('LCC-MAN-09', `the major version is ${json[0]}`);
  return json;
}

/** LCC-MAN-02. */
function readStep(json, mayBeNull = false) {
  if (mayBeNull && json === null) return null;
  if (!isInteger(json, 0)) throw new FormatError('LCC-MAN-02', 'a step is no integer from 0 to 2^53 - 1');
  return json;
}

/** LCC-MAN-06. */
function readMetadata(json) {
  if (!json.has('metadata')) return new Map();
  const metadata = json.get('metadata');
  const sound = metadata instanceof Map && metadata.size > 0;
  if (!sound || ![...metadata.values()].every((value) => typeof value === 'string')) {
    throw new FormatError('LCC-MAN-06', 'the metadata are no object of strings, or an empty one');
  }
  return metadata;
}

/**
 * @param {JsonValue} json
 * @param {number} size of the bytes
 * @returns {Uint8Array|null} the bytes of a canonical text of so many (LCC-MAN-08)
 */
function readText(json, size) {
  const bytes = typeof json === 'string' ? fromBase64Url(json) : null;
  return bytes?.length === size ? bytes : null;
}

/** LCC-MAN-04. */
function readParent(json) {
  if (json === null) return null;
  if (!Array.isArray(json) || json.length !== 2) {
    throw new FormatError('LCC-MAN-04', 'the parent is not a step and a root');
  }
  const step = readStep(json[0]);
  if (readText(json[1], ROOT_SIZE) === null) {
    throw new FormatError('LCC-MAN-04', 'the root of the parent is no canonical text of 32 bytes');
  }
  return { step, root: json[1] };
}

/** LCC-INT-01. */
function readLater(json, step, parent) {
  const sound =
    Array.isArray(json) &&
    json.length === 3 &&
    isInteger(json[0], 0) &&
    readText(json[1], ROOT_SIZE) !== null &&
    isInteger(json[2], 0, 255);
  if (!sound) throw new FormatError('LCC-INT-01', 'the later parent is not a step, a root and a weight');
  if (parent === null || step === null || step <= parent.step || step >= json[0]) {
    throw new FormatError('LCC-INT-01', 'the step is not between those of two parents');
  }
  return { step: json[0], root: json[1], weight: json[2] };
}

/** LCC-MAN-12. */
function readReplaces(json, step, exact) {
  const sound =
    Array.isArray(json) &&
    json.length > 0 &&
    json.every((root) => readText(root, ROOT_SIZE) !== null) &&
    new Set(json).size === json.length;
  if (!sound) throw new FormatError('LCC-MAN-12', 'what the file replaces is no list of different roots');
  if (step === null || exact === true) {
    throw new FormatError('LCC-MAN-12', 'a file without a step, or an exact file, replaces another');
  }
  return json;
}

/** LCC-EXA-02. */
function checkExact(exact, step, parent) {
  if (exact !== true && readText(exact, ROOT_SIZE) === null) {
    throw new FormatError('LCC-EXA-02', 'the member exact is neither true nor a root');
  }
  if (step === null || (exact === true && parent !== null)) {
    throw new FormatError('LCC-EXA-02', 'an exact file has no step or a parent, or is named without a step');
  }
}

/** LCC-MAN-11, LCC-STA-04, LCC-STA-05. */
function readScalars(json) {
  if (!json.has('scalars')) return [];
  const scalars = json.get('scalars');
  if (!Array.isArray(scalars)) throw new FormatError('LCC-STA-04', 'the scalars are no list');
  if (scalars.length === 0) throw new FormatError('LCC-MAN-11', 'the list of scalars is empty');
  scalars.forEach(scalarValue);
  return scalars;
}

/** LCC-MAN-05, LCC-MAN-08, LCC-LIM-13. */
function readFrames(json) {
  if (!Array.isArray(json)) throw new FormatError('LCC-MAN-05', 'the frames are no list');
  let offset = 0;
  const frames = json.map((entry) => {
    const frame = readFrameEntry(entry, offset);
    offset += frame.length + frame.tableLength;
    return frame;
  });
  return { frames, total: offset };
}

/** @returns {FrameEntry} */
function readFrameEntry(entry, offset) {
  if (!Array.isArray(entry) || (entry.length !== 2 && entry.length !== 3)) {
    throw new FormatError('LCC-MAN-05', 'the entry of a frame is no list of a length and a digest');
  }
  const [length, text, tableLength] = entry;
  if (!isInteger(length, 1) || (entry.length === 3 && !isInteger(tableLength, 1))) {
    throw new FormatError(
      'LCC-MAN-05',
      'the length of a frame or of its table is no integer from 1 to 2^53 - 1',
    );
  }
  const digest = readText(text, DIGEST_SIZE);
  if (digest === null) throw new FormatError('LCC-MAN-08', 'a digest is no canonical text of 16 bytes');
  const most = PIECE_ENTRY_SIZE * (3 + Math.floor(length / MIN_PIECE_BYTES));
  if (tableLength > most) {
    throw new LimitError('LCC-LIM-13', `a table of ${tableLength} bytes belongs to a frame of ${length}`);
  }
  return { offset, length, tableLength: tableLength ?? 0, digest };
}

/** LCC-LIM-06, LCC-MAN-10. */
function readArrays(json, frames, hasParent) {
  if (!Array.isArray(json)) throw new FormatError('LCC-MAN-10', 'the arrays are no list');
  if (json.length > MAX_ARRAYS) throw new LimitError('LCC-LIM-06', `there are ${json.length} arrays`);
  let last = 0;
  for (const number of json) {
    if (number === null) continue;
    if (!isInteger(number, hasParent ? 0 : 1, last + 1)) {
      throw new FormatError('LCC-MAN-10', `the number of an array is no frame up to ${last + 1}`);
    }
    last = Math.max(last, number);
  }
  if (last !== frames) throw new FormatError('LCC-MAN-10', `arrays are in ${last} of ${frames} frames`);
  return json;
}

/** LCC-CPY-01. */
function readCopies(json, arrays) {
  const copies = json.get('copies') ?? [];
  const count = arrays.filter((number) => number === null).length;
  if (!Array.isArray(copies) || copies.length !== count || (count === 0 && json.has('copies'))) {
    throw new FormatError('LCC-CPY-01', `there is no list of ${count} copies`);
  }
  const roundings = new Set();
  const equals = new Set();
  return copies.map((entry) => {
    if (!Array.isArray(entry) || entry.length !== 2 || !entry.every((part) => isInteger(part, 0))) {
      throw new FormatError('LCC-CPY-01', 'a copy is no list of a source and a type');
    }
    const [source, code] = entry;
    const isEqual = code === EQUAL_COPY;
    if (!isEqual && !COPY_TYPES.includes(ELEMENT_TYPES[code]?.name)) {
      throw new UnsupportedError('LCC-CPY-01', `a copy has the code ${code}`);
    }
    if (source >= arrays.length || arrays[source] === null) {
      throw new FormatError('LCC-CPY-01', `array ${source} is not there, or is a copy`);
    }
    const sources = isEqual ? equals : roundings;
    if (sources.has(source)) {
      throw new FormatError('LCC-CPY-01', `array ${source} has two copies of one kind`);
    }
    sources.add(source);
    return { source, type: isEqual ? null : ELEMENT_TYPES[code] };
  });
}

/** LCC-CHN-02: what the manifest of a delta says alone. */
function checkSteps(step, parent) {
  if (parent !== null && (step === null || step <= parent.step)) {
    throw new FormatError('LCC-CHN-02', 'the step of a delta is not above that of its parent');
  }
}
