// The chain: every checkpoint, bytes over time, where the bytes are.

function chainSection(id, run) {
  const known = run.checkpoints.filter(({ step, kind }) => step !== null && kind !== "unreadable");
  const result = section(id, "The chain");
  const drawings = [];
  if (!run.checkpoints.length) result.append(paragraph("There is no checkpoint.", "empty"));
  if (known.length > 1) {
    const sizes = figure("Size of each checkpoint.", "Logarithmic.");
    const growth = figure("Bytes on the disk so far,", "beside full checkpoints. Logarithmic.");
    const names = ["full checkpoints", "this chain"];
    const points = growthPoints(known, names);
    result.append(element("div", { class: "pair" }, sizes.node, growth.node));
    drawings.push(
      () => draw(sizes, sizesChart(known.map(({ step, bytes, kind }) => ({ step, bytes, kind }))), {
        describe: ({ step, bytes, kind }) => `step ${formatCount(step)}\n${kind}, ${formatBytes(bytes)}`,
      }),
      () => draw(growth, growthChart(points, names), {
        describe: ({ step, bytes, name }) => `step ${formatCount(step)}\n${name}: ${formatBytes(bytes)}`,
      }));
  }
  if (run.checkpoints.length) result.append(checkpointTable(run.checkpoints));
  const places = placesOf(run);
  if (places.length) {
    result.append(element("h3", {}, "Where the bytes are"));
    const charts = places.map(({ title, head, rows }) => ({ rows, made: figure(title, null,
      foldedTable("As a table", () => table(title, [{ title: head }, { title: "bytes", number: true }, { title: "share", number: true }],
        rows.map(({ label, value, share }) => [nameText(label), formatCount(value), formatPercent(share)]), { lines: 50 }))) }));
    result.append(element("div", { class: "pair" }, ...charts.map(({ made }) => made.node)));
    for (const { rows, made } of charts) {
      drawings.push(() => draw(made, barsChart(rows.slice(0, 12)), {
        describe: ({ label, value, share }) => `${shorten(label, 80)}\n${formatBytes(value)}, ${formatPercent(share)}`,
      }));
    }
  }
  result.append(appendixOf(run));
  return { node: result, drawings };
}

function growthPoints(known, names) {
  let full = 0;
  let stored = 0;
  return known.flatMap(({ step, bytes, nbytes }) => {
    full += nbytes;
    stored += bytes;
    return [{ step, name: names[0], bytes: full }, { step, name: names[1], bytes: stored }];
  }).filter(({ bytes }) => bytes > 0);
}

// Bytes by role and by array, the most first.
function placesOf(run) {
  const roles = {};
  for (const checkpoint of run.checkpoints) {
    for (const [role, bytes] of Object.entries(checkpoint.roles)) roles[role] = (roles[role] ?? 0) + bytes;
  }
  const groups = [
    { title: "Bytes by role", head: "role", pairs: Object.entries(roles).map(([role, bytes]) => [roleName(role), bytes]) },
    { title: "Bytes by array", head: "array", pairs: run.arrays.map(({ name, stored_bytes: bytes }) => [shownName(name), bytes]) },
  ];
  return groups.map(({ title, head, pairs }) => {
    const rows = sharesOf(pairs);
    return { title: rows.length > 12 ? `${title}, the largest 12 of ${formatCount(rows.length)}` : title, head, rows };
  }).filter(({ rows }) => rows.length);
}

function sharesOf(pairs) {
  const total = pairs.reduce((sum, [, bytes]) => sum + bytes, 0);
  return pairs.filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]).map(([label, value]) => ({ label, value, share: value / total }));
}

// For those who know the codec: what the bytes code, and how each array is quantized.
function appendixOf(run) {
  const shares = sharesOf(Object.entries(run.streams));
  const quantized = run.arrays.filter(({ quantizer }) => quantizer);
  if (!shares.length && !quantized.length) return "";
  return element("div", {}, element("h3", {}, "How it is coded"),
    shares.length ? foldedTable("Bytes by what they code, as a table", () => table("Bytes by what they code",
      [{ title: "what" }, { title: "bytes", number: true }, { title: "share", number: true }],
      shares.map(({ label, value, share }) => [label, formatCount(value), formatPercent(share)]))) : null,
    quantized.length ? foldedTable("Quantizer of each array, as a table", () => table("Quantizer of each array",
      [{ title: "array" }, { title: "quantizer" }], quantized.map(({ name, quantizer }) => [nameText(shownName(name)), visible(quantizer)]), { lines: 100 })) : null);
}

function checkpointTable(checkpoints) {
  const keys = [...new Set(checkpoints.flatMap(({ metadata }) => Object.keys(metadata)))];
  const policies = [...new Set(checkpoints.map(({ policy }) => policy).filter(Boolean))];
  const several = policies.length > 1; // one policy of all is said once
  const columns = [
    { title: "step", number: true }, { title: "kind" }, { title: "parent", number: true }, { title: "depth", number: true },
    { title: "size", number: true }, { title: "so far", number: true }, { title: "smaller by", number: true }, ...(several ? [{ title: "policy" }] : []), { title: "intact" },
    ...keys.slice(0, 6).map((key) => ({ title: shorten(key, 40) })), ...(keys.length > 6 ? [{ title: "more metadata" }] : []),
  ];
  const rest = (metadata) => keys.slice(6).filter((key) => Object.hasOwn(metadata, key)).map((key) => `${key}: ${metadata[key]}`).join(", ");
  let stored = 0;
  const soFar = checkpoints.map(({ bytes }) => (stored += bytes));
  const rows = checkpoints.map((point, place) => [
    formatCount(point.step), kindText(point), formatCount(point.parent), formatCount(point.depth),
    formatBytes(point.bytes), formatBytes(soFar[place]), formatRatio(point.nbytes, point.bytes), ...(several ? [nameText(point.policy || "–", 40)] : []), soundText(point),
    ...keys.slice(0, 6).map((key) => (Object.hasOwn(point.metadata, key) ? metadataText(point.metadata[key]) : "–")),
    ...(keys.length > 6 ? [wholeText(rest(point.metadata), 40)] : []),
  ]);
  return table(`All ${plural(checkpoints.length, "checkpoint")}${policies.length === 1 ? `, with the policy ${shorten(policies[0], 40)}` : ""}`, columns, rows, { lines: 1000 });
}

// A long number is rounded; the whole one is in its title.
function metadataText(text) {
  if (!/^-?\d+\.\d{6,}(e[-+]?\d+)?$/i.test(text)) return wholeText(text, 40);
  return element("span", { title: text }, formatNumber(Number(text)));
}

function kindText({ kind, exact, pinned, protected: mendable }) {
  return element("span", {}, element("span", { class: `kind ${kind}` }, kind), exact ? ", also exact" : "", pinned ? ", pinned" : "", mendable ? ", protected" : "");
}

function soundText({ sound, problems }) {
  if (sound && !problems.length) return element("span", { class: "good" }, "yes");
  return element("span", { class: "bad" }, `no${problems.length ? ": " : ""}`, wholeText(problems.join("; "), 80));
}
