import assert from 'node:assert/strict';
import test from 'node:test';

import {
  ago,
  fillWords,
  firstFolder,
  freed,
  freeingWords,
  fullGauge,
  spelled
} from '../diskwords.js';
import { parseSeen } from '../seen.js';
import { csv, filled, freeing, isOver, parseLine, parseResult, plain } from '../results.js';

const row = (path: string, disk: number, fills: object, action = 'folder'): object => ({
  path,
  action,
  size: disk,
  detail: { objects: 1, disk, known: 0, caches: 0, partial: 0, only_here: 0, ...fills }
});

test('what fills a folder is its folders and the files beside them, the largest first', () => {
  const rows = [
    row('b/', 500, { known: 300, caches: 200 }),
    row('a/', 100, { only_here: 100 }),
    row('', 1000, { known: 300, caches: 200, only_here: 500 }, 'total')
  ];
  const { total, parts } = filled(parseResult({ state: 'DONE', rows, count: 3 }));
  assert.equal(total.disk, 1000);
  assert.deepEqual(
    parts.map(part => [part.name, part.disk, part.isFolder]),
    [
      ['b', 500, true],
      ['', 400, false],
      ['a', 100, true]
    ]
  );
  assert.deepEqual(parts.slice(0, 2).map(fillWords), [
    ['300 B known', '200 B caches'],
    ['400 B only here']
  ]);
  // Nobody knows what lies beside the folders if some folders are missing.
  const some = filled(parseResult({ state: 'DONE', rows, count: 9 }));
  assert.deepEqual(
    some.parts.map(part => part.name),
    ['b', 'a']
  );
});

test('a plan says what it frees, what of it can be fetched again, and what is lost', () => {
  const plan = parseResult({
    state: 'DONE',
    details: {
      frees: { own: 1000, stored: 20_000, only_here: 3000 },
      stays: { only_here: 0, not_asked: 5000 }
    },
    actions: { remove: [1, 1000], delete: [9, 23_000], keep: [1, 5000] }
  });
  assert.deepEqual(freeingWords(freeing(plan)), [
    'frees 24.0 kB',
    '20.0 kB can be fetched again',
    '3.0 kB only here, and lost',
    '5.0 kB stay because no store could be asked for them'
  ]);
  const bare = parseResult({ state: 'DONE', actions: { remove: [2, 700], 'in use': [1, 90] } });
  assert.deepEqual(freeingWords(freeing(bare)), ['frees 700 B']);
  assert.deepEqual(freeingWords(freeing(parseResult({}))), ['frees nothing']);
  assert.equal(freed(parseResult({ details: { freed: 24_000 } })), 'Freed 24.0 kB.');
  assert.equal(freed(parseResult({})), 'Nothing was freed.');
});

test('cells that a spreadsheet would take for formulas are made texts', () => {
  const rows = parseResult({
    rows: ['=1+1', '+1', '-1', '@a', 'a "b", c', 'x\n\u202ey'].map(path => ({
      path,
      action: 'failed',
      detail: { reason: path === '+1' ? '=cmd|a' : 'refused' }
    }))
  }).rows;
  assert.deepEqual(csv(rows).split('\r\n'), [
    '"file","outcome","reason"',
    `"'=1+1","failed","refused"`,
    `"'+1","failed","'=cmd|a"`,
    `"'-1","failed","refused"`,
    `"'@a","failed","refused"`,
    '"a ""b"", c","failed","refused"',
    '"x\\n\\u202ey","failed","refused"',
    ''
  ]);
  assert.match(plain(rows), /^=1\+1: refused\n/);
});

test('the tools of a gauge begin in the limited folder, or in that of the server', () => {
  const disk = (path: string, source = 'the disk'): object => ({ path, source });
  const seen = parseSeen({
    root: '/work/me',
    disks: [disk('/work/me', '%quota --limit'), disk('/'), disk('/work'), disk('/data')]
  });
  assert.deepEqual(
    seen.disks.map(one => firstFolder(one, seen)),
    ['/work/me', null, '/work/me', null]
  );
});

test('a job that had no room leads to the limit or the disk that had none', () => {
  const disk = (path: string, source = 'the disk'): object => ({ path, source });
  const seen = parseSeen({
    root: '/work',
    disks: [disk('/work', 'NBDATA_QUOTA'), disk('/work/me', '%quota --limit'), disk('/')]
  });
  const of = (folder: string, limited: boolean): string | undefined =>
    fullGauge(seen, { folder, limited })?.path;
  assert.equal(of('/work', true), '/work');
  assert.equal(of('/work/me', true), '/work/me');
  assert.equal(of('/work/me/data', false), '/');
  assert.equal(of('/elsewhere', true), '/'); // its limit is lifted
  assert.equal(fullGauge({ ...seen, disks: [] }, { folder: '/work', limited: true }), null);
});

test('the age of a scan, and sizes as a command takes them', () => {
  assert.equal(ago(100, 102), 'scanned just now');
  assert.equal(ago(100, 222), 'scanned 2 min 2 s ago');
  assert.deepEqual([50e9, 1.5e9, 123].map(spelled), ['50GB', '1500MB', '123B']);
});

test('what the server leaves out is empty', () => {
  assert.deepEqual(parseLine({}), { id: '', key: '', line: '', whyNoLine: '' });
  assert.deepEqual(parseResult(null).rows, []);
  assert.equal(isOver(parseResult({ state: 'PLANNING' })), false);
  assert.equal(isOver(parseResult({ state: 'CANCELLED' })), true);
});
