/**
 * Sizes of the components of a reference: their patterns with the top bit cleared (LCC-STR-08).
 */

/**
 * @typedef {object} Sizes
 * @property {(block: import('./bytes.js').Cursor, parts: number) => Bound[]} readBounds
 * @property {(i: number, bound: Bound) => boolean} isBelow whether the size of component i of the
 *   block is below a bound
 */

/** @typedef {{high: number, low: number}} Bound a pattern; the high word is 0 but for 64 bits */

/**
 * @param {Uint8Array|Uint16Array|Uint32Array} words of components (`wordsOf`)
 * @param {number} size of a component
 * @param {number} start the first component of a block
 * @returns {Sizes}
 */
export function sizes(words, size, start) {
  if (size === 8) {
    return {
      readBounds: (block, parts) => Array.from({ length: parts }, () => ({ low: block.u32(), high: block.u32() })),
      isBelow: (i, bound) => {
        const at = 2 * (start + i);
        const high = words[at + 1] & 0x7fffffff;
        return high < bound.high || (high === bound.high && words[at] < bound.low);
      },
    };
  }
  const read = { 1: 'u8', 2: 'u16', 4: 'u32' }[size];
  const mask = 2 ** (8 * size - 1) - 1;
  return {
    readBounds: (block, parts) => Array.from({ length: parts }, () => ({ low: block[read](), high: 0 })),
    isBelow: (i, bound) => (words[start + i] & mask) < bound.low,
  };
}

/** Whether one bound is below another. */
export function rises(before, bound) {
  return before.high < bound.high || (before.high === bound.high && before.low < bound.low);
}
