/**
 * Chains: a checkpoint and the parents that it needs (SPEC 9).
 */

import { decodeArrays, openCheckpoint, withInheritedTree } from './checkpoint.js';
import { ChainError, FormatError, LimitError, Refused } from './errors.js';
import { interpolation } from './interpolation.js';

const MAX_INTERPOLATED = 16;

/**
 * @typedef {import('./checkpoint.js').Checkpoint} Checkpoint
 * @typedef {import('./checkpoint.js').StateArray} StateArray
 *
 * @typedef {object} State
 * @property {number|null} step
 * @property {import('./json.js').JsonValue} tree
 * @property {import('./json.js').JsonValue[]} scalars in document order, as they are stored
 * @property {Map<string, string>} metadata
 * @property {StateArray[]} arrays by index
 */

/**
 * @param {number} step
 * @returns {string} the name of its checkpoint (LCC-CHN-01)
 */
export function checkpointName(step) {
  return `${String(step).padStart(12, '0')}.lcc.h5`;
}

/**
 * Find all checkpoints that one needs, and check their manifests (LCC-CHN-02).
 * @param {Checkpoint} checkpoint
 * @param {(step: number, root: string) => Checkpoint|null} find the checkpoint of a step, which has
 *   that root or replaces it
 * @returns {Checkpoint[]} each with a tree, and behind its parents; the checkpoint itself is the last
 */
export function resolveChain(checkpoint, find) {
  const found = new Map([[checkpoint.manifest.step, checkpoint]]);
  const unseen = [checkpoint];
  let interpolated = 0;
  for (let child = unseen.pop(); child !== undefined; child = unseen.pop()) {
    if (child.manifest.later && ++interpolated > MAX_INTERPOLATED) {
      throw new LimitError('LCC-LIM-10', 'the checkpoint needs more than 16 interpolated ones');
    }
    for (const { step, root } of parentsOf(child)) {
      const parent = found.get(step) ?? find(step, root);
      checkLink(child, parent, step, root);
      if (!found.has(step)) unseen.push(parent);
      found.set(step, parent);
    }
  }
  const ordered = [...found.values()].sort(inOrder);
  const trees = new Map();
  return ordered.map((file) => {
    const { step, parent } = file.manifest;
    const whole = withInheritedTree(file, parent && trees.get(parent.step));
    trees.set(step, whole);
    return whole;
  });
}

/** @param {Checkpoint} checkpoint */
function parentsOf({ manifest: { parent, later } }) {
  return [parent, later].filter((link) => link !== null);
}

/**
 * @param {Checkpoint} child
 * @param {Checkpoint|null} parent
 * @param {number} step that the child names
 * @param {string} root that the child names
 */
function checkLink(child, parent, step, root) {
  if (parent === null) throw new ChainError('LCC-CHN-02', `the parent, of step ${step}, is not there`);
  const same = parent.root === root || parent.manifest.replaces.includes(root);
  if (parent.manifest.step !== step || !same) {
    throw new ChainError('LCC-CHN-02', `the parent, of step ${step}, is another one`);
  }
  if (!parent.manifest.later) return;
  if (!child.manifest.later) throw new FormatError('LCC-INT-02', 'the parent of a delta is interpolated');
  const [outer, inner] = [spanOf(parent), spanOf(child)];
  if (outer.start > inner.start || outer.end < inner.end) {
    throw new FormatError('LCC-INT-02', 'an interpolated parent does not have the whole span of its child');
  }
}

/** From the step of the earlier parent to that of the later one. */
function spanOf({ manifest: { parent, later } }) {
  return { start: parent.step, end: later.step };
}

/** The order in which all parents are decoded before their children (LCC-INT-02). */
function inOrder(a, b) {
  const lengthOf = (file) => {
    if (!file.manifest.later) return Infinity;
    const { start, end } = spanOf(file);
    return end - start;
  };
  const [x, y] = [lengthOf(a), lengthOf(b)];
  return x === y ? a.manifest.step - b.manifest.step : y - x;
}

/**
 * Decode the arrays of the last checkpoint of a chain. Others are held in memory as long as a
 * checkpoint that is still to be decoded needs them.
 * @param {Checkpoint[]} chain from `resolveChain`
 * @returns {Generator<StateArray>} in no particular order
 */
