import assert from 'node:assert/strict';
import test from 'node:test';

import { duration, files, percent, precise, share, size } from '../format.js';

test('sizes are in decimal units and never show 1000 of a unit', () => {
  assert.deepEqual([0, 999, 1000, 1_500_000, 999_949_999, 999_950_000, 2e12, 3e15].map(size), [
    '0 B',
    '999 B',
    '1.0 kB',
    '1.5 MB',
    '999.9 MB',
    '1.0 GB',
    '2.0 TB',
    '3.0 PB'
  ]);
});

test('durations name two units at most', () => {
  assert.deepEqual([0, 0.01, 0.34, 9.99, 42, 200, 7500].map(duration), [
    '0.0 s',
    '<0.1 s',
    '0.3 s',
    '10.0 s',
    '42 s',
    '3 min 20 s',
    '2 h 5 min'
  ]);
});

test('one file is a file', () => {
  assert.equal(files(0, 1), '0 of 1 file');
  assert.equal(files(1, null), '1 file');
  assert.equal(files(12_000, 220_000), '12,000 of 220,000 files');
});

test('a share without a total is an amount', () => {
  assert.equal(share(1000, null), '1.0 kB');
  assert.equal(share(1000, 2000), '1.0 kB of 2.0 kB');
});

test('a hundred percent means that nothing is missing', () => {
  assert.equal(percent(999_999, 1_000_000), 99);
  assert.equal(percent(1_000_000, 1_000_000), 100);
  assert.equal(percent(2, 1), 100);
  assert.equal(percent(-5, 100), 0);
  assert.equal(percent(5, null), null);
  assert.equal(percent(0, 0), null);
});

test('a large disk is seen to fill', () => {
  assert.deepEqual([0, 0.01, 0.44, 9.99, 10, 48.9, 100].map(precise), [
    '0%',
    '<0.1%',
    '0.4%',
    '9.9%',
    '10%',
    '48%',
    '100%'
  ]);
});
