/**
 * The page: takes files, and shows what the worker finds in them. All that comes from a file is put
 * into the page as text.
 */

const CHILDREN_AT_A_TIME = 200;
const SMALL_TREE = 300; // nodes, of a tree that is shown open
const LONGEST_TEXT = 500;
const SUFFIX = '.lcc.h5';

const byId = (id) => document.getElementById(id);

/** The files by their names, in the order in which they came. @type {Map<string, File>} */
const files = new Map();

/** The address of the worker, in the form that pages with trusted types ask for. */
const WORKER_URL = (() => {
  const url = new URL('worker.js', import.meta.url).href;
  const policy = globalThis.trustedTypes?.createPolicy('worker', { createScriptURL: () => url });
  return policy === undefined ? url : policy.createScriptURL(url);
})();

/** What is shown. */
let worker = null;
let selectedName = null;
let missesParent = false;
let view = null;
let focusInList = false; // when the list was emptied

byId('needs-script').hidden = true;

/* Taking files */

byId('choose').addEventListener('submit', (event) => event.preventDefault());

byId('files').addEventListener('change', ({ target }) => {
  add([...target.files]);
  target.value = ''; // so that the same file can be chosen again
});

byId('clear').addEventListener('click', () => {
  worker?.terminate();
  files.clear();
  selectedName = null;
  missesParent = false;
  clearView();
  byId('list').hidden = true;
  byId('files').focus();
  say('All files are closed.');
});

document.addEventListener('dragover', (event) => {
  event.preventDefault();
  document.body.classList.add('dragging');
});

document.addEventListener('dragleave', (event) => {
  if (event.relatedTarget === null) document.body.classList.remove('dragging');
});

document.addEventListener('drop', async (event) => {
  event.preventDefault();
  document.body.classList.remove('dragging');
  try {
    add(await droppedFiles(event.dataTransfer));
  } catch (error) {
    say(`What was dropped cannot be read: ${error.message}`);
  }
});

/**
 * The files that were dropped, and the checkpoints of folders that were.
 * @param {DataTransfer} transfer
 * @returns {Promise<File[]>}
 */
async function droppedFiles(transfer) {
  const plain = [...transfer.files];
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.() ?? null);
  if (!entries.some((entry) => entry?.isDirectory)) return plain;
  const found = await Promise.all(entries.filter(Boolean).map(filesOfEntry));
  return found.flat();
}

/** @param {FileSystemEntry} entry */
async function filesOfEntry(entry) {
  const fileOf = (each) => new Promise((resolve, reject) => each.file(resolve, reject));
  if (entry.isFile) return [await fileOf(entry)];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) break;
    found.push(...some.filter(({ isFile, name }) => isFile && name.endsWith(SUFFIX)));
  }
  return Promise.all(found.map(fileOf));
}

/** @param {File[]} more */
function add(more) {
  if (more.length === 0) return say('There is no checkpoint file among these.');
  for (const file of more) files.set(file.name, file);
  open(missesParent ? [selectedName] : more.map(({ name }) => name));
}

/**
 * Open all files, and show the newest state of some.
 * @param {string[]} names
 */
function open(names) {
  worker?.terminate();
  focusInList = byId('entries').contains(document.activeElement);
  clearView();
  say(files.size === 1 ? 'Opening the file.' : `Opening ${files.size} files.`);
  worker = new Worker(WORKER_URL, { type: 'module' });
  worker.addEventListener('message', ({ data }) => RECEIVERS[data.type](data));
  worker.addEventListener('error', (event) => {
    showProblem({ kind: 'failed', rule: null, sentence: event.message ?? 'the worker could not be started' });
    say('The files could not be opened.');
  });
  worker.postMessage({ files: [...files.values()], wanted: names });
}

/* Showing what the worker tells */

const RECEIVERS = { files: showFiles, summary: showSummary, array: showArray, end: showEnd };

function clearView() {
  for (const id of ['about', 'state']) byId(id).hidden = true;
  for (const id of ['problem', 'facts', 'tree', 'entries']) byId(id).replaceChildren();
  view = null;
}

/** @param {string} text */
function say(text) {
  byId('status').textContent = text;
}

