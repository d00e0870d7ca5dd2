/**
 * CRC-32 of ISO 3309 and zlib (LCC-FRM-08), eight bytes at a time.
 */

const POLYNOMIAL = 0xedb88320;

/** TABLES[k][b] is the CRC of byte b with k zero bytes behind it. */
const TABLES = Array.from({ length: 8 }, () => new Uint32Array(256));
for (let byte = 0; byte < 256; byte++) {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
  TABLES[0][byte] = crc;
}
for (let k = 1; k < 8; k++) {
  for (let byte = 0; byte < 256; byte++) {
    const crc = TABLES[k - 1][byte];
    TABLES[k][byte] = TABLES[0][crc & 0xff] ^ (crc >>> 8);
  }
}

/**
 * @param {Uint8Array} bytes
 * @returns {number} an unsigned integer of 32 bits
 */
export function crc32(bytes) {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = TABLES;
  const whole = bytes.length - (bytes.length % 8);
  let crc = ~0;
  let i = 0;
  for (; i < whole; i += 8) {
    crc ^= bytes[i] | (bytes[i + 1] << 8) | (bytes[i + 2] << 16) | (bytes[i + 3] << 24);
    crc =
      t7[crc & 0xff] ^
      t6[(crc >>> 8) & 0xff] ^
      t5[(crc >>> 16) & 0xff] ^
      t4[crc >>> 24] ^
      t3[bytes[i + 4]] ^
      t2[bytes[i + 5]] ^
      t1[bytes[i + 6]] ^
      t0[bytes[i + 7]];
  }
  for (; i < bytes.length; i++) crc = t0[(crc ^ bytes[i]) & 0xff] ^ (crc >>> 8);
  return ~crc >>> 0;
}
