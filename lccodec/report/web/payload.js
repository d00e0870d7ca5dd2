// What the page carries, unpacked. The document: the counterpart of payload.py.

async function inflated(id) {
  const text = atob(document.getElementById(id).textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Runs the drawing library, given as bytes. The page's policy knows it by its hash.
function runLibrary(bytes) {
  document.body.append(element("script", {}, new TextDecoder().decode(bytes)));
}

async function readDocument() {
  const bytes = await inflated("data");
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const result = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const planes = bytes.subarray(4 + length);
  for (const run of result.runs) {
    for (const name of Object.keys(run.figures)) decodeLater(run.figures, name, matrix, planes);
    for (const histogram of run.histograms) {
      if (histogram) decodeLater(histogram, "counts", bars, planes);
    }
    run.quantiles.forEach((series, index) => {
      if (series) decodeLater(run.quantiles, index, matrix, planes);
    });
    for (const { values, error } of run.pictures) {
      for (const raster of [values, error].filter(Boolean)) decodeLater(raster, "pixels", pixels, planes);
    }
    for (const name of run.loss ? ["error", "bias", "largest"] : []) decodeLater(run.loss, name, matrix, planes);
  }
  return result;
}

// Decodes a member of an object when it is first asked for: most histograms never are.
function decodeLater(object, name, decode, planes) {
  const stored = object[name];
  const define = (what) => Object.defineProperty(object, name, { configurable: true, enumerable: true, ...what });
  define({
    get: () => {
      const value = decode(stored, planes);
      define({ value, writable: true });
      return value;
    },
  });
}

// Rows of numbers; null where the document has null.
function matrix({ at, rows, columns }, planes) {
  const count = rows * columns;
  const eight = new DataView(new ArrayBuffer(8));
  const byte = (k, i) => planes[at + k * count + i];
  const number = (i) => {
    eight.setInt32(0, (byte(0, i) << 24) | (byte(1, i) << 16) | (byte(2, i) << 8) | byte(3, i));
    const value = eight.getFloat64(0);
    return Number.isNaN(value) ? null : value;
  };
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (_, column) => number(row * columns + column)));
}

// Rows of bars, each the square root of its share of the highest one, from 0 to 255.
function bars({ at, rows, columns }, planes) {
  return Array.from({ length: rows }, (_, row) =>
    planes.subarray(at + row * columns, at + (row + 1) * columns));
}

// The bytes of a raster, row by row; each is stored less the one on its left.
function pixels({ at, rows, columns }, planes) {
  const found = planes.slice(at, at + rows * columns);
  for (let i = 0; i < found.length; i += 1) {
    if (i % columns) found[i] += found[i - 1];
  }
  return found;
}
