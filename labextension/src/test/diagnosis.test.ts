import assert from 'node:assert/strict';
import test from 'node:test';

import { Answer, canChange, installs, parseAnswer, troubleOf, usageOf } from '../diagnosis.js';

const reply = (text: string) => ({ status: 'ok', data: { 'text/plain': text }, metadata: {} });

function kind(state: Answer['state'], cells: string[], version = '0.1.0'): string | null {
  return troubleOf({ state, version }, usageOf(cells), '0.1.0')?.kind ?? null;
}

test('only an answer of the expected form counts', () => {
  assert.deepEqual(parseAnswer(reply("'loaded 0.1.0'")), { state: 'loaded', version: '0.1.0' });
  assert.deepEqual(parseAnswer(reply("'missing '")), { state: 'missing', version: '' });
  for (const odd of [
    reply('loaded 0.1.0'),
    reply("'loaded <img>'"),
    reply("'removed 1'"),
    { status: 'error', ename: 'NameError' },
    null,
    'x'
  ]) {
    assert.equal(parseAnswer(odd), null);
  }
});

test('a notebook that does not use nbdata is left alone', () => {
  for (const state of ['missing', 'installed', 'imported', 'loaded'] as const) {
    assert.equal(kind(state, ['import numpy', '%timeit x'], '0.0.1'), null);
  }
});

test('a new notebook, and one that uses the magics, is told what is missing', () => {
  for (const cells of [[], ['', ' \n'], ['x = 1', '  %pull s3://b/x/ x']]) {
    assert.equal(kind('missing', cells), 'missing');
    assert.equal(kind('installed', cells), 'not loaded');
    assert.equal(kind('loaded', cells), null);
  }
  assert.equal(kind('imported', ['import nbdata', '%pull s3://b/x/ x']), 'not loaded');
});

test('a notebook that loads nbdata itself, or only imports it, is not told to load it', () => {
  assert.equal(kind('installed', ['%load_ext nbdata', '%pull s3://b/x/ x']), null);
  assert.equal(kind('installed', ['import nbdata\nnbdata.pull("s3://b/x/", "x")']), null);
  assert.equal(kind('missing', ['%load_ext nbdata']), 'missing');
});

test('another version than the server has is told, if both are known', () => {
  const usage = usageOf(['import nbdata']);
  const loaded: Answer = { state: 'loaded', version: '0.0.9' };
  assert.equal(troubleOf(loaded, usage, '0.1.0')?.line, '%pip install nbdata==0.1.0');
  assert.equal(troubleOf(loaded, usage, ''), null);
  assert.equal(troubleOf({ ...loaded, version: '' }, usage, '0.1.0'), null);
});

test('code that can install or load nbdata makes an answer old', () => {
  for (const code of ['%load_ext nbdata', '!pip install -r needs.txt', 'x\n%run setup.ipynb']) {
    assert.ok(canChange(code));
  }
  for (const code of ['%pull s3://b/x/ x', 'x = 1', 'run(5)']) {
    assert.ok(!canChange(code));
  }
  assert.ok(installs('%pip install nbdata') && !installs('%load_ext nbdata'));
});
