/** Cards of finished jobs: the result, and a button that resumes or retries a job that did not succeed. */

import { refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Commands, Details } from './job.js';
import { Job } from './model.js';
import { Button, Parts, useAttempt } from './parts.js';
import { again, outcome, state, title, whole, why } from './words.js';

/** The button *Resume* or *Retry*; nothing for a successful job. */
function Again({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element | null {
  const { busy, problem, attempt } = useAttempt();
  const label = again(job);
  if (!label) {
    return null;
  }
  return (
    <>
      <Button
        label={label}
        of={title(job)}
        icon={refreshIcon}
        disabled={busy}
        text
        onClick={() => void attempt(label, () => commands.act(job, 'again'))}
      />
      {problem && (
        <div className="nbd-Problem" role="alert">
          {problem}
        </div>
      )}
    </>
  );
}

function Finished({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  const ended = new Date(1000 * (job.created + job.seconds));
  const reason = why(job);
  return (
    <li className={`nbd-Job nbd-mod-${job.state.toLowerCase()}`} data-job={job.id}>
      <details className="nbd-Fold">
        <summary>
          <span className="nbd-Summary">
            <span className="nbd-Title" title={whole(job)}>
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
      <div className="nbd-Outcome">
        <Parts of={outcome(job)} />
        <Again job={job} commands={commands} />
      </div>
      {reason && (
        <div className="nbd-Reason" title={reason}>
          {reason}
        </div>
      )}
    </li>
  );
}

/** Shows the newest finished jobs, and buttons that show more of them or clear them. */
export function FinishedJobs(props: {
  jobs: Job[];
  commands: Commands;
  first: number;
  more: number;
}): React.JSX.Element | null {
  const { jobs, commands } = props;
  const [shown, setShown] = React.useState(props.first);
  const { problem, attempt } = useAttempt();
  const rest = jobs.length - shown;
  if (!jobs.length) {
    return null;
  }
  return (
    <>
      <div className="nbd-Row">
        <h3 className="nbd-Subheading">Finished</h3>
        <button
          type="button"
          className="nbd-Link nbd-Small"
          title="Hide finished jobs here; %transfers still lists them"
          onClick={() => void attempt('Clear finished', () => commands.clearFinished())}
        >
          Clear finished
        </button>
      </div>
      {problem && (
        <div className="nbd-Problem" role="alert">
          {problem}
        </div>
      )}
      <ul className="nbd-List" aria-label="Finished">
        {jobs.slice(0, shown).map(job => (
          <Finished key={job.key} job={job} commands={commands} />
        ))}
      </ul>
      {rest > 0 && (
        <button
          type="button"
          className="nbd-Link nbd-More"
          onClick={() => setShown(shown + props.more)}
        >
          {rest > props.more ? `Show ${props.more} of ${rest} more` : `Show ${rest} more`}
        </button>
      )}
    </>
  );
}
