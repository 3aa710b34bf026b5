/** The section *Connections*: ways to stores that were found or kept, and *Connect…*. */

import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Browse } from './browse.js';
import { Connect } from './connect.js';
import { ask } from './connection.js';
import { Kept, Known, parseKnown } from './known.js';
import { Button, Problem, useAttempt } from './parts.js';
import { printable, trans } from './text.js';
import { Act, Tray } from './trays.js';

/** The most folders of recent jobs that are listed. */
const MOST_RECENT = 8;

/** A connection that is kept. */
function One(props: {
  one: Kept;
  browse: () => void;
  remove: () => Promise<void>;
}): React.JSX.Element {
  const { one, browse, remove } = props;
  const { busy, problem, attempt } = useAttempt();
  const [isSure, setSure] = React.useState(false);
  const label = trans.__('Remove');
  return (
    <li className="nbd-Connection">
      <div className="nbd-Row">
        <span className="nbd-Grow nbd-Wrapped">{one.name}</span>
        <Act label={trans.__('Browse')} of={one.name} onClick={browse} />
        {isSure ? (
          <Act
            label={trans.__('Remove it')}
            of={one.name}
            warn
            disabled={busy}
            onClick={() => void attempt(label, remove)}
          />
        ) : (
          <Button label={label} of={one.name} icon={closeIcon} onClick={() => setSure(true)} />
        )}
      </div>
      <div className="nbd-Small nbd-Wrapped">
        {[one.place, one.endpoint, one.isPublic ? trans.__('public data') : '']
          .filter(Boolean)
          .join(' · ')}
      </div>
      <Problem text={problem} />
    </li>
  );
}

function Content({ browse }: { browse: Browse }): React.JSX.Element {
  const [known, setKnown] = React.useState<Known | null>(null);
  const [isOpen, open] = React.useState(false);
  const [told, setTold] = React.useState('');
  const { problem, attempt } = useAttempt();
  const button = React.useRef<HTMLDivElement>(null);
  const connect = trans.__('Connect…');
  const load = async (): Promise<void> => setKnown(parseKnown(await ask('connections', 'GET')));
  React.useEffect(() => {
    void attempt(trans.__('Connections'), load);
    // Once, when the section is opened; `attempt` is another function each time.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, []);
  const close = (): void => {
    button.current?.querySelector<HTMLElement>('button')?.focus();
    open(false);
  };
  return (
    <>
      {known && known.kept.length > 0 && (
        <ul className="nbd-List" aria-label={trans.__('Connections that are kept')}>
          {known.kept.map(one => (
            <One
              key={one.name}
              one={one}
              browse={() => browse.reveal(one.place, one.name)}
              remove={async () => {
                await ask('connections/forget', 'POST', { name: one.name });
                setTold(trans.__('%1 is removed.', one.name));
                await load();
              }}
            />
          ))}
        </ul>
      )}
      {known && known.kept.length === 0 && (
        <p className="nbd-Empty">{trans.__('No connection is kept.')}</p>
      )}
      <Problem text={problem} />
      <div className="nbd-Acts" ref={button}>
        <button
          type="button"
          className="nbd-Button nbd-mod-text nbd-Act"
          aria-expanded={isOpen}
          onClick={() => {
            setTold('');
            open(!isOpen);
          }}
        >
          {connect}
        </button>
      </div>
      <div className="nbd-Small" role="status">
        {told}
      </div>
      {isOpen && (
        <Tray name={trans.__('Connect')} of={trans.__('a store')} close={close}>
          <Connect
            kept={name => {
              setTold(
                trans.__(
                  'The store answered. %1 is kept: --option connection=%1 names it in every line.',
                  name
                )
              );
              close();
              void attempt(trans.__('Connections'), load);
            }}
          />
        </Tray>
      )}
      {known && known.recent.length > 0 && (
        <>
          <h3 className="nbd-Subheading">{trans.__('Used last')}</h3>
          <ul className="nbd-List nbd-Starts" aria-label={trans.__('Used last')}>
            {known.recent.slice(0, MOST_RECENT).map(url => (
              <li key={url}>
                <button
                  type="button"
                  className="nbd-Link nbd-Wrapped"
                  onClick={() => browse.reveal(url, '')}
                >
                  {printable(url)}
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      {known && known.found.length > 0 && (
        <p className="nbd-Small nbd-Wrapped">
          {trans.__('Found on this server: %1', known.found.join(', '))}
        </p>
      )}
    </>
  );
}

/** The section. Nothing is asked for before it is opened. */
export const Connections = React.memo(function Connections(props: {
  browse: Browse;
}): React.JSX.Element {
  const [isOpen, open] = React.useState(false);
  return (
    <section className="nbd-Section" aria-label={trans.__('Connections')}>
      <details
        className="nbd-Fold nbd-Stores"
        open={isOpen}
        onToggle={event => open(event.currentTarget.open)}
      >
        <summary>
          <h2 className="nbd-Heading">{trans.__('Connections')}</h2>
        </summary>
        {isOpen && <Content {...props} />}
      </details>
    </section>
  );
});
