/**
 * Smooth frames: fields that are predicted level by level (SPEC 6.4, 7.8).
 */

import { packedSize, unpack } from './bits.js';
import { FormatError } from './errors.js';
import { numbersOf } from './floats.js';
import { planesDecoder } from './planes.js';
import { readStream } from './streams.js';

const ESCAPES = 1;
const LIMITS = 2;
const OFFSET = 4;
const CONSTANT = 0;
const LINEAR = 1;
const SIX_POINTS = 3; // 2, of four points, is what is left

/**
 * How an array is cut into blocks (LCC-SMO-01).
 * @param {number[]} shape
 * @param {number} most the components that a block has at most
 * @returns {{blocks: number, extents: (block: number) => number[]}} blocks follow each other in the
 *   order of the components
 */
export function smoothLayout(shape, most) {
  if (shape.includes(0)) return { blocks: 0, extents: () => [] };
  const full = shape.length === 0 ? [1] : shape;
  let axis = 0;
  while (product(full.slice(axis + 1)) > most) axis++;
  const extent = full[axis];
  const behind = full.slice(axis + 1);
  const along = Math.ceil(extent / Math.floor(most / product(behind))); // blocks along the axis
  const rows = Math.ceil(extent / along);
  const blocksAlong = Math.ceil(extent / rows);
  return {
    blocks: product(full.slice(0, axis)) * blocksAlong,
    extents: (block) => [Math.min(rows, extent - rows * (block % blocksAlong)), ...behind],
  };
}

/** @param {number[]} numbers */
export function product(numbers) {
  return numbers.reduce((result, number) => result * number, 1);
}

/**
 * @param {import('./elementtypes.js').ElementType} type
 * @param {Uint8Array} values the reference, or zeros; becomes what is decoded
 * @param {boolean} relative whether there is a reference
 * @returns {(block: import('./bytes.js').Cursor, start: number, extents: number[]) => void} decodes a
 *   block of these extents, from one component on (LCC-SMO-08)
 */
export function smoothDecoder(type, values, relative) {
  const { get, set } = numbersOf(type, values);
  return (block, start, extents) => {
    const count = product(extents);
    const head = readHead(block);
    const levels = levelsOf(extents);
    for (const level of levels) level.step = head.step * ((block.u8() + 1) / 256);
    for (const pass of levels.flatMap(({ passes }) => passes)) pass.predictor = readPredictor(block);
    const steps = readSteps(block, levels);
    const mask = head.flags & ESCAPES ? readStream(block, count) : null;
    const field = predict(extents, levels, head, steps);
    for (let i = 0; i < count; i++) {
      let y = field[i];
      if (head.offset !== null) y += head.offset;
      if (relative) y += get(start + i);
      if (y < head.lower) y = head.lower;
      if (y > head.upper) y = head.upper;
      set(start + i, y);
    }
    if (mask !== null) placeEscapes(block, mask, type, values, start);
  };
}

/**
 * Read the numbers at the beginning of a block (LCC-SMO-02).
 * @param {import('./bytes.js').Cursor} block
 */
function readHead(block) {
  const flags = block.u8();
  if (flags & ~(ESCAPES | LIMITS | OFFSET)) {
    throw new FormatError('LCC-SMO-02', `the flags of a block are ${flags}`);
  }
  const step = block.f64();
  const origin = block.f64();
  const [lower, upper] = flags & LIMITS ? [block.f64(), block.f64()] : [-Infinity, Infinity];
  const offset = flags & OFFSET ? block.f64() : null;
  const finite = [step, origin, offset ?? 0].every(Number.isFinite);
  if (!finite || !(step > 0) || !(lower <= upper)) {
    throw new FormatError(
      'LCC-SMO-02',
      'the numbers of a block are not finite, not positive, or not in order',
    );
  }
  return { flags, step, origin, lower, upper, offset };
}

