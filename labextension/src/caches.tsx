/** The section *Caches*: caches of samples on the disks, each with a button that clears it. */

import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Cache } from './seen.js';
import { Button, Parts, Place, Problem, useAttempt } from './parts.js';
import { printable, trans } from './text.js';
import { cacheFacts, cacheFolder, cacheShare } from './words.js';

function Card(props: { cache: Cache; clear: (cache: Cache) => Promise<void> }): React.JSX.Element {
  const { cache, clear } = props;
  const { busy, problem, attempt } = useAttempt();
  const folder = cacheFolder(cache);
  const facts = cacheFacts(cache);
  const full = cacheShare(cache);
  return (
    <li className="nbd-Job" data-cache={cache.path}>
      <div className="nbd-Row">
        <span className="nbd-Path" title={printable(cache.path)}>
          <bdi>{folder}</bdi>
        </span>
        {full !== null && <span className="nbd-Strong">{full}%</span>}
      </div>
      <Place name={trans.__('of')} place={cache.source} />
      <div
        className="nbd-Bar"
        role="meter"
        aria-label={trans.__('cache in %1 of %2', folder, cache.source)}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={full ?? 0}
        aria-valuetext={facts.join(', ')}
      >
        <span className="nbd-Bar-used" style={{ width: `${full ?? 0}%` }} />
      </div>
      <div className="nbd-Foot">
        <Parts of={facts} />
        <div className="nbd-Buttons">
          <Button
            label={trans.__('Clear')}
            of={trans.__('cache of %1', cache.source)}
            icon={closeIcon}
            disabled={busy}
            onClick={() => void attempt(trans.__('Clear'), () => clear(cache))}
          />
        </div>
      </div>
      <Problem text={problem} />
    </li>
  );
}

/** Shows all caches; nothing if there are none. */
export function Caches(props: {
  caches: Cache[];
  clear: (cache: Cache) => Promise<void>;
}): React.JSX.Element | null {
  const { caches, clear } = props;
  return caches.length ? (
    <section className="nbd-Section" aria-label={trans.__('Caches')}>
      <h2 className="nbd-Heading">{trans.__('Caches')}</h2>
      <ul className="nbd-List">
        {caches.map(cache => (
          <Card key={cache.path} cache={cache} clear={clear} />
        ))}
      </ul>
    </section>
  ) : null;
}