/**
 * Make an element. Children are elements or texts, never HTML.
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node|string)} children
 */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function showFiles({ items, selected }) {
  selectedName = items[selected].name;
  missesParent = false;
  byId('list').hidden = false;
  const buttons = items.map((item, i) => {
    const button = element(
      'button',
      { type: 'button', 'aria-pressed': String(i === selected) },
      element('span', { class: 'name' }, item.name),
      item.problem
        ? element('span', { class: 'bad-text' }, item.problem.rule ?? 'cannot be opened')
        : element('span', {}, kindOf(item)),
      element('span', { class: 'count' }, sizeText(item.size)),
    );
    button.addEventListener('click', () => open([item.name]));
    return element('li', {}, button);
  });
  byId('entries').replaceChildren(...buttons);
  if (focusInList) byId('entries').querySelector('[aria-pressed="true"]').focus();
  const { problem, name } = items[selected];
  if (problem) {
    showProblem(problem);
    say(`${name} is refused.`);
  }
}

function kindOf({ step, kind, parents }) {
  const of = step === null ? '' : ` of step ${step}`;
  const from = parents.length === 0 ? '' : `, from step ${parents.join(' and ')}`;
  return `${kind === 'exact' ? 'exact file' : kind}${of}${from}`;
}

const HEADINGS = {
  refused: 'This is refused',
  parent: 'A parent is missing, or another one',
  failed: 'This did not work',
};

/** @param {{kind: string, rule: string|null, sentence: string}} problem */
function showProblem({ kind, rule, sentence }) {
  const heading = element('strong', {}, HEADINGS[kind]);
  const box = element('div', { class: kind === 'parent' ? 'problem' : 'problem bad' });
  box.append(
    rule === null ? element('p', {}, heading) : element('p', {}, heading, ' by ', element('code', {}, rule)),
    element('p', {}, `${sentence.charAt(0).toUpperCase()}${sentence.slice(1)}.`),
  );
  if (kind === 'parent') {
    box.append(element('p', {}, 'Add its file to see all numbers. What this file tells alone is below.'));
  }
  byId('problem').append(box);
}

const KINDS = {
  keyframe: () => 'a keyframe: it needs no other file',
  delta: ({ parent }) => `a delta: a change from step ${parent.step}`,
  interpolated: ({ parent, later }) => `interpolated between the steps ${parent.step} and ${later.step}`,
  exact: () => 'an exact file: the newest state bit for bit',
};

function showSummary(summary) {
  view = { ...summary, results: new Map(), rows: new Map(), done: 0 };
  missesParent = summary.problem?.kind === 'parent';
  if (summary.problem) {
    showProblem(summary.problem);
    say(`${selectedName} cannot be decoded.`);
  }
  byId('about').hidden = false;
  const facts = [
    ['Step', summary.step === null ? 'none' : String(summary.step)],
    ['Kind', KINDS[summary.kind](summary)],
    ['Size', sizeText(summary.size)],
    [
      'Arrays',
      `${countText(summary.arrays)}, in ${countText(summary.frames)} ${summary.frames === 1 ? 'frame' : 'frames'} of ${sizeText(summary.stored)}`,
    ],
    ['Format', `version ${summary.version.join('.')}`],
    ['Root', element('code', {}, summary.root)],
  ];
  if (summary.chain?.length > 1) {
    facts.splice(2, 0, [
      'Decoded from',
      summary.chain.map(({ step, kind }) => `${step} (${kind})`).join(', '),
    ]);
  }
  if (summary.replaces.length > 0) facts.push(['Replaces', countText(summary.replaces.length)]);
  if (typeof summary.exact === 'string') facts.push(['Exact file', element('code', {}, summary.exact)]);
  for (const [key, value] of summary.metadata) {
    facts.push([`Metadata: ${shortened(key)}`, element('span', { class: 'text' }, shortened(value))]);
  }
  facts.push(['Policy', element('span', { class: 'text' }, shortened(summary.policy))]);
  byId('facts').replaceChildren(
    ...facts.flatMap(([term, value]) => [element('dt', {}, term), element('dd', {}, value)]),
  );
  showState(summary);
}

function showState({ tree, arrays, problem }) {
  byId('state').hidden = false;
  const progress = byId('progress');
  progress.hidden = arrays === 0 || (problem !== null && problem.kind !== 'parent');
  progress.max = Math.max(arrays, 1);
  progress.value = 0;
  byId('state-note').textContent =
    tree === null
      ? 'This checkpoint has the tree of its parent, which is not there. Its arrays are listed by number.'
      : problem
        ? ''
        : 'Numbers leave out what is not finite. A complex element counts as two.';
  const children =
    tree === null
      ? Array.from({ length: arrays }, (_, index) => ({ kind: 'array', part: `array ${index}`, index }))
      : [tree];
  const open = tree !== null && sizeOfTree(tree) <= SMALL_TREE;
  byId('tree').replaceChildren(listOf(children, open));
}

function sizeOfTree({ children = [] }) {
  return children.reduce((sum, child) => sum + sizeOfTree(child), 1);
}

