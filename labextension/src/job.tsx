/** Parts of every job's card: buttons, source and target, and progress. */

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
import { Action, actions, Cache, isFinished, Job } from './model.js';
import { Button, Parts, Place, useAttempt } from './parts.js';
import { amount, pace, state, title, took, why } from './words.js';

/** The actions that the panel offers for jobs and caches. */
export interface Commands {
  act(job: Job, action: Action | 'again'): Promise<void>;
  clearFinished(): Promise<void>;
  /** Asks the user first; true if the cache was cleared. */
  clearCache(cache: Cache): Promise<boolean>;
  open(folder: string): Promise<void>;
  /** Copies the job's command; fails if no line can express it. */
  copy(job: Job): Promise<void>;
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
            key={action === 'resume' ? 'pause' : action} // same key, so that the focus stays
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
        {(job.command || job.whyNoCommand) && (
          <Button
            label={copied ? 'Copied' : 'Copy command'}
            of={name}
            icon={copied ? checkIcon : copyIcon}
            onClick={() =>
              void attempt('Copy command', async () => {
                await commands.copy(job);
                setCopied(true);
              })
            }
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

/** A job's source and target, its progress, and its buttons. */
export function Details({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  const reason = isFinished(job) ? '' : why(job); // always visible for a finished job
  const moved = isFinished(job) ? [...amount(job), took(job)].filter(Boolean) : amount(job);
  return (
    <>
      <Place name={job.target ? 'from' : 'at'} place={job.source} />
      <Place name="to" place={job.target} />
      {!isFinished(job) && <Progress job={job} />}
      <Parts of={moved.length || reason || isFinished(job) ? moved : ['nothing moved yet']} />
      <Parts of={pace(job)} />
      {reason && <div className="nbd-Reason">{reason}</div>}
      <div className="nbd-Foot">
        <span className="nbd-Small nbd-Owner">
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
