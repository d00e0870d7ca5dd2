/**
 * The element types (SPEC 5.2).
 *
 * @typedef {object} ElementType
 * @property {string} name
 * @property {number} code in a frame
 * @property {'bool'|'signed'|'unsigned'|'float'|'complex'} kind
 * @property {number} size of a component in bytes
 * @property {number} components of an element
 * @property {number} exponentBits of a floating-point component; 0 for others
 */

/** @type {ElementType[]} by code */
export const ELEMENT_TYPES = [
  ['bool', 'bool', 1],
  ['int8', 'signed', 1],
  ['int16', 'signed', 2],
  ['int32', 'signed', 4],
  ['int64', 'signed', 8],
  ['uint8', 'unsigned', 1],
  ['uint16', 'unsigned', 2],
  ['uint32', 'unsigned', 4],
  ['uint64', 'unsigned', 8],
  ['float16', 'float', 2, 5],
  ['bfloat16', 'float', 2, 8],
  ['float32', 'float', 4, 8],
  ['float64', 'float', 8, 11],
  ['complex64', 'complex', 4, 8],
  ['complex128', 'complex', 8, 11],
].map(([name, kind, size, exponentBits = 0], code) =>
  Object.freeze({ name, code, kind, size, components: kind === 'complex' ? 2 : 1, exponentBits }),
);

/** @param {ElementType} type */
export function isFloating(type) {
  return type.exponentBits > 0;
}

/**
 * The components of some bytes as unsigned integers; 64-bit ones as two words, the low one first.
 * @param {ElementType} type
 * @param {Uint8Array} bytes that begin at a multiple of 8 bytes of their buffer
 * @returns {Uint8Array|Uint16Array|Uint32Array}
 */
export function wordsOf(type, bytes) {
  const { buffer, byteOffset, length } = bytes;
  if (type.size === 1) return bytes;
  if (type.size === 2) return new Uint16Array(buffer, byteOffset, length / 2);
  return new Uint32Array(buffer, byteOffset, length / 4);
}

/**
 * Bytes in a buffer of their own, so that they can be seen as words.
 * @param {Uint8Array} bytes
 */
export function aligned(bytes) {
  return bytes.byteOffset % 8 === 0 ? bytes : new Uint8Array(bytes);
}
