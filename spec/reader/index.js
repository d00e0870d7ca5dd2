/**
 * Reads lccodec checkpoint files: a Reader of level 4 (SPEC 4), in any place that has ES modules.
 *
 *     import { readCheckpoint } from './index.js';
 *     const state = readCheckpoint(await file.arrayBuffer());
 */

export { finderOf, isBundle, openBundle, openEntry, readAllStates, readNewest, readStep } from './bundle.js';
export {
  checkpointName,
  decodeChain,
  readCheckpoint,
  readNewestOf,
  readState,
  resolveChain,
} from './chain.js';
export { openCheckpoint, surveyArrays } from './checkpoint.js';
export { ELEMENT_TYPES } from './elementtypes.js';
export * from './errors.js';
export { decodeFrame, readHeader } from './frame.js';
export { toJson } from './json.js';
export { isParity, mend, openDamagedParity, openParity } from './parity.js';
export { scalarValue } from './scalars.js';
export { blobSource } from './source.js';
export { describeNode } from './tree.js';
