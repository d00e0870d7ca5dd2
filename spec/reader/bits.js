/**
 * Packed values (LCC-BIT-01): the first value in the lowest bits of the first byte.
 */

/**
 * @param {number} count of values
 * @param {number} width of each, in bits
 * @returns {number} the bytes that they take
 */
export function packedSize(count, width) {
  return Math.ceil((count * width) / 8);
}

/**
 * @param {Uint8Array} bytes
 * @param {number} count of values
 * @param {number} width of each, in bits, from 0 to 16
 * @returns {Uint8Array|Uint16Array|null} the values; null if an unused bit is 1
 */
export function unpack(bytes, count, width) {
  const values = width <= 8 ? new Uint8Array(count) : new Uint16Array(count);
  const mask = 2 ** width - 1;
  let bits = 0;
  let held = 0;
  for (let i = 0, at = 0; i < count; i++) {
    for (; held < width; held += 8) bits |= bytes[at++] << held;
    values[i] = bits & mask;
    bits >>>= width;
    held -= width;
  }
  return bits === 0 ? values : null;
}
