import assert from 'node:assert/strict';
import test from 'node:test';

import { parseLook } from '../looks.js';
import { printableLines } from '../text.js';

test('a look is what the server says, and only pixels are a picture', () => {
  assert.deepEqual(parseLook({ kind: 'text', size: 3, text: 'abc', is_cut: true }), {
    kind: 'text',
    size: 3,
    isCut: true,
    text: 'abc'
  });
  assert.deepEqual(parseLook({ kind: 'table', size: null, rows: [['a', 5], 'b'] }), {
    kind: 'table',
    size: null,
    isCut: false,
    rows: [['a', ''], []]
  });
  assert.deepEqual(parseLook({ kind: 'picture', size: 2, media: 'image/png', data: 'AP8=' }), {
    kind: 'picture',
    size: 2,
    media: 'image/png',
    data: new Uint8Array([0, 255])
  });
  for (const media of ['image/svg+xml', 'text/html', 'application/pdf', '']) {
    assert.equal(parseLook({ kind: 'picture', media, data: '' }).kind, 'nothing');
  }
  assert.deepEqual(parseLook({ kind: 'archive' }), { kind: 'archive', size: null });
  for (const odd of [null, 'text', [], { kind: 'page', text: '<b>' }]) {
    assert.equal(parseLook(odd).kind, 'nothing');
  }
});

test('of a text the lines stay, and hidden characters are escaped', () => {
  assert.equal(printableLines('a\n\tb\u202ec\x1b[31m'), 'a\n\tb\\u202ec\\x1b[31m');
});
