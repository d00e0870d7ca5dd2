/**
 * Answers the questions of `conformance/run.py`, wherever the files are.
 */

import { toHex } from './bytes.js';
import {
  Refused,
  decodeFrame,
  mend,
  openBundle,
  openDamagedParity,
  openParity,
  readAllStates,
  readCheckpoint,
  readNewest,
  readNewestOf,
  readStep,
  toJson,
} from './index.js';
import { sha256 } from './sha256.js';

/**
 * Where the files of questions are. Paths have slashes.
 *
 * @typedef {object} Disk
 * @property {(path: string) => Uint8Array|null} read a file, or null if it is not there
 * @property {(directory: string) => string[]} list the names of its files
 */

/**
 * @param {string} line a question, in JSON
 * @param {Disk} disk
 * @returns {string} the answer, in JSON
 */
export function answer(line, disk) {
  const question = JSON.parse(line);
  let content;
  try {
    content = contentOf(question, disk);
  } catch (error) {
    content = error instanceof Refused ? { rule: error.rule } : { error: String(error.stack) };
  }
  return toJson(mapOf({ id: question.id, ...content }));
}

/** @param {Uint8Array[]} parts */
function digest(...parts) {
  return toHex(sha256(...parts));
}

function answerFrame({ frame, reference }, disk) {
  const arrays = decodeFrame(disk.read(frame), reference && disk.read(reference));
  return {
    dtype: arrays[0].type.name,
    shapes: arrays.map(({ shape }) => shape),
    sha256: digest(...arrays.map(({ bytes }) => bytes)),
  };
}

function answerFile({ file }, disk) {
  const directory = file.slice(0, file.lastIndexOf('/') + 1);
  return describeState(readCheckpoint(disk.read(file), (name) => disk.read(directory + name)));
}

function answerBundle({ bundle: path, step }, disk) {
  const bundle = openBundle(disk.read(path));
  if (step === null) return describeState(readNewest(bundle));
  if (step !== undefined) return describeState(readStep(bundle, step));
  for (const _ of readAllStates(bundle));
  return {};
}

function answerChain({ chain: directory }, disk) {
  return describeState(readNewestOf(disk.list(directory), (name) => disk.read(`${directory}/${name}`)));
}

function answerParity({ parity, named }, disk) {
  const { files } = openParity(disk.read(parity), named).description;
  return { files: files.map(({ name }) => name) };
}

function answerMend({ mend: directory }, disk) {
  const names = disk.list(directory).filter((name) => name.endsWith('.lcc.par'));
  const opened = names.map((name) => openDamagedParity(disk.read(`${directory}/${name}`), name));
  const columns = opened.filter((parity) => parity !== null);
  const found = new Map();
  for (const { name } of columns[0].description.files) {
    const bytes = disk.read(`${directory}/${name}`);
    if (bytes !== null) found.set(name, bytes);
  }
  return { files: new Map([...mend(columns, found)].map(([name, bytes]) => [name, digest(bytes)])) };
}

/** @param {import('./chain.js').State} state */
function describeState({ tree, scalars, arrays }) {
  const describe = ({ name, type, shape, bytes }) =>
    mapOf({ name, dtype: type.name, shape, sha256: digest(bytes) });
  return { tree, scalars, arrays: arrays.map(describe) };
}

function contentOf(question, disk) {
  if ('frame' in question) return answerFrame(question, disk);
  if ('file' in question) return answerFile(question, disk);
  if ('bundle' in question) return answerBundle(question, disk);
  if ('chain' in question) return answerChain(question, disk);
  if ('parity' in question) return answerParity(question, disk);
  if ('mend' in question) return answerMend(question, disk);
  return { unsupported: 'this is no question about files that are there' };
}

/** Objects are maps in `toJson`, which writes integers of any size. */
function mapOf(object) {
  return new Map(Object.entries(object));
}
