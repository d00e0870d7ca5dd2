// What the page carries, unpacked. The document: the counterpart of payload.py.

async function inflated(id) {
  const text = atob(document.getElementById(id).textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Runs the drawing library. The page's policy knows it by its hash.
async function runLibrary() {
  document.body.append(element("script", {}, new TextDecoder().decode(await inflated("library"))));
}

async function readDocument() {
  const bytes = await inflated("data");
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const result = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const planes = bytes.subarray(4 + length);
  for (const run of result.runs) {
    for (const name of Object.keys(run.figures)) run.figures[name] = matrix(run.figures[name], planes);
    for (const histogram of run.histograms) {
      if (histogram) histogram.counts = bars(histogram.counts, planes);
    }
    for (const name of run.loss ? ["error", "bias", "largest"] : []) {
      run.loss[name] = matrix(run.loss[name], planes);
    }
  }
  return result;
}

// Rows of numbers; null where the document has null.
function matrix({ at, rows, columns }, planes) {
  const count = rows * columns;
  const bytes = new DataView(new ArrayBuffer(8 * count));
  for (let i = 0; i < count; i += 1) {
    for (let k = 0; k < 4; k += 1) bytes.setUint8(8 * i + k, planes[at + k * count + i]);
  }
  const number = (i) => {
    const value = bytes.getFloat64(8 * i);
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
