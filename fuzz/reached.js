/**
 * Answers questions as `spec/reader/answer.js` does, and tells what of the reader each answer ran.
 *
 *     node --no-opt fuzz/reached.js READER < QUESTIONS
 *
 * READER is the folder of the reader. Each line of the output is a JSON object: of each module, by
 * its name, `[start, end, count]` of the blocks that ran or did not, where a block that is inside
 * another comes behind it. The first line is about what ran before the first question.
 */

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { Session } from 'node:inspector';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const folder = `${pathToFileURL(process.argv[2]).href}/`;
const session = new Session();
session.connect();
session.post('Profiler.enable');
session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
const { answer } = await import(`${folder}answers.js`);

const disk = {
  read: (path) => (existsSync(path) ? readFileSync(path) : null),
  list: (directory) => readdirSync(directory),
};

/** The blocks since the last call: inspector calls back before `post` returns. */
function ran() {
  const found = {};
  session.post('Profiler.takePreciseCoverage', (error, { result }) => {
    for (const { url, functions } of result) {
      if (!url.startsWith(folder)) continue;
      found[url.slice(folder.length)] = functions.flatMap(({ ranges }) =>
        ranges.map(({ startOffset, endOffset, count }) => [startOffset, endOffset, count]),
      );
    }
  });
  return JSON.stringify(found);
}

process.stdout.write(`${ran()}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  answer(line, disk);
  process.stdout.write(`${ran()}\n`);
}
