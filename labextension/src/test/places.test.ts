import assert from 'node:assert/strict';
import test from 'node:test';

import { moving } from '../moves.js';
import { above, hasGlob, lastName, pathOn, pullLine, typed } from '../places.js';

test('a typed URL leads to its folder, and to the names that begin as its end', () => {
  assert.deepEqual(typed(' s3://b/a/ '), { place: 's3://b/a/', begin: '' });
  assert.deepEqual(typed('s3://b/a/x.bin'), { place: 's3://b/a/', begin: 'x.bin' });
  assert.deepEqual(typed('s3://b'), { place: 's3://b', begin: '' });
  assert.deepEqual(typed('s3://'), { place: 's3://', begin: '' });
  assert.deepEqual(typed('data'), { place: 'data', begin: '' });
});

test('what is dragged is a line that a cell runs as it is, or else the URL', () => {
  assert.equal(pullLine('s3://b/a/', ''), '%pull s3://b/a/');
  assert.equal(pullLine('s3://b/1 a.bin', 'lab'), "%pull 's3://b/1 a.bin' --option connection=lab");
  assert.equal(pullLine("s3://b/it's", ''), `%pull 's3://b/it'"'"'s'`);
  for (const odd of ['s3://b/{key}', 's3://b/$x', 's3://b/a*', 's3://b/a\nb']) {
    assert.equal(pullLine(odd, ''), odd);
  }
});

test('the folder above a bucket is the account, where there is one', () => {
  assert.equal(above('s3://b/a/c/'), 's3://b/a/');
  assert.equal(above('s3://b/a'), 's3://b/');
  assert.equal(above('s3://b/'), 's3://');
  assert.equal(above('s3://'), null);
  assert.equal(above('gs://b/'), null);
  assert.equal(above('http://host/'), null);
});

test('a name that a line would take for a pattern is known', () => {
  const patterns = ['s3://b/a*', 's3://b/[a]/x', 's3://b/a?', 's3://b/{1..3}', 's3://b/{a,b}'];
  assert.deepEqual(
    patterns.filter(url => !hasGlob(url)),
    []
  );
  assert.deepEqual(['s3://b/a]', 's3://b/{a}', 's3://b/a,b'].filter(hasGlob), []);
});

test('the target is named as what is pulled', () => {
  assert.equal(lastName('s3://b/a%20b/'), 'a%20b');
  assert.equal(lastName('s3://b/'), 'b');
  assert.equal(lastName('http://host/a%20b.txt'), 'a b.txt');
  assert.equal(lastName('http://host/%ff'), '%ff');
  assert.equal(pathOn('/home/me', 'in/deep', 'a'), '/home/me/in/deep/a');
  assert.equal(pathOn('/home/me/', '', 'a'), '/home/me/a');
  assert.equal(pathOn('/', 'a/', ''), '/a');
});

test('a plan says how much, and when it looked at a part only', () => {
  const moves = { objects: 3, bytes: 3e6, all: 5, needed: 3e6, free: 8e6, fits: true };
  assert.deepEqual(moving(moves, false), [
    '3 objects, 3.0 MB',
    '2 are there already, or stay as they are',
    '5.0 MB free after that'
  ]);
  assert.deepEqual(moving({ ...moves, objects: 10_001, all: 10_001 }, true), [
    'at least 10,000 objects, 3.0 MB',
    'at most 5.0 MB free after that'
  ]);
  assert.deepEqual(moving({ ...moves, all: 3, fits: false, free: 1e6 }, false), [
    '3 objects, 3.0 MB',
    'it does not fit: 3.0 MB needed, 1.0 MB free'
  ]);
});
