import assert from 'node:assert/strict';
import test from 'node:test';

import {
  actions,
  byDay,
  EMPTY,
  endedIn,
  Job,
  Model,
  parseJob,
  parseUpdate,
  reduce,
  sections
} from '../model.js';
import { fullness, gaugeOf, parseSeen } from '../seen.js';

function job(fields: Record<string, unknown>): Job {
  return parseJob({ key: 'a', id: 'a', verb: 'pull', state: 'RUNNING', ...fields });
}

function after(model: Model, jobs: Job[], gone: string[] = [], first = false): Model {
  return reduce(model, {
    type: 'update',
    first,
    update: { jobs, gone, problem: '', version: '' },
    at: 0
  });
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

test('a message without news changes nothing', () => {
  const model = after(EMPTY, [job({})], [], true);
  assert.equal(after(model, []), model);
  assert.equal(after(reduce(model, { type: 'lost' }), []).link, 'live');
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

test('a job that did not succeed gives its place to the one that runs its line again', () => {
  const line = { command: 'pull s3://b/x x' };
  const model = after(EMPTY, [
    job({ ...line, key: 'failed', state: 'FAILED' }),
    job({ ...line, key: 'done', state: 'DONE' }),
    job({ ...line, key: 'again', created: 10 })
  ]);
  assert.deepEqual(
    sections(model).finished.map(j => j.key),
    ['done']
  );
});

test('the filter leaves the jobs of this server', () => {
  const model = after(EMPTY, [
    job({ key: 'a', here: true }),
    job({ key: 'b' }),
    job({ key: 'c', state: 'DONE' })
  ]);
  const { running, finished } = sections(model, job => job.here);
  assert.deepEqual(
    [...running, ...finished].map(j => j.key),
    ['a']
  );
});

test('finished jobs are grouped by day, and runs of one line together', () => {
  const at = (day: number, hour: number): number => new Date(2026, 10, day, hour).getTime() / 1000;
  const done = (key: string, created: number, command = ''): Job =>
    job({ key, created, command, state: 'DONE' });
  const days = byDay([
    done('d', at(27, 9), 'pull x'),
    done('c', at(27, 8)),
    done('b', at(27, 7), 'pull x'),
    done('a', at(26, 23), 'pull x')
  ]);
  assert.deepEqual(
    days.map(({ day, lines }) => [day / 1000, lines.map(runs => runs.map(run => run.key))]),
    [
      [at(27, 0), [['d', 'b'], ['c']]],
      [at(26, 0), [['a']]]
    ]
  );
});

test('only ends are told that happen while the page is open', () => {
  const told = (model: Model, ...jobs: Job[]): string[] =>
    endedIn(model, { jobs, gone: [], problem: '', version: '' }).map(j => j.key);
  const runs = job({ key: 'runs', created: 5 });
  const old = job({ key: 'old', created: 3, state: 'FAILED' });
  assert.deepEqual(told(EMPTY, old), []);
  const opened = after(EMPTY, [runs, old], [], true);
  assert.deepEqual(told(opened, job({ ...runs, state: 'DONE' })), ['runs']);
  assert.deepEqual(told(opened, job({ key: 'new', created: 9, state: 'FAILED' })), ['new']);
  assert.deepEqual(told(opened, old, job({ key: 'older', created: 1, state: 'DONE' })), []);
  // The first message after a break tells what ended meanwhile, and nothing twice.
  const ended = after(opened, [job({ ...runs, state: 'DONE' })]);
  assert.deepEqual(told(reduce(opened, { type: 'lost' }), job({ ...runs, state: 'DONE' })), [
    'runs'
  ]);
  assert.deepEqual(told(ended, job({ ...runs, state: 'DONE' })), []);
});

test('rates of the last minute are kept, one a second, until the job ends', () => {
  let model = EMPTY;
  for (let at = 0; at < 100; at += 0.25) {
    model = reduce(model, {
      type: 'update',
      first: at === 0,
      update: { jobs: [job({ rate: at })], gone: [], problem: '', version: '' },
      at
    });
  }
  const speeds = model.speeds.get('a') ?? [];
  assert.deepEqual([speeds[0]?.at, speeds.length], [38, 62]);
  assert.equal(speeds[speeds.length - 1]?.rate, 99.75);
  assert.equal(after(model, [job({ state: 'DONE' })]).speeds.size, 0);
});

test('a rate from before a gap is not shown as one of the gap', () => {
  const known = after(EMPTY, [job({ rate: 5 })], [], true);
  const again = reduce(known, {
    type: 'update',
    first: true,
    update: { jobs: [job({ rate: 7 })], gone: [], problem: '', version: '' },
    at: 30
  });
  assert.deepEqual(again.speeds.get('a'), [{ at: 30, rate: 7 }]);
});

test('the gauge of a folder is the innermost', () => {
  const gauge = (path: string, used = 1) => ({
    ...{ path, used, limit: 10, reserved: 0, free: 10 - used },
    ...{ source: 'the disk', here: true }
  });
  const disks = [gauge('/'), gauge('/work', 2), gauge('/work', 5), gauge('/workshop')];
  const seen = { root: '', caches: [], mounts: [], services: [], disks };
  assert.equal(gaugeOf(seen, '/work/data'), disks[2]);
  assert.equal(gaugeOf(seen, '/work'), disks[2]);
  assert.equal(gaugeOf(seen, '/home'), disks[0]);
  assert.equal(gaugeOf({ ...seen, disks: [] }, '/home'), null);
});

test('names that are only shown have no hidden characters; what is sent back stays as it came', () => {
  const evil = 'a\u202eb\n';
  const shown = job({ source: evil, error: evil, owner: evil, command: evil, folder: evil });
  assert.equal(shown.source, 'a\\u202eb\\n');
  assert.deepEqual([shown.error, shown.owner], [shown.source, shown.source]);
  assert.deepEqual([shown.command, shown.folder], [evil, evil]);
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
  assert.deepEqual(disk(0), { percent: 100, level: 'full', word: 'full' });
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
  assert.equal(parseJob({ lacks: { limited: true } }).lacks, null);
  assert.deepEqual(parseUpdate('?'), { jobs: [], gone: [], problem: '', version: '' });
  const none = { root: '', disks: [], caches: [], mounts: [], services: [] };
  assert.deepEqual(parseSeen({ disks: 7, caches: {}, mounts: 'm', services: 1 }), none);
});
