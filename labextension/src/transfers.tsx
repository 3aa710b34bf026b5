/** The section *Transfers*: unfinished jobs with their buttons, and finished jobs. */

import * as React from 'react';

import { belongs, Choice, CHOICES, possible } from './filter.js';
import { FinishedJobs, Revealed } from './finished.js';
import { Commands, Details, State, Title } from './job.js';
import { isMoving, Job, Model, sections, Speed } from './model.js';
import { shortened, trans } from './text.js';

export type { Revealed } from './finished.js';
export type { Commands } from './job.js';

const FIRST_SHOWN = 10;
const MORE = 25;
/** The most characters of a problem with the agents. */
const LONGEST = 500;
/** Unfinished jobs that are shown at first: each is drawn up to four times a second. */
const MOST_RUNNING = 20;

const Running = React.memo(function Running(props: {
  job: Job;
  speeds: readonly Speed[];
  commands: Commands;
}): React.JSX.Element {
  const { job } = props;
  const mode = isMoving(job) || job.state !== 'RUNNING' ? job.state.toLowerCase() : 'waiting';
  return (
    <li className={`nbd-Job nbd-mod-${mode}`} data-job={job.id}>
      <div className="nbd-Summary">
        <Title job={job} />
        <State job={job} />
      </div>
      <Details {...props} />
    </li>
  );
});

const NONE: readonly Speed[] = [];

/** The unfinished jobs, at first at most `MOST_RUNNING`. */
function RunningJobs(props: {
  jobs: Job[];
  model: Model;
  commands: Commands;
}): React.JSX.Element | null {
  const { jobs, model, commands } = props;
  const [areAllShown, showAll] = React.useState(false);
  const shown = areAllShown ? jobs : jobs.slice(0, MOST_RUNNING);
  return jobs.length ? (
    <>
      <ul className="nbd-List" aria-label={trans.__('Running')}>
        {shown.map(job => (
          <Running
            key={job.key}
            job={job}
            speeds={model.speeds.get(job.key) ?? NONE}
            commands={commands}
          />
        ))}
      </ul>
      {shown.length < jobs.length && (
        <button type="button" className="nbd-Link nbd-More" onClick={() => showAll(true)}>
          {trans.__('Show %1 more that are not finished', jobs.length - shown.length)}
        </button>
      )}
    </>
  ) : null;
}

function nameOf(choice: Choice): string {
  switch (choice) {
    case 'notebook':
      return trans.__('This notebook');
    case 'server':
      return trans.__('This server');
    case 'all':
      return trans.__('All');
  }
}

function tipOf(choice: Choice, notebook: string | null): string {
  switch (choice) {
    case 'notebook':
      return notebook === null
        ? trans.__('No notebook is in front')
        : trans.__('Transfers that the notebook in front began');
    case 'server':
      return trans.__('Transfers that notebooks and terminals of this server began');
    case 'all':
      return trans.__('Also those of other servers, scripts and terminals');
  }
}

/** The buttons *This notebook*, *This server* and *All*. */
function Filter(props: {
  choice: Choice;
  notebook: string | null;
  choose: (choice: Choice) => void;
}): React.JSX.Element {
  const { choice, notebook, choose } = props;
  return (
    <div className="nbd-Filter" role="group" aria-label={trans.__('Transfers of')}>
      {CHOICES.map(one => {
        const isPossible = possible(one, notebook) === one;
        return (
          <button
            key={one}
            type="button"
            aria-pressed={one === choice}
            aria-disabled={!isPossible}
            title={tipOf(one, notebook)}
            onClick={() => isPossible && choose(one)}
          >
            {nameOf(one)}
          </button>
        );
      })}
    </div>
  );
}

/** The first sentence where nothing is listed. */
function nothing(choice: Choice, isEmpty: boolean): string {
  if (isEmpty || choice === 'all') {
    return trans.__('No transfers yet. Begin one from Stores, or in a notebook, for example');
  }
  return choice === 'server'
    ? trans.__('No transfers of this server yet. Start one in a notebook, for example')
    : trans.__('No transfers of this notebook yet. Start one in it, for example');
}

function Notices(props: { model: Model; retry: () => void }): React.JSX.Element {
  const { model, retry } = props;
  return (
    <>
      {model.link === 'lost' && (
        <p className="nbd-Notice" role="status">
          {model.jobs.size
            ? trans.__(
                'The Jupyter server cannot be reached; this list is from before. nbdata tries again.'
              )
            : trans.__('The Jupyter server cannot be reached. nbdata tries again.')}{' '}
          <button type="button" className="nbd-Link" onClick={retry}>
            {trans.__('Try now')}
          </button>
        </p>
      )}
      {model.problem && (
        <p className="nbd-Notice" role="status">
          {shortened(model.problem, LONGEST)}
        </p>
      )}
      {model.link === 'connecting' && <p className="nbd-Empty">{trans.__('Loading…')}</p>}
    </>
  );
}

/** Shows unfinished jobs first, then the newest of the finished ones. */
export function Transfers(props: {
  model: Model;
  commands: Commands;
  choice: Choice;
  /** The path of the notebook in front; null if there is none. */
  notebook: string | null;
  choose: (choice: Choice) => void;
  revealed: Revealed | null;
  retry: () => void;
}): React.JSX.Element {
  const { model, commands, notebook, choose, revealed, retry } = props;
  const choice = possible(props.choice, notebook);
  const { running, finished } = sections(model, job => belongs(job, choice, notebook));
  const isEmpty = model.link === 'live' && !running.length && !finished.length;
  return (
    <section className="nbd-Section" aria-label={trans.__('Transfers')}>
      <div className="nbd-Row nbd-mod-wrap">
        <h2 className="nbd-Heading">{trans.__('Transfers')}</h2>
        {model.jobs.size > 0 && <Filter choice={choice} notebook={notebook} choose={choose} />}
      </div>
      <Notices model={model} retry={retry} />
      {isEmpty && (
        <p className="nbd-Empty">
          {nothing(choice, model.jobs.size === 0)} <code>%pull s3://bucket/data/ data</code>
        </p>
      )}
      <RunningJobs jobs={running} model={model} commands={commands} />
      <FinishedJobs
        jobs={finished}
        commands={commands}
        revealed={revealed}
        first={FIRST_SHOWN}
        more={MORE}
      />
    </section>
  );
}
