/**
 * SHA-256 (FIPS 180-4), synchronous.
 */

const BLOCK = 64;

/** The first 32 bits of the fractional parts of the roots of the first primes. */
function constants(count, root) {
  const found = [];
  for (let n = 2; found.length < count; n++) {
    if (found.every(([prime]) => n % prime !== 0)) found.push([n, fraction(n ** root)]);
  }
  return Int32Array.from(found, ([, value]) => value);
}

function fraction(x) {
  return Math.floor((x - Math.floor(x)) * 2 ** 32);
}

const ROUNDS = constants(64, 1 / 3);
const INITIAL = constants(8, 1 / 2);

/**
 * @param {...Uint8Array} parts that are hashed as if they lay end to end
 * @returns {Uint8Array} 32 bytes
 */
export function sha256(...parts) {
  const state = INITIAL.slice();
  const schedule = new Int32Array(64);
  const rest = new Uint8Array(2 * BLOCK);
  let held = 0; // bytes of `rest`
  let length = 0;
  for (const part of parts) {
    length += part.length;
    let at = 0;
    if (held > 0) {
      at = Math.min(BLOCK - held, part.length);
      rest.set(part.subarray(0, at), held);
      held += at;
      if (held < BLOCK) continue;
      compress(state, schedule, rest, 0);
    }
    for (; at + BLOCK <= part.length; at += BLOCK) compress(state, schedule, part, at);
    rest.set(part.subarray(at));
    held = part.length - at;
  }
  rest.fill(0, held);
  rest[held] = 0x80;
  const end = held < BLOCK - 8 ? BLOCK : 2 * BLOCK;
  const view = new DataView(rest.buffer);
  view.setUint32(end - 8, Math.floor((length * 8) / 2 ** 32));
  view.setUint32(end - 4, (length * 8) % 2 ** 32);
  for (let at = 0; at < end; at += BLOCK) compress(state, schedule, rest, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setInt32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

/**
 * @param {Int32Array} state
 * @param {Int32Array} w room for the message schedule
 * @param {Uint8Array} bytes
 * @param {number} at where the block begins
 */
function compress(state, w, bytes, at) {
  for (let i = 0; i < 16; i++, at += 4) {
    w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
  }
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15];
    const y = w[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
  }
  let a = state[0];
  let b = state[1];
  let c = state[2];
  let d = state[3];
  let e = state[4];
  let f = state[5];
  let g = state[6];
  let h = state[7];
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + (g ^ (e & (f ^ g))) + ROUNDS[i] + w[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) | (c & (a | b)))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}
