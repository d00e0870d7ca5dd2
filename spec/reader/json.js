/**
 * Canonical JSON (LCC-MAN-01): the one text of a value.
 *
 * Objects become maps, which keep the order of any keys. Integers become numbers where those are
 * exact, otherwise bigints. Other numbers become `Real`.
 *
 * @typedef {null|boolean|string|number|bigint|Real|JsonValue[]|Map<string, JsonValue>} JsonValue
 */

import { FormatError, LimitError } from './errors.js';
import { floatText } from './scalars.js';

const MAX_NESTING = 65;
const MAX_DIGITS = 4096;

/** A number with a fraction or an exponent. */
export class Real {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/**
 * Parse canonical JSON, and refuse any other bytes.
 * @param {Uint8Array} bytes
 * @returns {JsonValue}
 */
export function parseJson(bytes) {
  checkLimits(bytes);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw notCanonical('the bytes are not UTF-8');
  }
  return new Parser(text).parse();
}

/**
 * Check the nesting and the digits of integers (LCC-LIM-05, LCC-LIM-07), before anything else.
 * @param {Uint8Array} bytes
 */
function checkLimits(bytes) {
  const code = (character) => character.charCodeAt(0);
  const [QUOTE, BACKSLASH, ZERO, NINE] = ['"', '\\', '0', '9'].map(code);
  const OPENING = ['[', '{'].map(code);
  const CLOSING = [']', '}'].map(code);
  const REAL = ['.', 'e', 'E'].map(code); // before or behind the digits of other numbers
  const SIGNS = ['+', '-'].map(code);
  let inString = false;
  let depth = 0;
  let long = false;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (inString) {
      if (byte === BACKSLASH) i++;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) {
      inString = true;
    } else if (OPENING.includes(byte)) {
      if (++depth > MAX_NESTING) throw new LimitError('LCC-LIM-05', 'the manifest nests more than 65 deep');
    } else if (CLOSING.includes(byte)) {
      depth--;
    } else if (byte >= ZERO && byte <= NINE) {
      const start = i;
      while (bytes[i + 1] >= ZERO && bytes[i + 1] <= NINE) i++;
      const before = SIGNS.includes(bytes[start - 1]) ? start - 2 : start - 1;
      const integer = !REAL.includes(bytes[before]) && !REAL.includes(bytes[i + 1]);
      long ||= integer && i - start >= MAX_DIGITS;
    }
  }
  if (long) throw new LimitError('LCC-LIM-07', 'an integer has more than 4096 digits');
}

/** @param {string} message */
function notCanonical(message) {
  return new FormatError('LCC-MAN-01', message);
}

const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
// eslint-disable-next-line no-control-regex
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const SHORT_ESCAPES = new Map(
  Object.entries({ b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', '"': '"', '\\': '\\' }),
);
const LONG_ESCAPE = /u00[01][0-9a-f]/y;

class Parser {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  /** @returns {JsonValue} */
  parse() {
    const value = this.value();
    if (this.at < this.text.length) throw this.unexpected();
    return value;
  }

  unexpected() {
    const where = `at character ${this.at} of the manifest`;
    return notCanonical(this.at < this.text.length ? `unexpected text ${where}` : `the text ends ${where}`);
  }

  /**
   * Step over a text if it is next.
   * @param {string} text
   */
  has(text) {
    if (!this.text.startsWith(text, this.at)) return false;
    this.at += text.length;
    return true;
  }

  /** @param {string} text */
  expect(text) {
    if (!this.has(text)) throw this.unexpected();
  }

  /**
   * Step over what a sticky pattern matches.
   * @param {RegExp} pattern
   * @returns {string|null}
   */
  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found === null) return null;
    this.at += found[0].length;
    return found[0];
  }

  value() {
    switch (this.text[this.at]) {
      case '{':
        return this.object();
      case '[':
        return this.array();
      case '"':
        return this.string();
    }
    if (this.has('null')) return null;
    if (this.has('true')) return true;
    if (this.has('false')) return false;
    return this.number();
  }

  object() {
    const members = new Map();
    this.expect('{');
    if (this.has('}')) return members;
    do {
      const name = this.string();
      if (members.has(name)) throw notCanonical(`an object has the member ${JSON.stringify(name)} twice`);
      this.expect(':');
      members.set(name, this.value());
    } while (this.has(','));
    this.expect('}');
    return members;
  }

  array() {
    const items = [];
    this.expect('[');
    if (this.has(']')) return items;
    do items.push(this.value());
    while (this.has(','));
    this.expect(']');
    return items;
  }

  string() {
    this.expect('"');
    let value = this.match(PLAIN);
    while (this.has('\\')) value += this.escape() + this.match(PLAIN);
    this.expect('"');
    return value;
  }

  escape() {
    const short = SHORT_ESCAPES.get(this.text[this.at]);
    if (short !== undefined) {
      this.at++;
      return short;
    }
    const long = this.match(LONG_ESCAPE);
    if (long === null) throw this.unexpected();
    const character = String.fromCharCode(parseInt(long.slice(1), 16));
    if ([...SHORT_ESCAPES.values()].includes(character)) throw notCanonical(`\\${long} has a shorter form`);
    return character;
  }

  number() {
    const text = this.match(NUMBER);
    if (text === null) throw this.unexpected();
    if (!/^-?\d+$/.test(text)) {
      const number = Number(text);
      if (!Number.isFinite(number) || floatText(number) !== text) {
        throw notCanonical(`${shortened(text)} is not the shortest form of a number`);
      }
      return new Real(text);
    }
    if (!/^(0|-?[1-9]\d*)$/.test(text)) throw notCanonical(`an integer is written ${shortened(text)}`);
    const number = Number(text);
    return Number.isSafeInteger(number) ? number : BigInt(text);
  }
}

/** @param {string} text */
function shortened(text) {
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

/**
 * Write a value as JSON, on one line.
 * @param {JsonValue} value
 * @returns {string}
 */
export function toJson(value) {
  if (typeof value === 'bigint') return String(value);
  if (value instanceof Real) return value.text;
  if (Array.isArray(value)) return `[${value.map(toJson).join(',')}]`;
  if (value instanceof Map) {
    return `{${Array.from(value, ([name, each]) => `${JSON.stringify(name)}:${toJson(each)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}

/**
 * Whether two values are equal, the order of members included.
 * @param {JsonValue} a
 * @param {JsonValue} b
 */
export function sameJson(a, b) {
  return toJson(a) === toJson(b);
}

/**
 * @param {JsonValue} value
 * @param {number} least
 * @param {number} [most]
 * @returns {value is number} whether the value is an integer in a range of safe integers
 */
export function isInteger(value, least, most = Number.MAX_SAFE_INTEGER) {
  return typeof value === 'number' && value >= least && value <= most;
}