/** A list of nodes, some of them at a time. */
function listOf(nodes, open) {
  const list = element('ul', {});
  let shown = 0;
  const more = element('button', { type: 'button' });
  const last = element('li', {}, more);
  const grow = () => {
    const next = nodes.slice(shown, shown + CHILDREN_AT_A_TIME).map((node) => itemOf(node, open));
    shown += next.length;
    last.remove();
    list.append(...next);
    if (shown < nodes.length) {
      more.textContent = `Show more (${countText(nodes.length - shown)} left)`;
      list.append(last);
    }
    return next[0];
  };
  more.addEventListener('click', () => {
    const first = grow();
    first.tabIndex = -1;
    first.focus();
  });
  grow();
  return list;
}

function itemOf(node, open) {
  const name = element(
    'span',
    { class: 'name' },
    node.part === null ? '(root)' : shortened(node.part) || '(empty name)',
  );
  if (node.kind === 'scalar') {
    const { kind, text } = view.scalars[node.index];
    return element(
      'li',
      {},
      name,
      element('span', { class: 'type' }, kind),
      element('span', { class: 'text' }, shortened(text)),
    );
  }
  if (node.kind === 'array') {
    const item = element('li', {});
    const rows = view.rows.get(node.index) ?? [];
    view.rows.set(node.index, [...rows, { item, name }]);
    fillArray(item, name, node.index);
    return item;
  }
  const count = `${node.kind} of ${countText(node.children.length)}`;
  const details = element(
    'details',
    {},
    element('summary', {}, name, element('span', { class: 'count' }, count)),
  );
  const fill = () => {
    if (details.children.length === 1) details.append(listOf(node.children, open));
  };
  details.addEventListener('toggle', fill);
  if (open || node.part === null) {
    fill();
    details.open = true;
  }
  return element('li', {}, details);
}

function showArray(result) {
  view.results.set(result.index, result);
  view.done++;
  byId('progress').value = view.done;
  for (const { item, name } of view.rows.get(result.index) ?? []) fillArray(item, name, result.index);
}

function fillArray(item, name, index) {
  const result = view.results.get(index);
  if (result === undefined) {
    item.replaceChildren(name, element('span', { class: 'why' }, 'array'));
    return;
  }
  const { dtype, shape, statistics, why } = result;
  item.replaceChildren(name);
  if (dtype !== null) item.append(element('span', { class: 'type' }, dtype));
  if (shape !== null) item.append(element('span', { class: 'shape' }, shapeText(shape)));
  if (statistics !== null) item.append(numbersOf(statistics, view.lost?.[index] ?? null));
  else item.append(' ', element('span', { class: 'why' }, `(${why})`));
}

function numbersOf({ elements, minimum, maximum, mean, zeros, nans, infinities }, lost) {
  const numbers = [
    ['elements', countText(elements)],
    ['min', numberText(minimum)],
    ['max', numberText(maximum)],
    ['mean', numberText(mean)],
    ['zeros', countText(zeros)],
    ['NaN', countText(nans)],
  ];
  if (infinities > 0) numbers.push(['infinite', countText(infinities)]);
  if (lost !== null) numbers.push(['lost (rms)', numberText(lost)]);
  return element(
    'dl',
    { class: 'numbers' },
    ...numbers.map(([term, text]) => element('div', {}, element('dt', {}, term), element('dd', {}, text))),
  );
}

function showEnd({ problem, bytes, verified }) {
  byId('progress').hidden = true;
  if (problem !== null) {
    showProblem(problem);
    say('Not all arrays could be decoded.');
  } else if (verified) {
    const size = view.arrays > 0 ? `, ${sizeText(bytes)} decoded` : '';
    say(`All of ${selectedName} is verified: every checksum and digest matches${size}.`);
  } else {
    say(`${selectedName} is shown as far as it can be known.`);
  }
}

/* Texts */

function shortened(text) {
  return text.length <= LONGEST_TEXT
    ? text
    : `${text.slice(0, LONGEST_TEXT)}… (${countText(text.length)} characters)`;
}

function shapeText(shape) {
  return `[${shape.join(', ')}]`;
}

function countText(count) {
  return count.toLocaleString('en');
}

/** @param {number|bigint|null} number */
function numberText(number) {
  if (number === null) return '–';
  if (typeof number === 'bigint' || Number.isSafeInteger(number)) return String(number);
  return String(Number(number.toPrecision(6)));
}

function sizeText(bytes) {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let [size, unit] = [bytes, 0];
  for (; size >= 1000 && unit < units.length - 1; unit++) size /= 1000;
  return `${unit === 0 ? size : size.toPrecision(3)} ${units[unit]}`;
}
