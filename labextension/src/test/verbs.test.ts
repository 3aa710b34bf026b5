import assert from 'node:assert/strict';
import test from 'node:test';

import { isCut, isTooLarge, planned } from '../moves.js';
import { parseResult } from '../results.js';
import {
  isComplete,
  operationOf,
  patternOf,
  patterns,
  suggested,
  unpackedName,
  whyNotSeveral
} from '../verbs.js';

const NOTHING = { target: '', only: '', without: '', verify: 'auto', through: '' };

test('a dialog makes the operation of its fields, and leaves out what is as usual', () => {
  assert.deepEqual(operationOf('pull', 's3://b/a/', { ...NOTHING, target: ' /w ' }, ''), {
    verb: 'pull',
    source: 's3://b/a/',
    target: '/w'
  });
  const fields = {
    ...NOTHING,
    target: '/w',
    only: '*.jpg  a/** ',
    without: '*.tmp',
    verify: 'md5'
  };
  assert.deepEqual(operationOf('pull', 's3://b/a/', fields, 'lab'), {
    verb: 'pull',
    source: 's3://b/a/',
    target: '/w',
    include: ['*.jpg', 'a/**'],
    exclude: ['*.tmp'],
    verify: 'md5',
    connection: 'lab'
  });
  assert.deepEqual(
    operationOf('untar_volumes', '/w/a.tar', { ...NOTHING, target: '/w/a', only: '*' }, ''),
    {
      verb: 'untar_volumes',
      source: '/w/a.tar',
      target: '/w/a',
      members: ['*']
    }
  );
  assert.deepEqual(operationOf('delete', 's3://b/a/', { ...NOTHING, target: 'x' }, ''), {
    verb: 'delete',
    source: 's3://b/a/',
    yes: true
  });
  assert.deepEqual(operationOf('md5check', '/w', NOTHING, ''), { verb: 'md5check', source: '/w' });
  assert.deepEqual(patterns('   '), []);
});

test('several entries of a folder are taken by patterns that match nothing else', () => {
  const fields = { ...NOTHING, target: '/w', only: 'x', without: '*.tmp' };
  assert.deepEqual(operationOf('pull', 's3://b/a/', fields, '', ['in/', 'a [1].bin']), {
    verb: 'pull',
    source: 's3://b/a/',
    target: '/w',
    include: ['/in', '/a [[]1].bin'],
    exclude: ['*.tmp']
  });
  assert.equal(patternOf('{a,b}*?'), '/[{]a,b[}][*][?]');
  assert.equal(whyNotSeveral('pull', 's3://b/', ['a', 'b/']), '');
  assert.match(whyNotSeveral('pull', 's3://', ['a/', 'b/']), /one bucket/);
  assert.match(whyNotSeveral('untar_volumes', '/w', ['a', 'b']), /one archive/);
  assert.match(whyNotSeveral('pull', 's3://b/', ['a', 'b\\c']), /cannot be written/);
  assert.match(whyNotSeveral('pull', 's3://b/', ['a', '../']), /cannot be written/);
  assert.match(whyNotSeveral('push', '/w', new Array<string>(101).fill('a')), /at most 100/);
  assert.equal(suggested('push', '/w/runs', '', 's3://b/in/', false, true), 's3://b/in/');
});

test('the connection of a target is that of the operation, where the verb has only one store', () => {
  const to = (target: string) => ({ ...NOTHING, target, through: 'other' });
  const { connection, target_connection } = operationOf('push', '/w', to('s3://b/'), '');
  assert.deepEqual([connection, target_connection], ['other', undefined]);
  const copy = operationOf('copy', 's3://a/', to('s3://b/'), 'lab');
  assert.deepEqual([copy.connection, copy.target_connection], ['lab', 'other']);
  const pack = operationOf('pack', '/w', to('s3://b/'), '');
  assert.deepEqual([pack.connection, pack.target_connection], [undefined, 'other']);
  assert.equal(operationOf('pack', '/w', to('/x.zip'), '').target_connection, undefined);
  assert.equal(operationOf('copy', 's3://a/', to('s3://b/'), 'other').target_connection, undefined);
  assert.equal(operationOf('md5check', '/w', to('s3://b/'), '').connection, 'other');
  assert.equal(operationOf('md5check', 's3://a/', to('s3://b/'), 'mine').connection, 'mine');
});

test('what is unpacked or packed gets a name of its own', () => {
  for (const [place, name] of [
    ['s3://b/site.tar.gz', 'site'],
    ['s3://b/site.tar.gz.000', 'site'],
    ['/w/a.b.tgz', 'a.b'],
    ['/w/a.zip', 'a'],
    ['s3://b/volumes/', 'volumes-files'],
    ['s3://b/', 'b-files']
  ] as const) {
    assert.equal(unpackedName(place), name, place);
  }
  assert.equal(suggested('pull', 's3://b/a/', '/w/', null), '/w/a');
  assert.equal(suggested('push', '/w/a', '/w', 's3://b/'), 's3://b/a/');
  assert.equal(suggested('push', '/w/a', '/w', null), '');
  assert.equal(suggested('push', '/w/f.csv', '/w', 's3://b/', true), 's3://b/');
  assert.equal(suggested('pack', 's3://b/a/', '/w', null), '/w/a.tar.gz');
  assert.equal(suggested('copy', 's3://b/a/', '/w', 's3://b/'), '');
  assert.deepEqual(
    [isComplete('pull', ' '), isComplete('md5check', ''), isComplete('delete', '')],
    [false, true, true]
  );
});

const plan = (actions: object, moves: object = {}, more: object = {}) =>
  parseResult({
    state: 'DONE',
    actions,
    moves: { files: 0, bytes: 0, needed: 0, free: null, fits: true, ...moves },
    ...more
  });

test('a plan is said in the words of its verb, and that it has not looked at all', () => {
  assert.deepEqual(planned('delete', plan({ delete: [2, 1500] })), ['2 objects, 1.5 kB']);
  const many = plan({ delete: [10_001, 5] }, {}, { is_cut: true });
  assert.deepEqual(planned('delete', many), ['at least 10,000 objects, 5 B']);
  assert.equal(isCut('delete', many), true);
  assert.equal(isCut('pack', many), false);
  const counted = plan({ delete: [30_000, 5] }, {}, { is_cut: false });
  assert.deepEqual(planned('delete', counted), ['30,000 objects, 5 B']);
  assert.equal(isCut('delete', counted), false);
  assert.deepEqual(
    planned(
      'md5check',
      plan({ check: [3, 9], unverifiable: [1200, 0] }, {}, { notes: ['one\ntwo'] })
    ),
    ['3 files to check, 9 B', '1,200 have no checksum', 'one\\ntwo']
  );
  const volumes = plan(
    { read: [20, 2e9] },
    { files: 0, bytes: 2e9, needed: 9e9, free: 5e9, fits: false },
    { details: { volumes: 20, complete: false } }
  );
  assert.deepEqual(planned('untar_volumes', volumes), [
    '20 volumes, 2.0 GB to read',
    'it does not fit: 9.0 GB needed, 5.0 GB free'
  ]);
  assert.equal(isTooLarge(volumes), true);
  assert.deepEqual(
    planned('pack', plan({ pack: [1, 7], unchanged: [2, 9] }, { files: 1, bytes: 7 })),
    ['1 file to write, of 7 B', '2 are there already, or stay as they are']
  );
  assert.deepEqual(planned('pull', parseResult({ state: 'DONE' })), []);
});
