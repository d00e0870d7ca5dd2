// Links into the page, which can be shared: run, array and step are in the address behind `#`.

function linkTo(run, array, step = null) {
  const parts = new URLSearchParams({ ...(run ? { run: run + 1 } : {}), array });
  if (step !== null) parts.set("step", step);
  return `#${parts}`;
}

// What the address asks for; null if it names no array.
function linkedTo() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.has("array")) return null;
  const step = parts.get("step");
  return { run: Number(parts.get("run") ?? 1) - 1, array: parts.get("array"), step: step === null ? null : Number(step) };
}

// The address follows what is shown. Only links are steps of the browser's history.
function keepLink(run, array, step) {
  history.replaceState(null, "", linkTo(run, array, step));
}

// Opens what the address asks for, now and whenever it changes. `sections` has what shows the arrays of each run.
function followLinks(runs, sections) {
  const follow = () => {
    const asked = linkedTo();
    const index = asked && runs[asked.run]?.arrays.findIndex(({ name }) => name === asked.array);
    return asked && index >= 0 ? sections[asked.run].show(index, asked.step) : null;
  };
  window.addEventListener("hashchange", follow);
  document.addEventListener("click", ({ target }) => {
    if (target.closest("a")?.hash === location.hash) follow(); // again: the address stays as it is
  });
  return follow();
}
