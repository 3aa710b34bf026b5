/** Parts of every job's card: its name and state, buttons, source and target, and progress. */

import {
  checkIcon,
  closeIcon,
  copyIcon,
  ellipsesIcon,
  folderIcon,
  LabIcon,
  notebookIcon,
  runIcon
} from '@jupyterlab/ui-components';
import * as React from 'react';

import { percent } from './format.js';
import { failedIcon, hasIcon, pauseIcon, verbIcon, waitsIcon } from './icons.js';
import { Action, actions, isFinished, isMoving, Job, Lack, Speed, waitsForSpace } from './model.js';
import { Cache } from './seen.js';
import { More } from './more.js';
import { Item } from './files.js';
import { Button, Parts, Place, Problem, useAttempt } from './parts.js';
import { Sparkline } from './sparkline.js';
import { shortened, trans } from './text.js';
import {
  amount,
  average,
  button,
  pace,
  state,
  thing,
  title,
  took,
  verified,
  whole,
  why
} from './words.js';

/** The actions that the panel offers for jobs and caches. */
export interface Commands {
  /** Asks the user first, if `questionOf` has a question. */
  act(job: Job, action: Action | 'again'): Promise<void>;
  /** Limits the rate to what `--max-rate` takes, or lifts the limit; asks likewise, and false if the user declines. */
  limit(job: Job, rate: string): Promise<boolean>;
  /** Puts a line into a new cell of the notebook in front; without one, copies it and returns false. */
  insert(line: string): Promise<boolean>;
  /** Opens a notebook, or shows it if it is open. */
  goTo(notebook: string): Promise<void>;
  /** Opens the tray *Free…* of the limit or the disk that had no room. */
  free(lack: Lack): Promise<void>;
  clearFinished(): Promise<void>;
  /** Asks the user first; true if the cache was cleared. */
  clearCache(cache: Cache): Promise<boolean>;
  open(folder: string): Promise<void>;
  copyLine(line: string): Promise<void>;
  /** The folder that Lab's file browser shows, below the server's root; null if there is no such browser. */
  folder(): string | null;
  /** Whether `chooseFolder` can ask for a folder on the disk. */
  canChoose(): boolean;
  /** Asks for a folder below the server's root; null if the user has chosen none. */
  chooseFolder(): Promise<string | null>;
  /** Looks up what was dragged out of Lab's file browser; nothing of it if a part is not on the server's disk. */
  dragged(paths: readonly string[]): Promise<Item[]>;
  /** Opens the settings of the panel; null where there is no editor of settings. */
  openSettings: (() => void) | null;
  /** Copies the job's command; fails if no line can express it. */
  copy(job: Job): Promise<void>;
}

/** The most characters of the name of a notebook or script. */
const OWNER = 60;

const ICONS: Record<Action, LabIcon> = { pause: pauseIcon, resume: runIcon, cancel: closeIcon };

/** What a job moves, after the icon of its verb; with the verb in words if that has no icon of its own. */
export function Title({ job }: { job: Job }): React.JSX.Element {
  const Icon = verbIcon(job.verb);
  return (
    <span className="nbd-Title" title={whole(job)}>
      <span className="nbd-Verb" role="img" aria-label={job.verb}>
        <Icon.react tag="span" className="nbd-Icon" aria-hidden="true" />
      </span>
      {(hasIcon(job.verb) && thing(job)) || title(job)}
    </span>
  );
}

function iconOf(job: Job): LabIcon | null {
  switch (job.state) {
    case 'DONE':
      return checkIcon;
    case 'FAILED':
    case 'INTERRUPTED':
      return failedIcon;
    case 'CANCELLED':
    case 'CANCELLING':
      return closeIcon;
    case 'PAUSED':
      return waitsForSpace(job) ? waitsIcon : pauseIcon;
    case 'QUEUED':
      return waitsIcon;
    default:
      return job.state === 'RUNNING' && !isMoving(job) ? waitsIcon : null;
  }
}

