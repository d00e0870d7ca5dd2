/**
 * Where the bytes of a file come from.
 *
 * @typedef {object} Source
 * @property {number} size of the file
 * @property {(offset: number, length: number) => Uint8Array} read some of its bytes
 */

/**
 * @param {ArrayBuffer|ArrayBufferView|Source} data a whole file, or a source already
 * @returns {Source}
 */
export function sourceOf(data) {
  if (data instanceof ArrayBuffer) return sourceOf(new Uint8Array(data));
  if (!ArrayBuffer.isView(data)) return data;
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return {
    size: bytes.length,
    read: (offset, length) => bytes.subarray(offset, offset + length),
  };
}

/**
 * @param {Source} source
 * @param {number} start
 * @param {number} size
 * @returns {Source} of a part of a file
 */
export function partOf(source, start, size) {
  return { size, read: (offset, length) => source.read(start + offset, length) };
}

/**
 * A file that is read in parts, so that it need not fit into memory. Only in a Web Worker.
 * @param {Blob} blob
 * @returns {Source}
 */
export function blobSource(blob) {
  const reader = new FileReaderSync();
  return {
    size: blob.size,
    read: (offset, length) => new Uint8Array(reader.readAsArrayBuffer(blob.slice(offset, offset + length))),
  };
}
