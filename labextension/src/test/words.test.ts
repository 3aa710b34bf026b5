import assert from 'node:assert/strict';
import test from 'node:test';

import { Job, parseJob } from '../model.js';
import { Cache, parseSeen } from '../seen.js';
import {
  again,
  amount,
  average,
  cacheFacts,
  cacheFolder,
  cacheShare,
  canEdit,
  dayName,
  failure,
  limitLine,
  magic,
  outcome,
  pace,
  rateText,
  state,
  success,
  thing,
  title,
  why
} from '../words.js';

function job(fields: Record<string, unknown>): Job {
  return parseJob({ verb: 'pull', state: 'RUNNING', ...fields });
}

test('an amount leaves out what nobody knows', () => {
  assert.deepEqual(amount(job({})), []);
  assert.deepEqual(amount(job({ bytes: 5000 })), ['5.0 kB']);
  assert.deepEqual(amount(job({ bytes: 5000, bytes_total: 10000, files: 1, files_total: 2 })), [
    '50%',
    '5.0 kB of 10.0 kB',
    '1 of 2 files'
  ]);
});

test('rate and time left are only of a job that runs', () => {
  const fields = { rate: 4e6, eta: 42, retries: 1, failures: 2 };
  assert.deepEqual(pace(job(fields)), ['4.0 MB/s', '42 s left', '1 retry', '2 failed']);
  assert.deepEqual(pace(job({ ...fields, state: 'PAUSED' })), ['1 retry', '2 failed']);
});

test('a stream that nobody reads waits for the loop, and has no time left', () => {
  const stream = job({ rate: 4e6, eta: 13, phase: 'waits for your loop' });
  assert.equal(state(stream), 'Waits for your loop');
  assert.deepEqual(pace(stream), []);
  assert.equal(state(job({ phase: 'comparing' })), 'Running');
});

test('a reason is given where the state does not say it all', () => {
  assert.equal(why(job({ state: 'PAUSED', reason: 'user' })), '');
  assert.equal(why(job({ state: 'PAUSED', reason: 'credentials' })), 'credentials');
  assert.equal(why(job({ state: 'FAILED', error: 'no such bucket' })), 'no such bucket');
  assert.equal(why(job({ state: 'CANCELLED', error: 'pull was cancelled' })), '');
});

test('a title names what moves, and the target if that has another name', () => {
  const pull = job({ source: 's3://b/data/', target: '/w/data/' });
  assert.equal(thing(pull), 'data');
  assert.equal(title(pull), 'pull data');
  assert.equal(thing(job({ source: 's3://b/vols20/', target: '/w/volumes' })), 'vols20 → volumes');
  assert.equal(title(job({ verb: 'md5check', source: '/w/volumes' })), 'md5check volumes');
});

test('a state says what a job waits for', () => {
  assert.equal(
    state(job({ state: 'PAUSED', reason: 'no space: it needs 1.2 GB' })),
    'Waits for space'
  );
  assert.equal(state(job({ state: 'PAUSED', reason: 'user' })), 'Paused');
  assert.equal(why(job({ state: 'PAUSED', reason: 'interrupt' })), 'by an interrupt of its cell');
});

test('a success is told with its amount, and with what was verified', () => {
  const done = {
    state: 'DONE',
    source: 's3://b/vols20',
    target: '/w/vols20',
    bytes: 80.3e6,
    files: 20
  };
  assert.equal(
    success(job({ ...done, verified: 20 })),
    'Pulled vols20: 80.3 MB, 20 files verified'
  );
  assert.equal(
    success(job({ ...done, verified: 5, unverified: 3 })),
    'Pulled vols20: 80.3 MB, 20 files, 5 of 8 verified'
  );
  assert.equal(
    success(job({ ...done, unverified: 8 })),
    'Pulled vols20: 80.3 MB, 20 files, not verified'
  );
  assert.equal(
    success(job({ ...done, verb: 'probe', bytes: 0, files: 1 })),
    'probe vols20 has ended: 1 file'
  );
});

test('a failure is told with its reason', () => {
  const fields = { source: 's3://b/x', error: 'no such bucket' };
  assert.equal(failure(job({ ...fields, state: 'FAILED' })), 'pull x failed: no such bucket');
  assert.equal(
    failure(job({ ...fields, state: 'INTERRUPTED', error: '' })),
    'pull x was interrupted'
  );
  const conflicts = { ...fields, state: 'FAILED', error: 'pull: 2 of 3 are conflicts' };
  assert.equal(failure(job(conflicts)), 'pull x failed: 2 of 3 are conflicts');
});