/** A job's state as an icon and a word. */
export function State({ job }: { job: Job }): React.JSX.Element {
  const Icon = iconOf(job);
  return (
    <span className="nbd-State">
      {Icon && <Icon.react tag="span" className="nbd-Icon" aria-hidden="true" />}
      {state(job)}
    </span>
  );
}

/** The buttons of an unfinished job: its actions, and ⋯ for the rest. */
function Active({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  const { busy, problem, attempt } = useAttempt();
  const [isOpen, setOpen] = React.useState(false);
  const buttons = React.useRef<HTMLDivElement>(null);
  const name = title(job);
  return (
    <>
      <div className="nbd-Buttons" ref={buttons}>
        {actions(job).map(action => (
          <Button
            key={action === 'resume' ? 'pause' : action} // same key, so that the focus stays
            label={button(action)}
            icon={ICONS[action]}
            of={name}
            disabled={busy}
            onClick={() => void attempt(button(action), () => commands.act(job, action))}
          />
        ))}
        <Button
          label={trans.__('More')}
          of={name}
          icon={ellipsesIcon}
          expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        />
      </div>
      {isOpen && (
        <More
          job={job}
          commands={commands}
          attempt={attempt}
          close={() => {
            setOpen(false);
            buttons.current?.querySelector<HTMLElement>('[aria-expanded]')?.focus();
          }}
        />
      )}
      <Problem text={problem} />
    </>
  );
}

/** The buttons of a finished job. */
function Past({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  const { problem, attempt } = useAttempt();
  const [copied, setCopied] = React.useState(false);
  React.useEffect(() => {
    const timer = copied ? window.setTimeout(() => setCopied(false), 2000) : 0;
    return () => window.clearTimeout(timer);
  }, [copied]);
  const { folder, notebook } = job;
  const name = title(job);
  const [open, copy, go] = [
    trans.__('Open folder'),
    trans.__('Copy command'),
    trans.__('Go to its notebook')
  ];
  return (
    <>
      <div className="nbd-Buttons">
        {folder !== null && (
          <Button
            label={open}
            of={name}
            icon={folderIcon}
            onClick={() => void attempt(open, () => commands.open(folder))}
          />
        )}
        {notebook !== null && (
          <Button
            label={go}
            of={name}
            icon={notebookIcon}
            onClick={() => void attempt(go, () => commands.goTo(notebook))}
          />
        )}
        {(job.command || job.whyNoCommand) && (
          <Button
            label={copied ? trans.__('Copied') : copy}
            of={name}
            icon={copied ? checkIcon : copyIcon}
            onClick={() =>
              void attempt(copy, async () => {
                await commands.copy(job);
                setCopied(true);
              })
            }
          />
        )}
      </div>
      <Problem text={problem} />
    </>
  );
}

/** A job's source and target, its progress, and its buttons; `speeds` only of an unfinished job. */
export function Details(props: {
  job: Job;
  speeds?: readonly Speed[];
  commands: Commands;
}): React.JSX.Element {
  const { job, speeds, commands } = props;
  const over = isFinished(job);
  const reason = over ? '' : why(job); // always visible for a finished job
  const moved = over
    ? [...amount(job), took(job), average(job), verified(job)].filter(Boolean)
    : amount(job);
  return (
    <>
      {!over && <Progress job={job} />}
      <Parts of={moved.length || reason || over ? moved : [trans.__('nothing moved yet')]} />
      <div className="nbd-Pace">
        <Parts of={pace(job)} />
        {speeds && isMoving(job) && <Sparkline speeds={speeds} />}
      </div>
      {reason && <div className="nbd-Reason">{reason}</div>}
      <Place name={job.target ? trans.__('from') : trans.__('at')} place={job.source} />
      <Place name={trans.__('to')} place={job.target} />
      <div className="nbd-Foot">
        <span className="nbd-Small nbd-Owner">
          {job.id}
          {job.owner && ` · ${shortened(job.owner, OWNER)}`}
        </span>
        {over ? <Past job={job} commands={commands} /> : <Active job={job} commands={commands} />}
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
