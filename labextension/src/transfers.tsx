/** The section *Transfers*: running jobs with their buttons, and finished jobs. */

import * as React from 'react';

import { FinishedJobs } from './finished.js';
import { Commands, Details } from './job.js';
import { Job, Model, sections } from './model.js';
import { state, whole } from './words.js';

export type { Commands } from './job.js';

const FIRST_SHOWN = 10;
const MORE = 25;

function Running({ job, commands }: { job: Job; commands: Commands }): React.JSX.Element {
  return (
    <li className={`nbd-Job nbd-mod-${job.state.toLowerCase()}`} data-job={job.id}>
      <div className="nbd-Row nbd-mod-wrap">
        <span className="nbd-Strong" title={whole(job)}>
          {job.verb}
        </span>
        <span className="nbd-State">{state(job)}</span>
      </div>
      <Details job={job} commands={commands} />
    </li>
  );
}

/** Shows unfinished jobs first, then the newest of the finished ones. */
export function Transfers(props: {
  model: Model;
  commands: Commands;
  retry: () => void;
}): React.JSX.Element {
  const { model, commands } = props;
  const { running, finished } = sections(model);
  return (
    <section className="nbd-Section" aria-label="Transfers">
      <h2 className="nbd-Heading">Transfers</h2>
      {model.link === 'lost' && (
        <p className="nbd-Notice" role="status">
          The Jupyter server cannot be reached
          {model.jobs.size ? '; this list is from before' : ''}. nbdata tries again.{' '}
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
      {model.link === 'connecting' && <p className="nbd-Empty">Loading…</p>}
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
      <FinishedJobs jobs={finished} commands={commands} first={FIRST_SHOWN} more={MORE} />
    </section>
  );
}
