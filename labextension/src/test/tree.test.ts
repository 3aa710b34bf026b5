import assert from 'node:assert/strict';
import test from 'node:test';

import {
  Entry,
  grown,
  height,
  Level,
  loaded,
  MOST_OPEN,
  MOST_PAGES,
  Place,
  planted,
  rowOf,
  rows,
  Tree,
  urlAt,
  View,
  windowOf
} from '../tree.js';

const ROOT = 's3://b/';
const PLAIN: View = { filter: '', sorting: 'store' };

function entry(name: string, fields: Partial<Entry> = {}): Entry {
  const size = name.endsWith('/') ? null : 1;
  return { name, size, modified: null, version: '', storageClass: '', url: '', ...fields };
}

function came(tree: Tree, base: string, page: number, names: string[], token = ''): Tree {
  const entries = names.map(name => entry(name));
  return grown(tree, { type: 'came', base, page, listed: { base, entries, token } });
}

/** The rows as texts: two blanks for each depth, and `>` before an open folder. */
function drawn(tree: Tree, view = PLAIN, from = 0, to = 1_000): string[] {
  return rows(tree, view, from, to).map(row => {
    const text = row.kind === 'tail' ? `(${row.why})` : (row.entry?.name ?? '?');
    return `${'  '.repeat(row.depth)}${row.kind === 'entry' && row.isOpen ? '>' : ''}${text}`;
  });
}

function level(tree: Tree, base = ROOT): Level {
  const at = tree.levels.get(base);
  assert.ok(at);
  return at;
}

const at = (page: number, n: number, base = ROOT): Place => ({ base, page, at: n });

const two = came(came(planted(ROOT), ROOT, 0, ['a/', 'b'], 't1'), ROOT, 1, ['c/', 'd']);

test('pages come one behind the other, and the row behind the last one says what is there', () => {
  assert.deepEqual(drawn(planted(ROOT)), ['(more)']);
  assert.deepEqual(drawn(came(planted(ROOT), ROOT, 0, ['a/', 'b'], 't1')), ['a/', 'b', '(more)']);
  assert.deepEqual(drawn(two), ['a/', 'b', 'c/', 'd']);
  assert.deepEqual(drawn(came(planted(ROOT), ROOT, 0, [])), ['(nothing)']);
  const failed = grown(planted(ROOT), { type: 'failed', base: ROOT, problem: 'no' });
  assert.deepEqual(drawn(failed), ['(problem)']);
  assert.deepEqual(drawn(grown(failed, { type: 'asked', base: ROOT, page: 0 })), ['(more)']);
  const [, c, d] = rows(two, PLAIN, 1, 4);
  assert.deepEqual(c?.kind === 'entry' && [c.number, c.of, c.place], [3, 4, at(1, 0)]);
  assert.equal(d?.kind === 'entry' && d.of, 4);
});

test('open folders stand below their row, in a window as in the whole', () => {
  let tree = grown(two, { type: 'open', place: at(1, 0) });
  tree = came(tree, 's3://b/c/', 0, ['x/', 'y']);
  tree = grown(tree, { type: 'open', place: at(0, 0, 's3://b/c/') });
  tree = grown(tree, { type: 'open', place: at(0, 1) }); // an object
  const all = ['a/', 'b', '>c/', '  >x/', '    (more)', '  y', 'd'];
  assert.deepEqual(drawn(tree), all);
  assert.equal(height(tree, PLAIN), all.length);
  for (let from = 0; from <= all.length; from++) {
    for (let to = from; to <= all.length; to++) {
      assert.deepEqual(drawn(tree, PLAIN, from, to), all.slice(from, to));
    }
  }
  assert.equal(rowOf(tree, PLAIN, at(0, 1, 's3://b/c/')), 5);
  assert.equal(rowOf(tree, PLAIN, at(1, 1)), 6);
  assert.equal(urlAt(tree, at(0, 1, 's3://b/c/')), 's3://b/c/y');
  const shut = grown(tree, { type: 'close', base: 's3://b/c/' });
  assert.deepEqual(drawn(shut), ['a/', 'b', 'c/', 'd']);
  assert.deepEqual([...shut.levels.keys()], [ROOT]);
  assert.equal(grown(shut, { type: 'close', base: ROOT }), shut);
});

test('what comes for a folder that was closed changes nothing', () => {
  assert.deepEqual(drawn(came(two, 's3://b/c/', 0, ['x'])), ['a/', 'b', 'c/', 'd']);
});

