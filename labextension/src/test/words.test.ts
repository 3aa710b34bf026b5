import assert from 'node:assert/strict';
import test from 'node:test';

import { Cache, Job, parseJob, parseSeen } from '../model.js';
import {
  again,
  amount,
  cacheFacts,
  cacheFolder,
  cacheShare,
  magic,
  outcome,
  pace,
  state,
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

test('a title names the verb and where the bytes go', () => {
  assert.equal(title(job({ source: 's3://b/x/', target: '/w/data/' })), 'pull data');
  assert.equal(title(job({ verb: 'md5check', source: '/w/volumes' })), 'md5check volumes');
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
  assert.equal(again(done), '');
  assert.equal(again({ ...done, state: 'RUNNING' }), '');
  assert.equal(again({ ...done, state: 'FAILED' }), 'Retry');
  assert.equal(again({ ...done, state: 'CANCELLED' }), 'Resume');
  assert.equal(again({ ...done, state: 'INTERRUPTED' }), 'Resume');
  assert.equal(again({ ...done, state: 'CANCELLED', verb: 'md5check' }), 'Retry');
  assert.equal(again({ ...done, state: 'CANCELLED', verb: 'cache_stream' }), '');
});
