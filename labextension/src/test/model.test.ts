import assert from 'node:assert/strict';
import test from 'node:test';

import {
  actions,
  EMPTY,
  fullness,
  Job,
  Model,
  parseSeen,
  parseJob,
  parseUpdate,
  reduce,
  sections
} from '../model.js';

function job(fields: Record<string, unknown>): Job {
  return parseJob({ key: 'a', id: 'a', verb: 'pull', state: 'RUNNING', ...fields });
}

function after(model: Model, jobs: Job[], gone: string[] = [], first = false): Model {
  return reduce(model, { type: 'update', first, update: { jobs, gone, problem: '' } });
}

test('the first message of a connection replaces what was known', () => {
  const before = after(EMPTY, [job({ key: 'old' })], [], true);
  assert.deepEqual([...after(before, [job({ key: 'new' })], [], true).jobs.keys()], ['new']);
});

test('later messages change only what they name', () => {
  const before = after(
    EMPTY,
    [job({ key: 'a', bytes: 1 }), job({ key: 'b' }), job({ key: 'c' })],
    [],
    true
  );
  const now = after(before, [job({ key: 'a', bytes: 2 })], ['c']);
  assert.deepEqual([...now.jobs.keys()], ['a', 'b']);
  assert.equal(now.jobs.get('a')?.bytes, 2);
  assert.equal(before.jobs.get('a')?.bytes, 1);
});

test('a lost server takes nothing away, and an update brings it back', () => {
  const lost = reduce(after(EMPTY, [job({})], [], true), { type: 'lost' });
  assert.equal(lost.link, 'lost');
  assert.equal(lost.jobs.size, 1);
  assert.equal(reduce(lost, { type: 'lost' }), lost);
  assert.equal(after(lost, [], [], true).link, 'live');
});

test('running jobs keep their places, finished ones come newest first', () => {
  const model = after(EMPTY, [
    job({ key: 'late', created: 20 }),
    job({ key: 'early', created: 10, state: 'PAUSED' }),
    job({ key: 'long', created: 1, seconds: 100, state: 'DONE' }),
    job({ key: 'short', created: 5, seconds: 1, state: 'FAILED' })
  ]);
  const { running, finished } = sections(model);
  assert.deepEqual(
    running.map(j => j.key),
    ['early', 'late']
  );
  assert.deepEqual(
    finished.map(j => j.key),
    ['long', 'short']
  );
});

test('buttons are those that make sense', () => {
  assert.deepEqual(actions(job({ state: 'RUNNING' })), ['pause', 'cancel']);
  assert.deepEqual(actions(job({ state: 'PAUSED' })), ['resume', 'cancel']);
  for (const state of ['CANCELLING', 'DONE', 'FAILED', 'CANCELLED', 'INTERRUPTED']) {
    assert.deepEqual(actions(job({ state })), []);
  }
});

test('a disk warns at 80% and alarms at 95% of what can be used, reservations included', () => {
  const disk = (free: number) =>
    fullness({
      path: '/',
      source: '',
      limit: 200,
      used: 90 - free,
      reserved: 10,
      free,
      here: true
    });
  assert.equal(disk(20.1).level, 'ok');
  assert.deepEqual(disk(20), { percent: 80, level: 'warn', word: 'filling up' });
  assert.equal(disk(5.1).level, 'warn');
  assert.deepEqual(disk(5), { percent: 95, level: 'full', word: 'almost full' });
});

test('with much free it does not warn, whatever the share', () => {
  const disk = (free: number) =>
    fullness({
      path: '/',
      source: '',
      limit: 400e9,
      used: 400e9 - free,
      reserved: 0,
      free,
      here: true
    }).level;
  assert.equal(disk(53e9), 'ok');
  assert.equal(disk(20e9), 'ok');
  assert.equal(disk(19e9), 'full');
});

test('a limit of nothing is full', () => {
  const none = { path: '/', source: '', limit: 0, used: 0, reserved: 0, free: 0, here: true };
  assert.equal(fullness(none).level, 'full');
});

test('nonsense from an agent of another version does no harm', () => {
  assert.equal(parseJob(null).state, 'INTERRUPTED');
  assert.equal(parseJob({ state: 'EXPLODED' }).state, 'INTERRUPTED');
  assert.equal(parseJob({ bytes: 'many', bytes_total: NaN }).bytesTotal, null);
  assert.deepEqual(parseUpdate('?'), { jobs: [], gone: [], problem: '' });
  assert.deepEqual(parseSeen({ disks: 7, caches: {} }), { disks: [], caches: [] });
});
