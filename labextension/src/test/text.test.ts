import assert from 'node:assert/strict';
import test from 'node:test';

import { beginning, printable, shortened, trans, translateWith } from '../text.js';

test('hidden characters are escaped as Python does', () => {
  assert.equal(printable('a\u001bb\tc\nd'), 'a\\x1bb\\tc\\nd');
  assert.equal(printable('\u202e\u200b\u2028\u2066\ufeff'), '\\u202e\\u200b\\u2028\\u2066\\ufeff');
  assert.equal(printable('\ud800x'), '\\ud800x');
  assert.equal(printable('\u{e0041}'), '\\U000e0041');
});

test('letters of all scripts and pictures stay', () => {
  for (const text of ['données', '数据', 'بيانات', '❤️', 'naïve']) {
    assert.equal(printable(text), text);
  }
});

test('a long text keeps its beginning and its end', () => {
  assert.equal(shortened('abcdefghij', 10), 'abcdefghij');
  assert.equal(shortened('abcdefghijk', 7), 'abc…ijk');
  assert.equal(shortened('😀'.repeat(9), 5), '😀😀…😀😀');
});

test('the beginning of a long text ends with a whole word, unless that is most of it', () => {
  assert.equal(beginning('one two three', 13), 'one two three');
  assert.equal(beginning('one two three', 11), 'one two…');
  assert.equal(beginning('😀'.repeat(9), 5), '😀😀😀😀…');
});

test('texts are translated, and English before that', () => {
  assert.equal(trans.__('%1 of %2', 'a', 'b'), 'a of b');
  assert.equal(trans._n('%1 file', '%1 files', 1), '1 file');
  assert.equal(trans._n('%1 file', '%1 files', 2), '2 files');
  const english = { __: trans.__, _n: trans._n };
  translateWith({ __: (text: string) => `<${text}>`, _n: (one: string) => `<${one}>` });
  assert.equal(trans.__('Done'), '<Done>');
  assert.notEqual(english.__, undefined);
});
