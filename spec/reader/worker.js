/**
 * The worker of the page: opens files, and tells the page what is in one of them.
 *
 * It is sent `{files, wanted}` once: the files, and the names of those of which the newest state is
 * to be shown. A checkpoint in a bundle has the name of both. It sends these messages:
 *
 *     {type: 'files', items, selected}    the checkpoints and what else there is; which one follows
 *     {type: 'summary', ...}              what the manifest of that checkpoint says
 *     {type: 'array', index, ...}         one of its arrays, for each
 *     {type: 'end', ...}                  how it ended
 */

import {
  ChainError,
  Refused,
  blobSource,
  decodeChain,
  describeNode,
  finderOf,
  isBundle,
  isParity,
  openBundle,
  openCheckpoint,
  openEntry,
  resolveChain,
  scalarValue,
  surveyArrays,
  toJson,
} from './index.js';
import { statisticsOf } from './statistics.js';

/**
 * Something that the page lists.
 *
 * @typedef {object} Item
 * @property {string} name
 * @property {string} file the name of the file that it is in
 * @property {number} size
 * @property {import('./checkpoint.js').Checkpoint|null} checkpoint
 * @property {import('./bundle.js').Bundle|null} bundle that it is in
 * @property {ReturnType<typeof problemOf>|null} problem why it cannot be opened
 */

self.addEventListener('message', ({ data: { files, wanted } }) => {
  const items = files.flatMap(openFile);
  const selected = newest(items, (item) => wanted.includes(item.name) || wanted.includes(item.file));
  post('files', { items: items.map(listed), selected });
  if (items[selected].checkpoint !== null) show(items[selected], items);
});

/** @param {string} type */
function post(type, message) {
  self.postMessage({ type, ...message });
}

/**
 * @param {File} file
 * @returns {Item[]} one, or those of a bundle
 */
function openFile(file) {
  const source = blobSource(file);
  const about = {
    name: file.name,
    file: file.name,
    size: file.size,
    checkpoint: null,
    bundle: null,
    problem: null,
  };
  try {
    if (isParity(source)) throw new Error('this is a parity file: it mends damaged files, and has no state');
    if (!isBundle(source)) return [opened(about, () => openCheckpoint(source))];
    const bundle = openBundle(source);
    const entries = bundle.exact === null ? bundle.checkpoints : [...bundle.checkpoints, bundle.exact];
    return entries.map((entry) => {
      const name = `${file.name}, ${entry.step === null ? 'exact file' : `step ${entry.step}`}`;
      return opened({ ...about, name, size: entry.source.size, bundle }, () => openEntry(bundle, entry));
    });
  } catch (error) {
    return [{ ...about, problem: problemOf(error) }];
  }
}

/** @returns {Item} */
function opened(about, open) {
  try {
    return { ...about, checkpoint: open() };
  } catch (error) {
    return { ...about, problem: problemOf(error) };
  }
}

/**
 * @param {unknown} error
 * @returns {{kind: string, rule: string|null, sentence: string}} for a person
 */
function problemOf(error) {
  if (!(error instanceof Refused)) {
    const memory = error instanceof RangeError ? ' (there may be too little memory)' : '';
    return {
      kind: 'failed',
      rule: null,
      sentence: `${error instanceof Error ? error.message : error}${memory}`,
    };
  }
  const { rule, step, message } = error;
  const sentence = step === null ? message : `in step ${step}, ${message}`;
  return { kind: error instanceof ChainError ? 'parent' : 'refused', rule, sentence };
}

/** The place of the item of the highest step; of one step, the exact file. */
function newest(items, isCandidate) {
  const rank = (item) => {
    if (!isCandidate(item)) return -2;
    if (item.checkpoint === null) return -1;
    return (item.checkpoint.manifest.step ?? 0) + (item.checkpoint.kind === 'exact' ? 0.5 : 0);
  };
  const ranks = items.map(rank);
  return ranks.reduce((best, each, place) => (each > ranks[best] ? place : best), 0);
}

