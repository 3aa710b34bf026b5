/** The section *Loader services*: who feeds which trainers, how fast, and who waits for whom. */

import * as React from 'react';

import { Service } from './seen.js';
import { Parts } from './parts.js';
import { consumerFacts, serviceFacts, servicePercent, whoWaits } from './servicewords.js';
import { printable, trans } from './text.js';

/** The most services that are shown, and the most trainers that are shown without a click. */
const SERVICES = 16;
const TRAINERS = 4;

function Trainers({ service }: { service: Service }): React.JSX.Element {
  const unnamed = service.count - service.consumers.length;
  const list = (
    <ul
      className="nbd-Service-consumers"
      aria-label={trans.__('trainers of %1', printable(service.name))}
    >
      {service.consumers.map((consumer, n) => (
        <li key={n}>
          <Parts of={consumerFacts(consumer)} />
        </li>
      ))}
      {unnamed > 0 && <li className="nbd-Numbers">{trans.__('and %1 more', unnamed)}</li>}
    </ul>
  );
  return service.count > TRAINERS ? (
    <details className="nbd-Fold">
      <summary>{trans.__('Trainers (%1)', service.count.toLocaleString('en'))}</summary>
      {list}
    </details>
  ) : (
    list
  );
}

function Card({ service }: { service: Service }): React.JSX.Element {
  const name = printable(service.name);
  const percent = servicePercent(service);
  const facts = serviceFacts(service);
  return (
    <li className="nbd-Job" data-service={service.name}>
      <div className="nbd-Row">
        <span className="nbd-Path">
          <bdi>{name}</bdi>
        </span>
        {percent !== null && <span className="nbd-Strong">{percent}%</span>}
      </div>
      {percent !== null && (
        <div
          className="nbd-Bar"
          role="meter"
          aria-label={trans.__('epoch of %1', name)}
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={percent}
          aria-valuetext={facts.join(', ')}
        >
          <span className="nbd-Bar-used" style={{ width: `${percent}%` }} />
        </div>
      )}
      <Parts of={facts} />
      <div className="nbd-Service-waits">{whoWaits(service)}</div>
      {service.consumers.length > 0 && <Trainers service={service} />}
    </li>
  );
}

/** Shows all loader services of this user; nothing if none runs. */
export function Services({ services }: { services: Service[] }): React.JSX.Element | null {
  return services.length ? (
    <section className="nbd-Section" aria-label={trans.__('Loader services')}>
      <h2 className="nbd-Heading">{trans.__('Loader services')}</h2>
      <ul className="nbd-List">
        {services.slice(0, SERVICES).map(service => (
          <Card key={service.name} service={service} />
        ))}
      </ul>
      {services.length > SERVICES && (
        <div className="nbd-Numbers">{trans.__('and %1 more', services.length - SERVICES)}</div>
      )}
    </section>
  ) : null;
}