/** @param {import('./bytes.js').Cursor} block */
function readPredictor(block) {
  const predictor = block.u8();
  if (predictor > SIX_POINTS) throw new FormatError('LCC-SMO-05', `a predictor is ${predictor}`);
  return predictor;
}

/**
 * The levels of a block, the coarsest first, and their passes (LCC-SMO-06).
 * @param {number[]} extents
 * @returns {{stride: number, step: number, passes: {axis: number, count: number, predictor: number}[]}[]}
 */
function levelsOf(extents) {
  const levels = [];
  const longest = Math.max(...extents);
  for (let stride = 1; stride < longest; stride *= 2) levels.unshift({ stride, step: NaN, passes: [] });
  for (const { stride, passes } of levels) {
    extents.forEach((extent, axis) => {
      if (extent > stride) {
        const counts = gridOf(extents, stride, axis).map(({ count }) => count);
        passes.push({ axis, count: product(counts), predictor: CONSTANT });
      }
    });
  }
  return levels;
}

/**
 * The elements that a pass predicts: along each axis, how many and how far from each other.
 * @param {number[]} extents
 * @param {number} stride of the level
 * @param {number} axis of the pass
 */
function gridOf(extents, stride, axis) {
  return extents.map((extent, k) => {
    const first = k === axis ? stride : 0;
    const distance = k < axis ? stride : 2 * stride;
    return { first, distance, count: Math.ceil((extent - first) / distance) };
  });
}

/**
 * Read the numbers of steps, in the order in which they are needed (LCC-SMO-03).
 * @param {import('./bytes.js').Cursor} block
 * @param {ReturnType<typeof levelsOf>} levels
 * @returns {Float64Array}
 */
function readSteps(block, levels) {
  const joined = block.u8();
  if (joined > levels.length) {
    throw new FormatError('LCC-SMO-03', `${joined} of ${levels.length} levels are joined`);
  }
  const counts = levels.map(({ passes }) => passes.reduce((sum, { count }) => sum + count, 0));
  const together = counts.slice(0, joined).reduce((sum, count) => sum + count, 1);
  const parts = [together, ...counts.slice(joined)];
  const steps = new Float64Array(parts.reduce((sum, count) => sum + count, 0));
  let start = 0;
  for (const count of parts) {
    readNumbers(block, steps.subarray(start, start + count));
    start += count;
  }
  return steps;
}

/**
 * Read numbers of steps (LCC-SMO-07).
 * @param {import('./bytes.js').Cursor} block
 * @param {Float64Array} steps that are to be filled
 */
function readNumbers(block, steps) {
  const form = block.u8();
  const planes = form >> 4;
  const lowBits = form & 15;
  if (planes < 1 || planes > 7 || lowBits > 7) {
    throw new FormatError('LCC-SMO-07', `numbers have ${planes} bytes and ${lowBits} low bits`);
  }
  const count = steps.length;
  const low = unpack(block.take(packedSize(count, lowBits)), count, lowBits);
  if (low === null) throw new FormatError('LCC-SMO-07', 'an unused bit of the low bits is 1');
  steps.set(low);
  for (let k = 0; k < planes; k++) {
    const symbols = readStream(block, count);
    const weight = 2 ** (lowBits + 8 * k);
    for (let i = 0; i < count; i++) steps[i] += symbols[i] * weight;
  }
  for (let i = 0; i < count; i++) {
    const z = steps[i];
    if (z >= 2 ** 53) throw new FormatError('LCC-SMO-07', 'a number is not below 2^53');
    steps[i] = z % 2 === 0 ? z / 2 : -(z + 1) / 2;
  }
}

/**
 * Predict all elements of a block, and correct each by its number of steps.
 * @param {number[]} extents
 * @param {ReturnType<typeof levelsOf>} levels
 * @param {{step: number, origin: number}} head
 * @param {Float64Array} steps
 * @returns {Float64Array} what the neighbours of each element are predicted from
 */
