/** What the button ⋯ of an unfinished job opens within its card: further actions, or the limit of its rate. */

import { closeIcon, copyIcon, folderIcon, LabIcon, notebookIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { limitIcon } from './icons.js';
import { Commands } from './job.js';
import { canLimit, Job } from './model.js';
import { Button, CellLine, Problem, useAttempt } from './parts.js';
import { trans } from './text.js';
import { limitLine, rateText, title } from './words.js';

/** The most characters of a rate that can be typed. */
const LONGEST = 20;

function Item(props: { label: string; icon: LabIcon; onClick: () => void }): React.JSX.Element {
  return (
    <button type="button" className="nbd-Item" onClick={props.onClick}>
      <props.icon.react tag="span" className="nbd-Icon" aria-hidden="true" />
      {props.label}
    </button>
  );
}

/** The field for a rate, and the line that does the same. */
function Limit(props: { job: Job; commands: Commands; close: () => void }): React.JSX.Element {
  const { job, commands, close } = props;
  const { busy, problem, attempt } = useAttempt();
  const [rate, setRate] = React.useState(rateText(job.maxRate));
  const [tried, setTried] = React.useState(rate);
  const field = React.useRef<HTMLInputElement>(null);
  const line = limitLine(job, rate);
  const limit = trans.__('Limit rate');
  React.useEffect(() => field.current?.select(), []);
  return (
    <form
      className="nbd-Limit"
      aria-label={`${limit}: ${title(job)}`}
      onSubmit={event => {
        event.preventDefault();
        if (!busy) {
          setTried(rate);
          void attempt(limit, async () => {
            if (await commands.limit(job, rate)) {
              close();
            }
          });
        }
      }}
    >
      <div className="nbd-Row nbd-Ask">
        <label className="nbd-Field">
          {trans.__('At most')}
          <input
            ref={field}
            value={rate}
            maxLength={LONGEST}
            placeholder={trans.__('no limit')}
            spellCheck={false}
            onChange={event => setRate(event.currentTarget.value)}
          />
        </label>
        <button type="submit" className="nbd-Button nbd-mod-text nbd-Act" aria-disabled={busy}>
          {trans.__('Limit')}
        </button>
        <Button label={trans.__('Close')} of={limit} icon={closeIcon} onClick={close} />
      </div>
      <div className="nbd-Small">{trans.__('Such as 20MB/s; empty lifts the limit.')}</div>
      <CellLine line={line} insert={text => commands.insert(text)} />
      <Problem text={rate === tried ? problem : ''} />
    </form>
  );
}

/** The actions below the button ⋯; `close` also returns the focus to it. */
export function More(props: {
  job: Job;
  commands: Commands;
  attempt: (what: string, work: () => Promise<void>) => Promise<void>;
  close: () => void;
}): React.JSX.Element {
  const { job, commands, attempt, close } = props;
  const [isLimiting, setLimiting] = React.useState(false);
  const list = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => list.current?.querySelector('button')?.focus(), []);
  const act = (what: string, work: () => Promise<void>): void => {
    close();
    void attempt(what, work);
  };
  const { folder, notebook } = job;
  const [open, copy, go] = [
    trans.__('Open folder'),
    trans.__('Copy command'),
    trans.__('Go to its notebook')
  ];
  return (
    <div
      className="nbd-More-of"
      onKeyDown={event => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          close();
        }
      }}
    >
      {isLimiting ? (
        <Limit job={job} commands={commands} close={close} />
      ) : (
        <div ref={list} role="group" aria-label={trans.__('More: %1', title(job))}>
          {canLimit(job) && (
            <Item
              label={trans.__('Limit rate…')}
              icon={limitIcon}
              onClick={() => setLimiting(true)}
            />
          )}
          {folder !== null && (
            <Item
              label={open}
              icon={folderIcon}
              onClick={() => act(open, () => commands.open(folder))}
            />
          )}
          {(job.command || job.whyNoCommand) && (
            <Item
              label={copy}
              icon={copyIcon}
              onClick={() => act(copy, () => commands.copy(job))}
            />
          )}
          {notebook !== null && (
            <Item
              label={go}
              icon={notebookIcon}
              onClick={() => act(go, () => commands.goTo(notebook))}
            />
          )}
        </div>
      )}
    </div>
  );
}
