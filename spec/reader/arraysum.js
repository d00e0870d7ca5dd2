/**
 * The array sum: the sum of (2 i + 1) w_i over the 64-bit words of an array, modulo 2^64
 * (LCC-FRM-09).
 */

/**
 * With T_i for the sum of w_i and all words behind it, the sum of (2 i + 1) w_i is twice the sum of
 * all T_i, less T_0. So additions alone give it, from the last word to the first.
 * @param {Uint8Array} bytes that begin at a multiple of 8 bytes of their buffer
 * @returns {[number, number]} the low and the high 32 bits
 */
export function arraySum(bytes) {
  const whole = Math.floor(bytes.length / 8);
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, 2 * whole);
  const rest = new Uint8Array(8);
  rest.set(bytes.subarray(8 * whole));
  const [restLow, restHigh] = new Uint32Array(rest.buffer);

  let low = restLow; // T_i
  let high = restHigh;
  let sumLow = restLow; // of all T so far
  let sumHigh = restHigh;
  for (let i = 2 * whole - 2; i >= 0; i -= 2) {
    low += words[i];
    high = (high + words[i + 1] + (low > 0xffffffff ? 1 : 0)) >>> 0;
    low >>>= 0;
    sumLow += low;
    sumHigh = (sumHigh + high + (sumLow > 0xffffffff ? 1 : 0)) >>> 0;
    sumLow >>>= 0;
  }
  const twiceHigh = sumHigh * 2 + (sumLow >>> 31);
  const twiceLow = (sumLow << 1) >>> 0;
  const borrow = twiceLow < low ? 1 : 0;
  return [(twiceLow - low) >>> 0, (twiceHigh - high - borrow) >>> 0];
}