test('an average rate is of what moved, and of a job that succeeded', () => {
  const done = { state: 'DONE', bytes: 30e6, present: 10e6, seconds: 10 };
  assert.equal(average(job(done)), '2.0 MB/s');
  assert.equal(average(job({ ...done, present: 30e6 })), '');
  assert.equal(average(job({ ...done, state: 'FAILED' })), '');
});

test('days have names', () => {
  const now = new Date(2026, 10, 27, 12).getTime();
  const midnight = (day: number): number => new Date(2026, 10, day).getTime();
  assert.equal(dayName(midnight(27), now), 'Today');
  assert.equal(dayName(midnight(26), now), 'Yesterday');
  assert.match(dayName(midnight(24), now), /24/);
});

test('the line is said as a magic', () => {
  assert.equal(magic(job({ command: 'pull s3://b/x /w/x' })), '%pull s3://b/x /w/x');
  assert.throws(() => magic(job({ why_no_command: 'a name has a line break' })), /line break/);
});

function cache(fields: Record<string, unknown>): Cache {
  const [found] = parseSeen({ caches: [fields] }).caches;
  assert.ok(found);
  return found;
}

test('a cache says how full it is, how often it was of use, and whether it is in use', () => {
  const known = cache({
    path: '/scratch/.nbdata/kept-0123456789abcdef',
    used: 5e9,
    limit: 10e9,
    hit_rate: 0.999,
    consumers: 2,
    in_use: true
  });
  assert.equal(cacheFolder(known), '/scratch');
  assert.equal(cacheShare(known), 50);
  assert.deepEqual(cacheFacts(known), ['5.0 GB of 10.0 GB', '99% hits', 'used by 2']);
  const lost = cache({ path: '/x/.nbdata/kept-01', used: 5000 });
  assert.equal(cacheShare(lost), null);
  assert.deepEqual(cacheFacts(lost), ['5.0 kB', 'not in use']);
});

test('what became of a job, and how to go on with it', () => {
  const done = job({ state: 'DONE', bytes: 3600000, files: 14, seconds: 1.1 });
  assert.deepEqual(outcome(done), ['3.6 MB', '14 files', '1.1 s']);
  const interrupted = { state: 'INTERRUPTED', bytes: 44.4e6, bytes_total: 90e6, seconds: 21 };
  assert.deepEqual(outcome(job(interrupted)), ['49%', '44.4 MB', '21 s']);
  assert.deepEqual(outcome(job({ state: 'INTERRUPTED' })), []);
  assert.deepEqual(outcome(job({ state: 'FAILED', seconds: 0.04 })), []);
  const partly = { state: 'FAILED', bytes: 2e6, bytes_total: 2e6, files: 1, failures: 2 };
  assert.deepEqual(outcome(job(partly)), ['2 failed', '2.0 MB', '1 file']);
  assert.equal(again(done), '');
  assert.equal(again({ ...done, state: 'RUNNING' }), '');
  assert.equal(again({ ...done, state: 'FAILED' }), 'Retry');
  assert.equal(again({ ...done, state: 'CANCELLED' }), 'Resume');
  assert.equal(again({ ...done, state: 'INTERRUPTED' }), 'Resume');
  assert.equal(again({ ...done, state: 'CANCELLED', verb: 'md5check' }), 'Retry');
  assert.equal(again({ ...done, state: 'CANCELLED', verb: 'cache_stream' }), '');
});

test('a limit is said as it was typed, and its line takes it without spaces', () => {
  const limited = parseJob({ key: 'a', id: '3f2a91', state: 'RUNNING', max_rate: 20_000_000 });
  assert.ok(pace(limited).includes('limited to 20.0 MB/s'));
  assert.ok(!pace({ ...limited, state: 'DONE' }).some(fact => fact.startsWith('limited')));
  assert.deepEqual([null, 20e6, 1_500_000, 1234].map(rateText), [
    '',
    '20MB/s',
    '1500kB/s',
    '1234B/s'
  ]);
  assert.equal(limitLine(limited, ' 5 MB/s '), '%transfers 3f2a91 --max-rate 5MB/s');
  assert.equal(limitLine(limited, ' '), '%transfers 3f2a91 --max-rate 0');
  assert.ok(!limitLine(limited, '5\u202e').includes('\u202e'));
});

test('what did not succeed and has a line can be edited', () => {
  const line = { key: 'a', command: 'pull s3://b/x/ x' };
  for (const state of ['FAILED', 'CANCELLED', 'INTERRUPTED']) {
    assert.ok(canEdit(parseJob({ ...line, state })));
    assert.ok(!canEdit(parseJob({ ...line, state, command: '' })));
  }
  for (const state of ['DONE', 'RUNNING', 'PAUSED']) {
    assert.ok(!canEdit(parseJob({ ...line, state })));
  }
});
