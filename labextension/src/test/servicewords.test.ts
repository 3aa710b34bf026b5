import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseSeen, Service } from '../seen.js';
import { consumerFacts, serviceFacts, servicePercent, whoWaits } from '../servicewords.js';

function service(fields: Record<string, unknown>): Service {
  const told = { name: 'samples', mode: 'share', needed: 1, count: 1, ...fields };
  const [parsed] = parseSeen({ services: [told] }).services;
  assert.ok(parsed);
  return parsed;
}

test('a service tells how far and how fast it is', () => {
  const told = service({ epoch: 3, used: 1041, of: 2000, rate: 12.44, byte_rate: 310e6, age: 302 });
  assert.equal(servicePercent(told), 52);
  assert.deepEqual(serviceFacts(told), [
    'epoch 3',
    '1,041 of 2,000 batches',
    '12.4 batches/s',
    '310.0 MB/s',
    'for 5 min 2 s'
  ]);
  const endless = service({ used: 1, of: -1, mode: 'broadcast', age: 3 });
  assert.equal(servicePercent(endless), null);
  assert.deepEqual(serviceFacts(endless), [
    'epoch 0',
    '1 batch',
    '0.0 batches/s',
    '0 B/s',
    'each to all',
    'for 3.0 s'
  ]);
});

test('who waits for whom is one sentence', () => {
  assert.equal(whoWaits(service({ count: 0, needed: 2 })), 'It waits for 2 trainers');
  assert.equal(whoWaits(service({ count: 1, needed: 2 })), 'It waits for 1 trainer');
  assert.equal(whoWaits(service({ rate: 0 })), 'Nothing moves');
  assert.equal(whoWaits(service({ rate: 3 })), 'Nobody waits');
  assert.equal(
    whoWaits(service({ rate: 3, waits: 0.8 })),
    'The loader waits for the trainers 80% of the time'
  );
  const consumers = [
    { name: 'a:1', used: 3, waits: 0.2 },
    { name: 'a:2', used: 1, waits: 0.62 }
  ];
  const hungry = service({ rate: 3, waits: 0.1, count: 2, consumers });
  assert.equal(whoWaits(hungry), 'Trainers wait for the loader 62% of the time');
  assert.deepEqual(hungry.consumers.map(consumerFacts), [
    ['a:1', '3 batches', 'waits 20%'],
    ['a:2', '1 batch', 'waits 62%']
  ]);
});
