import assert from 'node:assert/strict';
import test from 'node:test';

import { belongs, possible, wideEnough } from '../filter.js';
import { parseJob } from '../model.js';

const MINE = parseJob({ key: 'a', here: true, notebook: 'work/train.ipynb' });
const NEAR = parseJob({ key: 'b', here: true, notebook: 'other/train.ipynb' });
const FAR = parseJob({ key: 'c', here: false, notebook: null });

test('a notebook has the jobs of its path, not those of the same name elsewhere', () => {
  const own = [MINE, NEAR, FAR].filter(job => belongs(job, 'notebook', 'work/train.ipynb'));
  assert.deepEqual(own, [MINE]);
  assert.deepEqual(
    [MINE, NEAR, FAR].filter(job => belongs(job, 'server', null)),
    [MINE, NEAR]
  );
  assert.ok([MINE, NEAR, FAR].every(job => belongs(job, 'all', null)));
});

test('a job of an unknown notebook belongs to none, also while none is in front', () => {
  assert.equal(belongs(FAR, 'notebook', null), false);
});

test('without a notebook in front its transfers cannot be listed', () => {
  assert.equal(possible('notebook', null), 'server');
  assert.equal(possible('notebook', 'a.ipynb'), 'notebook');
  assert.equal(possible('all', null), 'all');
});

test('to show a job, the list becomes only as wide as it must', () => {
  assert.equal(wideEnough('notebook', MINE, 'work/train.ipynb'), 'notebook');
  assert.equal(wideEnough('notebook', NEAR, 'work/train.ipynb'), 'server');
  assert.equal(wideEnough('server', FAR, null), 'all');
});
