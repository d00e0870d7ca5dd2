/**
 * Bytes, read in order; and bytes as text.
 */

import { TruncatedError } from './errors.js';

if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1) {
  throw new Error('This reader needs a little-endian machine.');
}

/** Reads little-endian fields of a part of some bytes, one after the other. */
export class Cursor {
  /**
   * @param {Uint8Array} bytes
   * @param {number} [position] of the first field
   * @param {number} [end] no field goes beyond it
   */
  constructor(bytes, position = 0, end = bytes.length) {
    this.bytes = bytes;
    this.position = position;
    this.end = end;
  }

  /** How many bytes are left. */
  get left() {
    return this.end - this.position;
  }

  /**
   * Step over some bytes, and return where they begin.
   * @param {number} count
   */
  skip(count) {
    if (count > this.left) {
      throw new TruncatedError('LCC-FRM-02', `${count} bytes are declared, and ${this.left} are there`);
    }
    const start = this.position;
    this.position += count;
    return start;
  }

  /**
   * @param {number} count
   * @returns {Uint8Array} the next bytes, not copied
   */
  take(count) {
    const start = this.skip(count);
    return this.bytes.subarray(start, start + count);
  }

  /**
   * @param {number} count
   * @returns {Cursor} of the next bytes alone
   */
  part(count) {
    const start = this.skip(count);
    return new Cursor(this.bytes, start, start + count);
  }

  u8() {
    return this.bytes[this.skip(1)];
  }

  u16() {
    const at = this.skip(2);
    return this.bytes[at] | (this.bytes[at + 1] << 8);
  }

  u32() {
    return u32At(this.bytes, this.skip(4));
  }

  /** A u64 as a number: exact below 2^53, the nearest number above. */
  u64() {
    return u64At(this.bytes, this.skip(8));
  }

  /** A binary64. */
  f64() {
    const { buffer, byteOffset } = this.take(8);
    return new DataView(buffer, byteOffset, 8).getFloat64(0, true);
  }
}

/**
 * @param {Uint8Array} bytes
 * @param {number} at
 */
export function u32At(bytes, at) {
  return (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
}

/**
 * A u64 as a number: exact below 2^53, the nearest number above.
 * @param {Uint8Array} bytes
 * @param {number} at
 */
export function u64At(bytes, at) {
  return u32At(bytes, at + 4) * 2 ** 32 + u32At(bytes, at);
}

/**
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 */
export function sameBytes(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

/**
 * @param {Uint8Array} bytes
 * @returns {string} in lower case
 */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

/** @param {string} alphabet */
function valuesOf(alphabet) {
  const values = new Int8Array(128).fill(-1);
  Array.from(alphabet, (letter, value) => (values[letter.charCodeAt(0)] = value));
  return values;
}

const BASE64 = valuesOf(`${LETTERS}+/`);
const BASE64_URL = valuesOf(`${LETTERS}-_`);

/**
 * Decode base64 with padding (RFC 4648 section 4).
 * @param {string} text
 * @returns {Uint8Array|null} null if this is not the one text of its bytes
 */
export function fromBase64(text) {
  if (text.length % 4 !== 0) return null;
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  return decodeDigits(text, text.length - padding, BASE64);
}

/**
 * Decode base64url without padding (RFC 4648 section 5).
 * @param {string} text
 * @returns {Uint8Array|null} null if this is not the one text of its bytes
 */
export function fromBase64Url(text) {
  return decodeDigits(text, text.length, BASE64_URL);
}

/**
 * @param {string} text
 * @param {number} length of the digits
 * @param {Int8Array} values of the digits
 */
function decodeDigits(text, length, values) {
  const unused = (length * 6) % 8;
  if (unused === 6) return null; // a digit alone is no byte
  const bytes = new Uint8Array(Math.floor((length * 6) / 8));
  let bits = 0;
  for (let i = 0, at = 0; i < length; i++) {
    const value = values[text.charCodeAt(i)] ?? -1;
    if (value < 0) return null;
    bits = ((bits << 6) | value) & 0xffff;
    if (i % 4 !== 0) bytes[at++] = bits >> (6 - 2 * (i % 4));
  }
  return (bits & ((1 << unused) - 1)) === 0 ? bytes : null;
}

/**
 * Encode as base64url without padding (RFC 4648 section 5).
 * @param {Uint8Array} bytes
 */
export function toBase64Url(bytes) {
  const digits = `${LETTERS}-_`;
  let text = '';
  for (let i = 0; i < bytes.length; i += 3) {
    const [a, b = 0, c = 0] = bytes.subarray(i, i + 3);
    const bits = (a << 16) | (b << 8) | c;
    const count = Math.min(4, Math.ceil(((bytes.length - i) * 8) / 6));
    for (let k = 0; k < count; k++) text += digits[(bits >> (18 - 6 * k)) & 63];
  }
  return text;
}
