/**
 * The tree of a state (LCC-STA-01) and the names of its nodes (LCC-STA-07).
 */

import { FormatError, LimitError } from './errors.js';

const MAX_NAME_CHARACTERS = 2 ** 24;

/**
 * A node of a tree.
 *
 * @typedef {object} Node
 * @property {'dict'|'list'|'tuple'|'array'|'scalar'} kind
 * @property {string} name its path from the root; the empty string for the root
 * @property {[string, JsonValue][]} [children] of a dict, list or tuple: the part of the name, and
 *   the node as JSON
 * @property {number} [index] of an array or a scalar
 * @typedef {import('./json.js').JsonValue} JsonValue
 */

/**
 * The kind and the children of a node.
 * @param {JsonValue} json
 * @returns {{kind: Node['kind'], children?: [string, JsonValue][]}}
 */
export function describeNode(json) {
  if (json === null) return { kind: 'scalar' };
  if (typeof json === 'number' || typeof json === 'bigint') return { kind: 'array' };
  if (json instanceof Map) return { kind: 'dict', children: [...json] };
  const kind = Array.isArray(json) && { l: 'list', t: 'tuple' }[json[0]];
  if (!kind || typeof json[0] !== 'string') {
    throw new FormatError('LCC-STA-01', 'a node of the tree is of no known kind');
  }
  return { kind, children: json.slice(1).map((item, position) => [String(position), item]) };
}

/**
 * Walk a tree in document order, and check it against the arrays and the scalars of its file
 * (LCC-STA-01 to LCC-STA-03, LCC-LIM-08).
 * @param {JsonValue} json
 * @param {number} arrays how many the file has
 * @param {number} scalars how many the file has
 * @returns {string[]} the names of the arrays, by index
 */
export function arrayNames(json, arrays, scalars) {
  const names = [];
  let places = 0; // of scalars
  let characters = 0;

  /** @param {JsonValue} node @param {string} name @param {number} length of the name (LCC-LIM-08) */
  const walk = (node, name, length) => {
    characters += length;
    if (characters > MAX_NAME_CHARACTERS) {
      throw new LimitError('LCC-LIM-08', 'the names of all nodes have more than 2^24 characters');
    }
    const { kind, children = [] } = describeNode(node);
    if (kind === 'scalar') places++;
    if (kind === 'array') {
      if (node < 0 || node > names.length || node >= arrays) {
        throw new FormatError(
          'LCC-STA-02',
          `the array index ${node} follows ${names.length} arrays of ${arrays}`,
        );
      }
      if (node === names.length) names.push(name);
    }
    for (const [part, child] of children) {
      const escaped = part.replaceAll('~', '~0').replaceAll('/', '~1');
      walk(child, node === json ? escaped : `${name}/${escaped}`, length + 1 + countCharacters(part));
    }
  };

  walk(json, '', 0);
  if (names.length < arrays) {
    throw new FormatError('LCC-STA-02', `the tree has ${names.length} of ${arrays} arrays`);
  }
  if (places !== scalars) {
    throw new FormatError('LCC-STA-03', `there are ${scalars} scalars for ${places} places`);
  }
  return names;
}

/**
 * @param {string} text
 * @returns {number} how many Unicode scalar values it has
 */
function countCharacters(text) {
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    if ((text.charCodeAt(i) & 0xfc00) !== 0xdc00) count++; // not the second half of a pair
  }
  return count;
}
