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

test('only what browsers play has a player, by a ticket that is no path', () => {
  const ticket = 'a'.repeat(32);
  assert.deepEqual(parseLook({ kind: 'media', size: 5, media: 'video/webm', ticket }), {
    kind: 'media',
    size: 5,
    media: 'video/webm',
    ticket
  });
  for (const media of ['text/html', 'image/svg+xml', 'video/webm; x', '']) {
    assert.equal(parseLook({ kind: 'media', media, ticket }).kind, 'nothing');
  }
  for (const odd of ['../../../x', `${ticket}?a`, '', 5]) {
    assert.equal(parseLook({ kind: 'media', media: 'audio/wav', ticket: odd }).kind, 'nothing');
  }
});

test('of samples only pixels are pictures', () => {
  const samples = [
    { number: 0, size: 2, media: 'image/png', data: 'AP8=' },
    { number: 1, size: 9, media: 'image/svg+xml', data: 'AP8=', text: 'a' }
  ];
  const look = parseLook({ kind: 'samples', size: 30, count: 7, samples });
  assert.ok(look.kind === 'samples');
  assert.equal(look.count, 7);
  const [first, second] = look.samples;
  assert.deepEqual([first?.media, first?.data], ['image/png', new Uint8Array([0, 255])]);
  assert.deepEqual([second?.media, second?.data.length, second?.text], ['', 0, 'a']);
});

test('of a text the lines stay, and hidden characters are escaped', () => {
  assert.equal(printableLines('a\n\tb\u202ec\x1b[31m'), 'a\n\tb\\u202ec\\x1b[31m');
});