export function* decodeChain(chain) {
  const last = chain.at(-1);
  const children = new Map(); // how many checkpoints still need one
  for (const { step } of chain.flatMap(parentsOf)) children.set(step, (children.get(step) ?? 0) + 1);
  const states = new Map();
  for (const checkpoint of chain) {
    const { step, parent, later } = checkpoint.manifest;
    const earlier = parent && states.get(parent.step);
    const references = later ? interpolation(earlier, states.get(later.step), later.weight) : earlier;
    const arrays = withStep(step, decodeArrays(checkpoint, references));
    if (checkpoint === last) {
      yield* arrays;
      return;
    }
    const state = new Map();
    for (const array of arrays) state.set(array.name, array);
    states.set(step, state);
    for (const link of parentsOf(checkpoint)) {
      children.set(link.step, children.get(link.step) - 1);
      if (children.get(link.step) === 0) states.delete(link.step);
    }
  }
}

/** Let errors say of which checkpoint they are. */
function* withStep(step, arrays) {
  try {
    yield* arrays;
  } catch (error) {
    if (error instanceof Refused) error.step = step;
    throw error;
  }
}

/**
 * Read the state of a checkpoint file.
 * @param {ArrayBuffer|ArrayBufferView|import('./source.js').Source} data
 * @param {(name: string) => ArrayBuffer|ArrayBufferView|import('./source.js').Source|null} [find]
 *   returns the file of a parent, by its name
 * @returns {State}
 */
export function readCheckpoint(data, find = () => null) {
  return readState(openCheckpoint(data), (step) => {
    const parent = find(checkpointName(step));
    return parent === null ? null : openCheckpoint(parent);
  });
}

/**
 * Read the state of a checkpoint that is open.
 * @param {Checkpoint} checkpoint
 * @param {(step: number, root: string) => Checkpoint|null} find as for `resolveChain`
 * @returns {State}
 */
export function readState(checkpoint, find) {
  const chain = resolveChain(checkpoint, find);
  const { manifest, tree } = chain.at(-1);
  const arrays = [];
  for (const array of decodeChain(chain)) arrays[array.index] = array;
  return { step: manifest.step, tree, scalars: manifest.scalars, metadata: manifest.metadata, arrays };
}

const EXACT_NAME = 'exact.lcc.h5';
const CHECKPOINT_NAME = /^(?:\d{12}|[1-9]\d{12,15})\.lcc\.h5$/;

/**
 * Read the newest state of a chain's directory (LCC-EXA-04).
 * @param {string[]} names of its files
 * @param {(name: string) => ArrayBuffer|ArrayBufferView|import('./source.js').Source|null} find
 *   returns a file, by its name
 * @returns {State}
 */
export function readNewestOf(names, find) {
  const steps = names.filter((name) => CHECKPOINT_NAME.test(name)).map((name) => Number.parseInt(name, 10));
  const open = (name) => {
    const file = find(name);
    return file === null ? null : openCheckpoint(file);
  };
  const openExact = () => {
    const exact = open(EXACT_NAME);
    if (exact === null || exact.kind === 'exact') return exact;
    throw new FormatError('LCC-EXA-01', 'the exact file does not say that it is one');
  };
  if (steps.length === 0 && !names.includes(EXACT_NAME)) {
    throw new ChainError('LCC-CHN-02', 'there is no checkpoint');
  }
  const last = Math.max(-1, ...steps);
  return newestState(openExact, last, (step) => open(checkpointName(step)));
}

/**
 * Read the newest state of a chain: that of the exact file, or of the last checkpoint (LCC-EXA-04).
 * @param {() => Checkpoint|null} openExact
 * @param {number} last the newest step of the history, -1 without one
 * @param {(step: number) => Checkpoint|null} find the checkpoint of a step
 * @returns {State}
 */
export function newestState(openExact, last, find) {
  let exact = null;
  let root = null;
  try {
    const file = openExact();
    if (file !== null) [exact, root] = [readState(file, () => null), file.root];
  } catch (error) {
    if (!(error instanceof Refused) || last < 0) throw error;
  }
  if (exact !== null && exact.step > last) return exact;
  let checkpoint;
  try {
    checkpoint = find(last);
  } catch (error) {
    // The exact file of a damaged checkpoint is the newest state.
    if (error instanceof Refused && exact?.step === last) return exact;
    throw error;
  }
  const named = exact?.step === last && checkpoint.manifest.exact === root;
  return named ? exact : readState(checkpoint, find);
}
