/** Words about loader services and their trainers. */

import { duration, percent, size } from './format.js';
import { Consumer, Service } from './seen.js';
import { printable, trans } from './text.js';

/** A share of the time below this is not worth a word. */
const LITTLE = 0.1;

/** The used share of the epoch in percent, or null if its length is not known. */
export function servicePercent(service: Service): number | null {
  return service.of > 0 ? percent(Math.min(service.used, service.of), service.of) : null;
}

/** Facts about a service: `epoch 3`, `41 of 200 batches`, `12.4 batches/s`, `310.0 MB/s`, `each to all`, `for 5 min 2 s`. */
export function serviceFacts(service: Service): string[] {
  const count = (value: number): string => value.toLocaleString('en');
  return [
    trans.__('epoch %1', service.epoch),
    service.of > 0
      ? trans.__('%1 of %2 batches', count(service.used), count(service.of))
      : trans._n('%2 batch', '%2 batches', service.used, count(service.used)),
    trans.__('%1 batches/s', service.rate.toFixed(1)),
    `${size(service.byteRate)}/s`,
    service.mode === 'broadcast' ? trans.__('each to all') : '',
    trans.__('for %1', duration(service.age))
  ].filter(Boolean);
}

/** Who waits for whom, in one sentence. */
export function whoWaits(service: Service): string {
  const share = (value: number): string => `${Math.round(100 * value)}%`;
  const missing = service.needed - service.count;
  if (missing > 0) {
    return trans._n('It waits for %1 trainer', 'It waits for %1 trainers', missing);
  }
  const hungry = Math.max(0, ...service.consumers.map(consumer => consumer.waits));
  if (hungry < LITTLE && service.waits < LITTLE) {
    return service.rate > 0 ? trans.__('Nobody waits') : trans.__('Nothing moves');
  }
  return hungry > service.waits
    ? trans.__('Trainers wait for the loader %1 of the time', share(hungry))
    : trans.__('The loader waits for the trainers %1 of the time', share(service.waits));
}

/** Facts about a trainer: `host:4711`, `120 batches`, `waits 62%`. */
export function consumerFacts(consumer: Consumer): string[] {
  return [
    printable(consumer.name),
    trans._n('%2 batch', '%2 batches', consumer.used, consumer.used.toLocaleString('en')),
    consumer.waits < LITTLE ? '' : trans.__('waits %1', `${Math.round(100 * consumer.waits)}%`)
  ].filter(Boolean);
}
