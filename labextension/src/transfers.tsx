/** The part *Transfers*: what runs, with its buttons, and what is over. */

import {
  checkIcon,
  closeIcon,
  copyIcon,
  folderIcon,
  LabIcon,
  runIcon
} from '@jupyterlab/ui-components';
import * as React from 'react';

import { percent } from './format.js';
import { pauseIcon } from './icons.js';
import { Action, actions, Cache, isFinished, Job, Model, sections } from './model.js';
import { Button, Parts, Place, useAttempt } from './parts.js';
import { amount, magic, pace, state, title, why } from './words.js';

const FIRST_SHOWN = 10;
const MORE = 25;

/** What the panel can do with a job or a cache. */
export interface Commands {
  act(job: Job, action: Action): Promise<void>;
  open(folder: string): Promise<void>;
  /** Asks first; whether it was cleared. */
  clear(cache: Cache): Promise<boolean>;
  copy(text: string): void;
}

const BUTTONS: Record<Action, { label: string; icon: LabIcon }> = {
  pause: { label: 'Pause', icon: pauseIcon },
  resume: { label: 'Resume', icon: runIcon },
  cancel: { label: 'Cancel', icon: closeIcon }
};

function Buttons({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  const { busy, problem, attempt } = useAttempt();
  const [copied, setCopied] = React.useState(false);
  React.useEffect(() => {
    const timer = copied ? window.setTimeout(() => setCopied(false), 2000) : 0;
    return () => window.clearTimeout(timer);
  }, [copied]);
  const { folder } = job;
  const name = title(job);
  return (
    <>
      <div className="nbd-Buttons">
        {actions(job).map(action => (
          <Button
            key={action === 'resume' ? 'pause' : action} // one place, so that the focus stays
            {...BUTTONS[action]}
            of={name}
            disabled={busy}
            onClick={() => void attempt(BUTTONS[action].label, () => commands.act(job, action))}
          />
        ))}
        {folder !== null && (
          <Button
            label="Open folder"
            of={name}
            icon={folderIcon}
            onClick={() => void attempt('Open folder', () => commands.open(folder))}
          />
        )}
        {job.command && (
          <Button
            label={copied ? 'Copied' : 'Copy line'}
            of={name}
            icon={copied ? checkIcon : copyIcon}
            onClick={() => {
              commands.copy(magic(job));
              setCopied(true);
            }}
          />
        )}
      </div>
      {problem && (
        <div className="nbd-Problem" role="alert">
          {problem}
        </div>
      )}
    </>
  );
}

function Details({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  const reason = why(job);
  const moved = amount(job);
  return (
    <>
      <Place name={job.target ? 'from' : 'at'} place={job.source} />
      <Place name="to" place={job.target} />
      {!isFinished(job) && <Progress job={job} />}
      <Parts of={moved.length || reason ? moved : ['nothing moved yet']} />
      <Parts of={pace(job)} />
      {reason && <div className="nbd-Reason">{reason}</div>}
      <div className="nbd-Foot">
        <span className="nbd-Small">
          {job.id}
          {job.owner && ` · ${job.owner}`}
        </span>
        <Buttons job={job} commands={commands} />
      </div>
    </>
  );
}

function Progress({ job }: { job: Job }): React.JSX.Element {
  const done = percent(job.bytes, job.bytesTotal);
  return (
    <div
      className={`nbd-Bar nbd-Progress${done === null ? ' nbd-mod-unknown' : ''}`}
      role="progressbar"
      aria-label={title(job)}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={done ?? undefined}
      aria-valuetext={[state(job), ...amount(job)].join(', ')}
    >
      <span className="nbd-Bar-used" style={{ width: `${done ?? 0}%` }} />
    </div>
  );
}

function Running({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  return (
    <li className={`nbd-Job nbd-mod-${job.state.toLowerCase()}`} data-job={job.id}>
      <div className="nbd-Row">
        <span className="nbd-Strong">{job.verb}</span>
        <span className="nbd-State">{state(job)}</span>
      </div>
      <Details job={job} commands={commands} />
    </li>
  );
}

function Finished({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  const ended = new Date(1000 * (job.created + job.seconds));
  return (
    <li className={`nbd-Job nbd-mod-${job.state.toLowerCase()}`} data-job={job.id}>
      <details className="nbd-Fold">
        <summary>
          <span className="nbd-Summary">
            <span className="nbd-Title" title={title(job)}>
              {title(job)}
            </span>
            <span className="nbd-State">{state(job)}</span>
            <time
              className="nbd-Small"
              dateTime={ended.toISOString()}
              title={ended.toLocaleString()}
            >
              {ended.toLocaleTimeString([], {
                hour: '2-digit',
                minute: '2-digit',
                hourCycle: 'h23'
              })}
            </time>
          </span>
        </summary>
        <Details job={job} commands={commands} />
      </details>
    </li>
  );
}

/** All jobs: the unfinished ones first, then the newest of the finished ones. */
export function Transfers(props: {
  model: Model;
  commands: Commands;
  retry: () => void;
}): React.JSX.Element {
  const { model, commands } = props;
  const [shown, setShown] = React.useState(FIRST_SHOWN);
  const { running, finished } = sections(model);
  const rest = finished.length - shown;
  return (
    <section className="nbd-Section" aria-label="Transfers">
      <h2 className="nbd-Heading">Transfers</h2>
      {model.link === 'lost' && (
        <p className="nbd-Notice" role="status">
          The Jupyter server cannot be reached
          {model.jobs.size ? '; this is what was known last' : ''}. It is tried again.{' '}
          <button type="button" className="nbd-Link" onClick={props.retry}>
            Try now
          </button>
        </p>
      )}
      {model.problem && (
        <p className="nbd-Notice" role="status">
          {model.problem}
        </p>
      )}
      {model.link === 'connecting' && <p className="nbd-Empty">Looking…</p>}
      {model.link === 'live' && !model.jobs.size && (
        <p className="nbd-Empty">
          No transfers yet. Start one in a notebook, for example{' '}
          <code>%pull s3://bucket/data/ data</code>
        </p>
      )}
      {running.length > 0 && (
        <ul className="nbd-List" aria-label="Running">
          {running.map(job => (
            <Running key={job.key} job={job} commands={commands} />
          ))}
        </ul>
      )}
      {finished.length > 0 && (
        <>
          <h3 className="nbd-Subheading">Finished</h3>
          <ul className="nbd-List" aria-label="Finished">
            {finished.slice(0, shown).map(job => (
              <Finished key={job.key} job={job} commands={commands} />
            ))}
          </ul>
          {rest > 0 && (
            <button
              type="button"
              className="nbd-Link nbd-More"
              onClick={() => setShown(shown + MORE)}
            >
              {rest > MORE ? `Show ${MORE} of ${rest} more` : `Show ${rest} more`}
            </button>
          )}
        </>
      )}
    </section>
  );
}
