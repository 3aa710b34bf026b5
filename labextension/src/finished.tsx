/** Cards of finished jobs, by day: the result, and a button that resumes or retries a job that did not succeed. */

import { editIcon, refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Failures } from './failures.js';
import { freeIcon } from './icons.js';
import { Commands, Details, State, Title } from './job.js';
import { byDay, ended, Job, Runs } from './model.js';
import { Button, OnlyCopied, Parts, Problem, useAttempt } from './parts.js';
import { trans } from './text.js';
import { again, average, canEdit, dayName, magic, outcome, title, verified, why } from './words.js';

/** A job that the user asked to see; another object each time. */
export interface Revealed {
  key: string;
}

/** The buttons *Free…* if there was no room, *Resume* or *Retry*, and *Edit and run*; nothing for a successful job. */
function Again({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element | null {
  const { busy, problem, attempt } = useAttempt();
  const [isCopied, setCopied] = React.useState(false);
  const [label, edit, free] = [again(job), trans.__('Edit and run'), trans.__('Free…')];
  const { lacks } = job;
  if (!label && !canEdit(job) && !lacks) {
    return null;
  }
  return (
    <>
      <div className="nbd-Again">
        {lacks && (
          <Button
            label={free}
            of={title(job)}
            icon={freeIcon}
            text
            onClick={() => void attempt(free, () => commands.free(lacks))}
          />
        )}
        {label && (
          <Button
            label={label}
            of={title(job)}
            icon={refreshIcon}
            disabled={busy}
            text
            onClick={() => void attempt(label, () => commands.act(job, 'again'))}
          />
        )}
        {canEdit(job) && (
          <Button
            label={edit}
            of={title(job)}
            icon={editIcon}
            text
            onClick={() =>
              void attempt(edit, async () => setCopied(!(await commands.insert(magic(job)))))
            }
          />
        )}
      </div>
      <OnlyCopied is={isCopied} />
      <Problem text={problem} />
    </>
  );
}

function Time({ job }: { job: Job }): React.JSX.Element {
  const at = new Date(1000 * ended(job));
  return (
    <time className="nbd-Small" dateTime={at.toISOString()} title={at.toLocaleString()}>
      {at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })}
    </time>
  );
}

/** The card of the newest run of a line, which holds those of its earlier runs. */
const Finished = React.memo(function Finished(props: {
  runs: Runs;
  commands: Commands;
  revealed: Revealed | null;
}): React.JSX.Element {
  const { runs, commands, revealed } = props;
  const [job, ...earlier] = runs;
  const card = React.useRef<HTMLLIElement>(null);
  const [isOpen, setOpen] = React.useState(false);
  const isRevealed = revealed?.key === job.key;
  const isInside = earlier.some(run => run.key === revealed?.key);
  React.useEffect(() => {
    if (isRevealed && card.current) {
      card.current.scrollIntoView({ block: 'nearest' });
      card.current.querySelector('summary')?.focus();
    }
    if (isInside) {
      setOpen(true);
    }
  }, [revealed, isRevealed, isInside]);
  const reason = why(job);
  return (
    <li
      ref={card}
      className={`nbd-Job nbd-mod-${job.state.toLowerCase()}${isRevealed ? ' nbd-mod-revealed' : ''}`}
      data-job={job.id}
    >
      <details className="nbd-Fold">
        <summary>
          <span className="nbd-Summary">
            <Title job={job} />
            <span className="nbd-Ending">
              <State job={job} />
              <Time job={job} />
            </span>
          </span>
        </summary>
        <Details job={job} commands={commands} />
      </details>
      <div className="nbd-Outcome">
        <Parts of={[...outcome(job), average(job), verified(job)].filter(Boolean)} />
        {reason && (
          <div className="nbd-Reason" title={reason}>
            {reason}
          </div>
        )}
        <Failures job={job} />
        <Again job={job} commands={commands} />
      </div>
      {earlier.length > 0 && (
        <details
          className="nbd-Fold nbd-Earlier"
          open={isOpen}
          onToggle={event => setOpen(event.currentTarget.open)}
        >
          <summary>{trans._n('%1 earlier run', '%1 earlier runs', earlier.length)}</summary>
          {isOpen && (
            <ul className="nbd-List" aria-label={trans.__('Earlier runs')}>
              {earlier.map(run => (
                <Finished key={run.key} runs={[run]} commands={commands} revealed={revealed} />
              ))}
            </ul>
          )}
        </details>
      )}
    </li>
  );
}, isSame);

interface Shown {
  runs: Runs;
  commands: Commands;
  revealed: Revealed | null;
}

/** True if a card need not be drawn again: jobs that have not changed are the same objects. */
function isSame(before: Shown, now: Shown): boolean {
  return (
    before.commands === now.commands &&
    before.revealed === now.revealed &&
    before.runs.length === now.runs.length &&
    before.runs.every((job, n) => job === now.runs[n])
  );
}

/** Shows the newest finished jobs, and buttons that show more of them or clear them. */
export function FinishedJobs(props: {
  jobs: Job[];
  commands: Commands;
  revealed: Revealed | null;
  first: number;
  more: number;
}): React.JSX.Element | null {
  const { jobs, commands, revealed } = props;
  const [most, setMost] = React.useState(props.first);
  const { problem, attempt } = useAttempt();
  const days = byDay(jobs);
  const lines = days.flatMap(({ lines }) => lines);
  const at = lines.findIndex(runs => runs.some(job => job.key === revealed?.key));
  const shown = Math.max(most, at + 1);
  const rest = lines.length - shown;
  if (!jobs.length) {
    return null;
  }
  let left = shown;
  return (
    <>
      <div className="nbd-Row">
        <h3 className="nbd-Subheading">{trans.__('Finished')}</h3>
        <button
          type="button"
          className="nbd-Link nbd-Small"
          title={trans.__('Hide finished jobs here; %transfers still lists them')}
          onClick={() => void attempt(trans.__('Clear finished'), () => commands.clearFinished())}
        >
          {trans.__('Clear finished')}
        </button>
      </div>
      <Problem text={problem} />
      {days.map(({ day, lines }) => {
        const taken = lines.slice(0, left);
        left -= taken.length;
        const name = dayName(day, Date.now());
        return (
          taken.length > 0 && (
            <React.Fragment key={day}>
              <h4 className="nbd-Day">{name}</h4>
              <ul className="nbd-List" aria-label={`${trans.__('Finished')}: ${name}`}>
                {taken.map(runs => (
                  <Finished
                    key={runs[runs.length - 1]?.key}
                    runs={runs}
                    commands={commands}
                    revealed={runs.some(job => job.key === revealed?.key) ? revealed : null}
                  />
                ))}
              </ul>
            </React.Fragment>
          )
        );
      })}
      {rest > 0 && (
        <button
          type="button"
          className="nbd-Link nbd-More"
          onClick={() => setMost(shown + props.more)}
        >
          {rest > props.more
            ? trans.__('Show %1 of %2 more', props.more, rest)
            : trans.__('Show %1 more', rest)}
        </button>
      )}
    </>
  );
}
