// Charts are drawn by Vega-Lite, as SVG. Colours are variables of the style sheet, so that a change
// of theme, and printing, need no new drawing. Vega evaluates expressions without `eval`.

const COLOURS = {
  keyframe: "var(--keyframe)", delta: "var(--delta)", interpolated: "var(--first)", full: "var(--full)",
  weight: "var(--delta)", first_moment: "var(--first)", second_moment: "var(--keyframe)", other: "var(--full)",
};
const HEAT = Array.from({ length: 9 }, (_, index) => `var(--heat-${index})`);

const FONT = 'system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif';
const AXIS = {
  aria: false, domainColor: "var(--line)", gridColor: "var(--line)", tickColor: "var(--line)",
  labelColor: "var(--soft)", titleColor: "var(--soft)", labelFontSize: 12, titleFontSize: 12,
  titleFontWeight: "normal", labelPadding: 4, titlePadding: 8,
};
const CONFIG = {
  background: null, font: FONT, axis: AXIS, view: { stroke: null },
  legend: {
    aria: false, orient: "top", direction: "horizontal", labelColor: "var(--ink)", titleColor: "var(--soft)",
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", symbolStrokeWidth: 2,
  },
};

const drawn = new Map(); // chart element: how to draw it anew

// Draws `specify(width)` in a figure's chart; `describe(datum)` is shown where the pointer is.
// Resolves when that is done.
function draw({ chart, title }, specify, { describe = null, click = null } = {}) {
  const state = drawn.get(chart) ?? { last: Promise.resolve() };
  drawn.set(chart, state);
  const make = async () => {
    const width = Math.max(220, Math.floor(chart.clientWidth));
    const spec = {
      $schema: "https://vega.github.io/schema/vega-lite/v6.json", description: title, width,
      autosize: { type: "fit-x", contains: "padding" }, config: CONFIG, ...specify(width),
    };
    state.view?.finalize();
    const made = await vegaEmbed(chart, spec, {
      renderer: "svg", actions: false, ast: true, defaultStyle: false, mode: "vega-lite",
      tooltip: (_, event, item, value) => showTip(event, value && describe ? describe(item.datum) : null),
    });
    if (click) made.view.addEventListener("click", (_, item) => item?.datum && click(item.datum));
    Object.assign(state, { width, view: made.view });
  };
  state.again = () => (state.last = state.last.then(make)); // one after the other
  return state.again();
}

// Gives a chart that is drawn another set of the data that has this name.
function setData({ chart }, name, values) {
  drawn.get(chart)?.view?.data(name, values).run();
}

function drop({ chart }) {
  drawn.get(chart)?.view?.finalize();
  drawn.delete(chart);
  chart.replaceChildren();
}

function drawAnewOnResize() {
  let timer = 0;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      for (const [chart, { again, width }] of [...drawn]) {
        if (chart.isConnected && chart.clientWidth && Math.abs(chart.clientWidth - width) > 4) await again();
      }
    }, 150);
  });
}

function showTip(event, text) {
  const tip = document.getElementById("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18;
  const top = below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : below;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}
