import assert from 'node:assert/strict';
import test from 'node:test';

import { Job, parseJob } from '../model.js';
import { DEFAULTS, toldAs } from '../settings.js';
import { corners } from '../sparkline.js';
import { diskFact, jobFacts } from '../summary.js';

function job(fields: Record<string, unknown>): Job {
  return parseJob({ verb: 'pull', state: 'RUNNING', rate: 1e6, eta: 21, here: true, ...fields });
}

const texts = (failed: number, ...jobs: Job[]): string[] =>
  jobFacts(jobs, failed).map(fact => fact.text);

test('the status bar adds the rates, and says when the last one is over', () => {
  assert.deepEqual(texts(0, job({}), job({ rate: 2e6, eta: 5 })), ['↓ 3.0 MB/s · 21 s']);
  assert.deepEqual(texts(0, job({ verb: 'push' })), ['↑ 1.0 MB/s · 21 s']);
  assert.deepEqual(texts(0, job({ verb: 'push' }), job({ eta: null })), ['⇅ 2.0 MB/s']);
});

test('the status bar says what does not move, and why', () => {
  const short = job({ state: 'PAUSED', reason: 'no space: it needs 1.2 GB' });
  assert.deepEqual(texts(1, short, short, job({ state: 'PAUSED', reason: 'user' })), [
    '2 wait for space',
    '1 paused',
    '! 1 failed'
  ]);
  assert.deepEqual(texts(0, job({ state: 'PLANNING' })), ['planning']);
  assert.deepEqual(texts(0, job({ phase: 'waits for your loop' })), ['waits for your loop']);
  assert.deepEqual(texts(0, job({ state: 'DONE' })), []);
});

test('the working disk warns at 85% and alarms at 95%', () => {
  const level = (used: number): string =>
    diskFact({
      ...{ path: '/work', source: 'the disk', limit: 100, used, reserved: 0, free: 100 - used },
      here: true
    }).level;
  assert.deepEqual([84, 85, 94, 95].map(level), ['ok', 'warn', 'warn', 'full']);
});

test('long successes and all failures of this server are told, unless the user wants others', () => {
  const done = job({ state: 'DONE', seconds: 30 });
  assert.equal(toldAs(done, DEFAULTS), 'success');
  assert.equal(toldAs({ ...done, seconds: 29 }, DEFAULTS), null);
  assert.equal(toldAs({ ...done, seconds: 29 }, { ...DEFAULTS, notifyAfter: 5 }), 'success');
  assert.equal(toldAs({ ...done, here: false }, DEFAULTS), null);
  assert.equal(toldAs({ ...done, here: false }, { ...DEFAULTS, notifyJobs: 'all' }), 'success');
  assert.equal(toldAs(done, { ...DEFAULTS, notifyJobs: 'none' }), null);
  for (const state of ['FAILED', 'INTERRUPTED']) {
    assert.equal(toldAs(job({ state }), DEFAULTS), 'failure');
    assert.equal(toldAs(job({ state }), { ...DEFAULTS, notifyFailures: false }), null);
  }
  assert.equal(toldAs(job({ state: 'CANCELLED', seconds: 100 }), DEFAULTS), null);
});

test('a sparkline goes in steps, and ends at the right', () => {
  const points = corners([
    { at: 0, rate: 1 },
    { at: 30, rate: 2 },
    { at: 60, rate: 0 }
  ]);
  assert.deepEqual(points, [
    [0, 8],
    [30, 8],
    [30, 1],
    [60, 1],
    [60, 15]
  ]);
  assert.deepEqual(corners([{ at: 0, rate: 0 }]), []);
  assert.deepEqual(corners([]), []);
});
