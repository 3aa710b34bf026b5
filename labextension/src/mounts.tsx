/** The section *Mounts*: folders of stores that are mounted, each with a button that ends it. */

import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { duration } from './format.js';
import { Mount } from './seen.js';
import { Button, Parts, Place, Problem, useAttempt } from './parts.js';
import { printable, trans } from './text.js';

function Card(props: { mount: Mount; end: (mount: Mount) => Promise<void> }): React.JSX.Element {
  const { mount, end } = props;
  const { busy, problem, attempt } = useAttempt();
  const state = mount.alive
    ? trans.__('for %1', duration(mount.age))
    : trans.__('its process was killed');
  return (
    <li className="nbd-Job" data-mount={mount.path}>
      <div className="nbd-Row">
        <span className="nbd-Path" title={printable(mount.path)}>
          <bdi>{printable(mount.path)}</bdi>
        </span>
      </div>
      <Place name={trans.__('of')} place={mount.source} />
      <div className="nbd-Foot">
        <Parts of={[trans.__('read only'), state]} />
        <div className="nbd-Buttons">
          <Button
            label={trans.__('Unmount')}
            of={mount.source}
            icon={closeIcon}
            disabled={busy}
            onClick={() => void attempt(trans.__('Unmount'), () => end(mount))}
          />
        </div>
      </div>
      <Problem text={problem} />
    </li>
  );
}

/** Shows all mounts; nothing if there are none. */
export function Mounts(props: {
  mounts: Mount[];
  end: (mount: Mount) => Promise<void>;
}): React.JSX.Element | null {
  const { mounts, end } = props;
  return mounts.length ? (
    <section className="nbd-Section" aria-label={trans.__('Mounts')}>
      <h2 className="nbd-Heading">{trans.__('Mounts')}</h2>
      <ul className="nbd-List">
        {mounts.map(mount => (
          <Card key={mount.path} mount={mount} end={end} />
        ))}
      </ul>
    </section>
  ) : null;
}
