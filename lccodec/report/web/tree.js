// All arrays of a role as a tree of blocks that folds, after the parts of their names.

const MOST_PARTS = 12; // of a name; what follows is one part
const OPEN_AT_FIRST = 30; // rows

const COLUMNS = [
  { title: "elements", of: (run, index) => run.arrays[index].size, join: (all) => all.reduce((sum, value) => sum + value, 0), format: formatCount },
  { title: "movement", of: (run, index) => median(run.figures.movement?.[index] ?? []), join: largest, format: (value) => formatNumber(value, 3) },
  { title: "largest", of: (run, index) => largest(run.figures.movement?.[index] ?? []), join: largest, format: (value) => formatNumber(value, 3) },
  { title: "at step", of: stepOfLargest, join: (steps, children) => stepOfMost(steps, children), format: formatCount },
  { title: "error, in movements", of: (run, index) => median(run.figures.error?.[index] ?? []), join: largest, format: (value) => formatNumber(value, 3) },
  { title: "lag, in intervals", of: (run, index) => median(run.figures.lag?.[index] ?? []), join: farthest, format: (value) => formatNumber(value, 3) },
];

const LARGEST = 2; // the column of the largest movement

function stepOfLargest(run, index) {
  const values = run.figures.movement?.[index] ?? [];
  const most = largest(values);
  return most === null ? null : run.steps[values.indexOf(most)];
}

// The step of the array of a block that moved the farthest.
function stepOfMost(steps, children) {
  const most = largest(children.map(({ values }) => values[LARGEST]));
  return most === null ? null : steps[children.findIndex(({ values }) => values[LARGEST] === most)];
}

// A block has a name and children, in the order of the state; an array has its place in `run.arrays`.
function treeOf(run, places) {
  const root = { name: "", children: new Map() };
  for (const place of places) {
    const { of, name } = run.arrays[place];
    const parts = shownName(of ?? name).match(/[^/.]*[/.]?/gu).filter(Boolean);
    const path = [...parts.slice(0, MOST_PARTS - 1), parts.slice(MOST_PARTS - 1).join("")].filter(Boolean);
    let block = root;
    for (const part of path.slice(0, -1)) {
      if (!block.children.has(part)) block.children.set(part, { name: part, children: new Map() });
      block = block.children.get(part);
    }
    block.children.set(place, { name: path.at(-1) ?? "", place, count: 1, findings: findingsOf(run, name), values: COLUMNS.map((column) => column.of(run, place)) });
  }
  return joined(root);
}

// With what a block shows of its arrays; one that has a single child is one with it.
function joined(block) {
  if (block.place !== undefined) return block;
  const children = [...block.children.values()].map(joined);
  if (children.length === 1) return { ...children[0], name: block.name + children[0].name };
  const values = COLUMNS.map(({ join }, column) => join(children.map((child) => child.values[column]), children));
  return { name: block.name, children, values, findings: children.reduce((sum, { findings }) => sum + findings, 0), count: children.reduce((sum, { count }) => sum + count, 0) };
}

// The blocks that are open at first: whole levels, as long as there is room.
function openedOf(tree) {
  const opened = new Set([tree]);
  let rows = tree.children?.length ?? 1;
  for (let level = tree.children ?? []; level.length; level = level.flatMap(({ children }) => children ?? [])) {
    const blocks = level.filter(({ children }) => children);
    rows += blocks.reduce((sum, { children }) => sum + children.length, 0);
    if (rows > OPEN_AT_FIRST) break;
    for (const block of blocks) opened.add(block);
  }
  return opened;
}

function treeSection(id, run, place) {
  const result = section(id, "Arrays",
    paragraph("Arrays in blocks, after the parts of their names. Figures are medians over the steps, and the largest movement with its step. A block shows "
      + "the largest of its arrays. Error is how far a restored array is off, lag how far it lies behind. A triangle marks arrays with findings."));
  const roles = rolesOf(run, run.arrays.map((_, index) => index));
  if (!roles.length) return null;
  const body = element("tbody");
  const heads = ["array", ...COLUMNS.map(({ title }) => title)].map((title, index) => {
    const button = element("button", { type: "button", class: "sort", onclick: () => sortBy(index - 1) }, title);
    return element("th", { scope: "col", class: index ? "number" : null, "aria-sort": "none" }, button);
  });
  const caption = element("caption");
  result.append(
    choice("Show", roles.map((value) => ({ value, label: roleName(value) })), choose),
    element("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": "Arrays by block" },
      element("table", { class: "tree" }, caption, element("thead", {}, element("tr", {}, ...heads)), body)));
  let tree;
  let opened;
  let order = { column: null, sign: -1 };

  function choose(role) {
    tree = treeOf(run, run.arrays.flatMap((array, index) => (array.role === role ? [index] : [])));
    opened = openedOf(tree);
    caption.textContent = `${plural(tree.count, "array")}: ${roleName(role)}`;
    fill();
  }

  // Numbers begin with the largest, names with the first; a third click brings the order of the state back.
  function sortBy(column) {
    const begin = column < 0 ? 1 : -1;
    if (order.column !== column) order = { column, sign: begin };
    else order = order.sign === begin ? { column, sign: -begin } : { column: null, sign: -1 };
    heads.forEach((head, index) => head.setAttribute("aria-sort",
      order.column !== index - 1 || order.column === null ? "none" : order.sign > 0 ? "ascending" : "descending"));
    fill();
  }

  function sorted(children) {
    const { column, sign } = order;
    if (column === null) return children;
    if (column < 0) return [...children].sort((a, b) => sign * a.name.localeCompare(b.name, "en", { numeric: true }));
    const of = ({ values }) => values[column];
    return [...children].sort((a, b) => (of(a) === null) - (of(b) === null) || sign * (of(a) - of(b)));
  }

  const rows = (children, depth) => sorted(children).flatMap((child) =>
    [rowOf(child, depth), ...(child.children && opened.has(child) ? rows(child.children, depth + 1) : [])]);

  const fill = () => body.replaceChildren(...rows(tree.name ? [tree] : tree.children, 0));

  function rowOf(node, depth) {
    const head = element("th", { scope: "row" }, node.children ? foldOf(node) : element("a", { href: linkTo(place, run.arrays[node.place].name) }, nameText(node.name, 40)), markOf(node));
    head.style.setProperty("--depth", Math.min(depth, 8));
    return element("tr", {}, head, ...node.values.map((value, column) => element("td", { class: "number" }, COLUMNS[column].format(value))));
  }

  function foldOf(node) {
    const toggle = () => {
      if (!opened.delete(node)) opened.add(node);
      fill();
      node.button.focus();
    };
    node.button = element("button", { type: "button", class: "fold", "aria-expanded": String(opened.has(node)), onclick: toggle },
      nameText(node.name, 40), ` (${formatCount(node.count)})`);
    return node.button;
  }

  function markOf({ findings }) {
    const words = plural(findings, "finding");
    return findings ? element("span", { class: "mark", role: "img", "aria-label": words, title: words }) : null;
  }

  choose(roles[0]);
  return { node: result, drawings: [] };
}