function predict(extents, levels, { step, origin }, steps) {
  const field = new Float64Array(product(extents));
  const distances = extents.map((_, axis) => product(extents.slice(axis + 1)));
  field[0] = origin + steps[0] * step;
  let next = 1; // of the steps
  for (const { stride, step: size, passes } of levels) {
    for (const { axis, predictor } of passes) {
      const line = {
        distance: 2 * stride * distances[axis],
        count: Math.ceil(extents[axis] / (2 * stride)),
        predictor,
        origin,
      };
      walk(gridOf(extents, stride, axis), distances, axis, (at, start, j) => {
        field[at] = predicted(field, line, start, j) + steps[next++] * size;
      });
    }
  }
  return field;
}

/**
 * Visit the elements of a pass in C order.
 * @param {ReturnType<typeof gridOf>} grid
 * @param {number[]} distances from one element to the next along each axis
 * @param {number} along the axis of the pass
 * @param {(at: number, start: number, j: number) => void} visit takes the place of an element, the
 *   place of the first element of its line, and its number in the line
 */
function walk(grid, distances, along, visit) {
  const last = grid.length - 1;
  const descend = (axis, at, start, j) => {
    const { first, distance, count } = grid[axis];
    const step = distance * distances[axis];
    at += first * distances[axis];
    for (let i = 0; i < count; i++, at += step) {
      if (axis === along) j = i;
      else if (i > 0) start += step;
      if (axis === last) visit(at, start, j);
      else descend(axis + 1, at, start, j);
    }
  };
  descend(0, 0, 0, 0);
}

/**
 * What is predicted between two known elements of a line (LCC-SMO-05).
 * @param {Float64Array} field
 * @param {{distance: number, count: number, predictor: number, origin: number}} line of the known
 *   elements: from one to the next, and how many there are
 * @param {number} start the place of the first of them
 * @param {number} j the element is behind this one
 */
function predicted(field, { distance: d, count: c, predictor, origin }, start, j) {
  if (predictor === CONSTANT) return origin;
  const at = start + j * d;
  const last = c - 1;
  if (predictor === LINEAR || c < 4) {
    if (j < last) return (field[at] + field[at + d]) * 0.5;
    return j > 0 ? field[at] * 1.5 + field[at - d] * -0.5 : field[at];
  }
  if (predictor === SIX_POINTS && c >= 6 && j > 1 && j < c - 3) {
    const a = (field[at] + field[at + d]) * 0.5859375;
    const b = (field[at - d] + field[at + 2 * d]) * -0.09765625;
    return a + b + (field[at - 2 * d] + field[at + 3 * d]) * 0.01171875;
  }
  if (j === last) return field[at] * 1.875 + field[at - d] * -1.25 + field[at - 2 * d] * 0.375;
  if (j > 0 && j < c - 2) {
    return (field[at] + field[at + d]) * 0.5625 + (field[at - d] + field[at + 2 * d]) * -0.0625;
  }
  // Near an end of the line: from that end inwards.
  const [end, inwards] = j === 0 ? [start, d] : [start + last * d, -d];
  return (
    field[end] * 0.3125 +
    field[end + inwards] * 0.9375 +
    field[end + 2 * inwards] * -0.3125 +
    field[end + 3 * inwards] * 0.0625
  );
}

/**
 * Place the components that are stored exactly (LCC-SMO-09).
 * @param {import('./bytes.js').Cursor} block
 * @param {Uint8Array} mask
 * @param {import('./elementtypes.js').ElementType} type
 * @param {Uint8Array} values
 * @param {number} start of the block in components
 */
function placeEscapes(block, mask, type, values, start) {
  let count = 0;
  for (const marked of mask) count += marked === 0 ? 0 : 1;
  const escapes = new Uint8Array(count * type.size);
  planesDecoder(type, escapes)(block, 0, count);
  let from = 0;
  for (let i = 0; i < mask.length; i++) {
    if (mask[i] === 0) continue;
    for (let to = (start + i) * type.size, end = to + type.size; to < end;) values[to++] = escapes[from++];
  }
}
