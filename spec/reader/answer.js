#!/usr/bin/env node
/**
 * The command for the conformance program: lines of JSON from standard input, one answer each.
 *
 *     python spec/conformance/run.py --level 4 -- node spec/reader/answer.js
 */

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { answer } from './answers.js';

const disk = {
  read: (path) => (existsSync(path) ? readFileSync(path) : null),
  list: (directory) => readdirSync(directory),
};

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${answer(line, disk)}\n`);
}