test('filter and order are of what is loaded', () => {
  const listed = {
    base: ROOT,
    token: 'more',
    entries: [
      entry('in/'),
      entry('Small.bin', { size: 1, modified: 30 }),
      entry('large.bin', { size: 9, modified: 10 }),
      entry('b.txt', { size: 5, modified: 20 })
    ]
  };
  let tree = grown(planted(ROOT), { type: 'came', base: ROOT, page: 0, listed });
  tree = grown(tree, { type: 'open', place: at(0, 0) });
  tree = came(tree, 's3://b/in/', 0, ['z.bin']);
  const shown = (filter: string, sorting: View['sorting']): string[] =>
    drawn(tree, { filter, sorting });
  assert.deepEqual(shown('.BIN', 'store'), ['Small.bin', 'large.bin', '(more)']);
  assert.deepEqual(shown('', 'size'), [
    'large.bin',
    'b.txt',
    'Small.bin',
    '>in/',
    '  z.bin',
    '(more)'
  ]);
  assert.deepEqual(shown('b', 'time'), ['Small.bin', 'b.txt', 'large.bin', '(more)']);
  assert.equal(rowOf(tree, { filter: 'b', sorting: 'time' }, at(0, 2)), 2);
  assert.equal(rowOf(tree, { filter: 'x', sorting: 'time' }, at(0, 2)), -1);
  const whole = came(planted(ROOT), ROOT, 0, ['a']);
  const folder = came(planted(ROOT), ROOT, 0, ['a/']);
  assert.deepEqual(loaded(tree), { count: 5, areFirst: false, areAll: false });
  assert.deepEqual(loaded(whole), { count: 1, areFirst: true, areAll: true });
  const within = grown(folder, { type: 'open', place: { base: ROOT, page: 0, at: 0 } });
  assert.deepEqual(loaded(within), { count: 1, areFirst: false, areAll: false });
});

const MILLION = ((): Tree => {
  let tree = planted(ROOT);
  for (let page = 0; page < 1_000; page++) {
    const names = Array.from({ length: 1_000 }, (_, n) => `${page * 1_000 + n}`);
    tree = came(tree, ROOT, page, names, page < 999 ? `t${page + 1}` : '');
    tree = grown(tree, { type: 'forget', kept: (_, number) => number });
  }
  return tree;
})();

test('of a million keys only some pages are kept, and the others are asked for by their tokens', () => {
  const tree = MILLION;
  const { pages } = level(tree);
  assert.equal(pages.filter(page => page.entries).length, MOST_PAGES);
  assert.equal(height(tree, PLAIN), 1_000_000);
  assert.deepEqual(drawn(tree, PLAIN, 999_998, 1_000_000), ['999998', '999999']);
  assert.deepEqual(drawn(tree, PLAIN, 5, 6), ['?']);
  assert.equal(pages[5]?.token, 't5');
  assert.deepEqual(loaded(tree), { count: 100_000, areFirst: false, areAll: false });
  const again = came(tree, ROOT, 5, ['five', 'six'], 't6');
  assert.deepEqual(drawn(again, PLAIN, 5_000, 5_003), ['five', 'six', '?']);
  assert.equal(level(again).next, null);
});

test('a window of a million keys has the rows that are asked for, wherever it is', () => {
  const tree = MILLION;
  for (let from = 0; from < 1_000_000; from += 1_000) {
    const found = rows(tree, PLAIN, from, from + 30);
    assert.deepEqual([found.length, rowOf(tree, PLAIN, at(from / 1_000, 7))], [30, from + 7]);
  }
});

test('a folder stays open where its page comes anew in another order, and closes if it is gone', () => {
  const open = came(grown(two, { type: 'open', place: at(0, 0) }), 's3://b/a/', 0, ['x']);
  assert.deepEqual(drawn(came(open, ROOT, 0, ['0', 'a/'], 't1')), ['0', '>a/', '  x', 'c/', 'd']);
  assert.deepEqual(drawn(came(open, ROOT, 0, ['b'], 't1')), ['b', 'c/', 'd']);
});

test('only so many folders are open at once', () => {
  const names = Array.from({ length: MOST_OPEN + 10 }, (_, n) => `${n}/`);
  let tree = came(planted(ROOT), ROOT, 0, names);
  names.forEach((_, n) => (tree = grown(tree, { type: 'open', place: at(0, n) })));
  assert.equal(tree.levels.size, MOST_OPEN);
  assert.ok(tree.levels.has(ROOT) && tree.levels.has(`s3://b/${MOST_OPEN + 9}/`));
});

test('where the rows become fewer, those that are left are in view', () => {
  const fewer = windowOf(2, 24, 48, 60_000);
  assert.deepEqual([fewer.first, fewer.last, fewer.top(0), fewer.top(1)], [0, 2, 0, 24]);
});

test('a window draws what is in view, and every row can be scrolled to', () => {
  const small = windowOf(10, 24, 240, 0);
  assert.deepEqual([small.first, small.last, small.tall, small.top(3)], [0, 10, 240, 72]);
  for (const count of [1_000, 1_000_000]) {
    for (const row of [0, 5, count / 2, count - 1]) {
      const scrolled = windowOf(count, 24, 240, 0).scrollTo(row);
      const there = windowOf(count, 24, 240, scrolled);
      assert.ok(there.tall <= 8_000_000);
      assert.ok(there.first <= row && row < there.last, `${row} of ${count}`);
      assert.ok(there.last - there.first <= 28);
      const top = there.top(row) - scrolled;
      assert.ok(top >= -2 && top <= 240 - 24 + 2, `${row} of ${count} at ${top}`);
    }
  }
});
