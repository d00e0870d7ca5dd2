// The document, unpacked: the counterpart of payload.py.

async function readDocument() {
  const text = atob(document.getElementById("data").textContent);
  const packed = Uint8Array.from(text, (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
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
  const view = new DataView(new ArrayBuffer(8));
  const plane = (k, i) => planes[at + k * count + i];
  const number = (i) => {
    view.setUint32(0, (plane(0, i) << 24) | (plane(1, i) << 16) | (plane(2, i) << 8) | plane(3, i));
    const value = view.getFloat64(0);
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