/**
 * What the page lists of an item.
 * @param {Item} item
 */
function listed({ name, size, checkpoint, problem }) {
  const { step = null, parent = null, later = null } = checkpoint?.manifest ?? {};
  const parents = [parent, later].filter((link) => link !== null).map((link) => link.step);
  return { name, size, step, kind: checkpoint?.kind ?? null, parents, problem };
}

/**
 * @param {Item} item
 * @param {Item[]} items
 */
function show({ checkpoint, bundle }, items) {
  let chain = null;
  let problem = null;
  try {
    chain = resolveChain(checkpoint, bundle === null ? finderAmong(items) : finderOf(bundle));
  } catch (error) {
    problem = problemOf(error);
  }
  const shown = chain?.at(-1) ?? checkpoint;
  const steps = chain?.map(({ manifest, kind }) => ({ step: manifest.step, kind })) ?? null;
  post('summary', { ...summaryOf(shown), chain: steps, problem });
  if (problem !== null && problem.kind !== 'parent') return;
  let bytes = 0;
  try {
    for (const array of chain === null ? surveyArrays(shown) : decodeChain(chain)) {
      bytes += array.bytes?.length ?? 0;
      post('array', {
        index: array.index,
        dtype: array.type?.name ?? null,
        shape: array.shape,
        statistics: array.bytes && statisticsOf(array),
        why: array.why ?? null,
      });
    }
    post('end', { problem: null, bytes, verified: chain !== null });
  } catch (error) {
    post('end', { problem: problemOf(error) });
  }
}

/**
 * Find parents by what their manifests say, whatever the names of their files are.
 * @param {Item[]} items
 */
function finderAmong(items) {
  const checkpoints = items
    .filter((item) => item.checkpoint !== null && item.bundle === null && item.checkpoint.kind !== 'exact')
    .map((item) => item.checkpoint);
  return (step, root) => {
    const ofStep = checkpoints.filter(({ manifest }) => manifest.step === step);
    const named = ofStep.find((found) => found.root === root || found.manifest.replaces.includes(root));
    return named ?? ofStep[0] ?? null;
  };
}

/** @param {import('./checkpoint.js').Checkpoint} checkpoint */
function summaryOf({ root, kind, manifest, tree, names, source }) {
  const { step, version, parent, later, replaces, exact, metadata, policy, scalars, arrays, frames } =
    manifest;
  return {
    size: source.size,
    root,
    kind,
    step,
    version,
    parent,
    later,
    replaces,
    exact,
    metadata: [...metadata],
    policy: toJson(policy),
    tree: tree === undefined ? null : outline(tree),
    names,
    arrays: arrays.length,
    frames: frames.length,
    stored: frames.reduce((sum, { length }) => sum + length, 0),
    scalars: scalars.map(scalarOf),
    lost: manifest.figures?.figures.get('error') ?? null,
  };
}

/**
 * A tree with its scalars numbered, for the page.
 * @param {import('./json.js').JsonValue} root
 */
function outline(root) {
  let scalars = 0;
  const visit = (json, part) => {
    const { kind, children } = describeNode(json);
    if (kind === 'array') return { kind, part, index: json };
    if (kind === 'scalar') return { kind, part, index: scalars++ };
    return { kind, part, children: children.map(([name, child]) => visit(child, name)) };
  };
  return visit(root, null);
}

/** @param {import('./json.js').JsonValue} entry */
function scalarOf(entry) {
  const value = scalarValue(entry);
  if (value === null) return { kind: 'null', text: 'null' };
  if (value instanceof Uint8Array) return { kind: 'bytes', text: `${value.length} bytes: ${entry.get('b')}` };
  if (typeof value === 'string') return { kind: 'string', text: JSON.stringify(value) };
  if (typeof value === 'number') return { kind: 'float', text: entry.get('f') };
  return { kind: typeof value === 'boolean' ? 'boolean' : 'integer', text: String(value) };
}
