/**
 * Numbers of GF(256), and the code of parity files (LCC-PAR-05).
 */

const POLYNOMIAL = 0x11d;
const FIRST_POINTS = 128; // of the numbers, for data columns

const EXP = new Uint8Array(510);
const LOG = new Uint8Array(256);
for (let i = 0, x = 1; i < 255; i++) {
  EXP[i] = EXP[i + 255] = x;
  LOG[x] = i;
  x = (x << 1) ^ (x & 0x80 ? POLYNOMIAL : 0);
}

/**
 * @param {number} a
 * @param {number} b
 */
export function multiply(a, b) {
  return a === 0 || b === 0 ? 0 : EXP[LOG[a] + LOG[b]];
}

/**
 * @param {number} a
 * @param {number} b not 0
 */
export function divide(a, b) {
  return a === 0 ? 0 : EXP[LOG[a] + 255 - LOG[b]];
}

/** The points of 2..255: by the number of bits that are set, then by value. */
const POINTS = Array.from({ length: 254 }, (_, i) => i + 2)
  .sort((a, b) => bitsOf(a) - bitsOf(b) || a - b)
  .map((c) => divide(c, c ^ 1));

/** @param {number} number */
function bitsOf(number) {
  return number.toString(2).replaceAll('0', '').length;
}

/**
 * What a byte of a data column counts in a byte of a parity column.
 * @param {number} parity the number of the parity column
 * @param {number} data the number of the data column
 */
export function coefficient(parity, data) {
  const x = parity < 2 ? parity : POINTS[FIRST_POINTS + parity - 2];
  const y = POINTS[data];
  return divide(y, x ^ y);
}

/**
 * Add a multiple of some bytes to others.
 * @param {Uint8Array} target
 * @param {Uint8Array} bytes
 * @param {number} factor
 */
export function addMultiple(target, bytes, factor) {
  const products = Uint8Array.from({ length: 256 }, (_, byte) => multiply(byte, factor));
  for (let i = 0; i < target.length; i++) target[i] ^= products[bytes[i]];
}

/**
 * Solve linear equations whose right sides are blocks of bytes. Both arguments are changed.
 * @param {number[][]} matrix square, and invertible
 * @param {Uint8Array[]} sides become the solution
 */
export function solve(matrix, sides) {
  const size = matrix.length;
  const combine = (to, from, factor) => {
    for (let k = 0; k < size; k++) matrix[to][k] ^= multiply(matrix[from][k], factor);
    addMultiple(sides[to], sides[from], factor);
  };
  for (let column = 0; column < size; column++) {
    if (matrix[column][column] === 0) {
      const other = matrix.findIndex((row, k) => k > column && row[column] !== 0);
      combine(column, other, 1);
    }
    const inverse = divide(1, matrix[column][column]);
    combine(column, column, inverse ^ 1); // a + a (1/p + 1) = a/p
    for (let row = 0; row < size; row++) {
      if (row !== column && matrix[row][column] !== 0) combine(row, column, matrix[row][column]);
    }
  }
}
