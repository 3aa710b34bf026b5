/** The panel's state, and how messages of the server change it. Pure functions, so tests need no server. */

import { count, list, maybe, name, raw, text } from './json.js';

const ACTIVE = ['QUEUED', 'PLANNING', 'RUNNING', 'PAUSED', 'CANCELLING'] as const;
const FINISHED = ['DONE', 'FAILED', 'CANCELLED', 'INTERRUPTED'] as const;

export type JobState = (typeof ACTIVE)[number] | (typeof FINISHED)[number];

export type Action = 'pause' | 'resume' | 'cancel';

/**
 * A job as the server sends it; `nbdata/server/shown.py` documents the fields.
 *
 * Texts that are only shown are `printable`. What is sent back or copied is as it came: `id`, `command`, `folder`,
 * `notebook`.
 */
export interface Job {
  key: string;
  id: string;
  verb: string;
  source: string;
  target: string;
  state: JobState;
  reason: string;
  phase: string;
  files: number;
  filesTotal: number | null;
  bytes: number;
  bytesTotal: number | null;
  present: number;
  verified: number;
  unverified: number;
  rate: number;
  eta: number | null;
  retries: number;
  failures: number;
  created: number;
  seconds: number;
  owner: string;
  command: string;
  whyNoCommand: string;
  error: string;
  folder: string | null;
  /** The path of the notebook that began it below the server's root; null if it is not known. */
  notebook: string | null;
  /** The most bytes per second; null without a limit. */
  maxRate: number | null;
  /** True if the rate of such a job can be limited. */
  limitable: boolean;
  here: boolean;
  /** Where there was no room for a job that failed; null if that is not why. */
  lacks: Lack | null;
}

/** A folder without room, as it came: its limit is reached, or its disk is full. */
export interface Lack {
  folder: string;
  limited: boolean;
}

/** A message of the live feed. */
export interface Update {
  jobs: Job[];
  gone: string[];
  problem: string;
  version: string;
}

/** `live` while the feed is connected; `lost` while the server cannot be reached. */
export type Link = 'connecting' | 'live' | 'lost';

/** The rate of a job from a moment on, which is in seconds. */
export interface Speed {
  at: number;
  rate: number;
}

/**
 * The state of the panel.
 *
 * `speeds` has the rates of unfinished jobs over the last minute. `since` is when the newest job began that the first
 * message named, on the server's clock; null before that message. `version` is that of the server extension.
 */
export interface Model {
  link: Link;
  problem: string;
  jobs: ReadonlyMap<string, Job>;
  speeds: ReadonlyMap<string, readonly Speed[]>;
  since: number | null;
  version: string;
}

/** `at` is the time of the browser, in seconds. */
export type Event =
  { type: 'lost' } | { type: 'update'; first: boolean; update: Update; at: number };

export const EMPTY: Model = {
  link: 'connecting',
  problem: '',
  jobs: new Map(),
  speeds: new Map(),
  since: null,
  version: ''
};

/** The seconds that a sparkline shows. */
export const MINUTE = 60;

/** Return the state after an event; jobs stay visible while the server cannot be reached. */
export function reduce(model: Model, event: Event): Model {
  switch (event.type) {
    case 'lost':
      return model.link === 'lost' ? model : { ...model, link: 'lost' };
    case 'update': {
      if (isEmpty(model, event)) {
        return model;
      }
      const jobs = new Map(event.first ? [] : model.jobs);
      event.update.gone.forEach(key => jobs.delete(key));
      event.update.jobs.forEach(job => jobs.set(job.key, job));
      return {
        link: 'live',
        problem: event.update.problem,
        jobs,
        speeds: speedsOf(model, jobs, event),
        since: model.since ?? Math.max(0, ...event.update.jobs.map(job => job.created)),
        version: event.update.version
      };
    }
  }
}

/** True for a message that only shows that the connection is alive. */
function isEmpty(model: Model, { first, update }: Event & { type: 'update' }): boolean {
  const isSame = model.link === 'live' && update.problem === model.problem;
  return !first && isSame && !update.jobs.length && !update.gone.length;
}

function speedsOf(
  model: Model,
  jobs: ReadonlyMap<string, Job>,
  { first, update, at }: Event & { type: 'update' }
): Map<string, readonly Speed[]> {
  // How fast jobs were while the page was not connected is not known.
  const known = first ? [] : [...model.speeds];
  const speeds = new Map(known.filter(([key]) => jobs.has(key)));
  for (const job of update.jobs) {
    if (isFinished(job)) {
      speeds.delete(job.key);
      continue;
    }
    // One rate a second, which is what a sparkline can show.
    const second = Math.floor(at);
    const before = (speeds.get(job.key) ?? []).filter(one => one.at < second);
    // The last one that is older than a minute says how fast it was when the minute began.
    const stale = before.findLastIndex(one => one.at < second - MINUTE);
    const speed = { at: second, rate: isMoving(job) ? job.rate : 0 };
    speeds.set(job.key, [...before.slice(Math.max(0, stale)), speed]);
  }
  return speeds;
}

/** Return the jobs whose end a message tells: none that were over when the page was opened. */
export function endedIn(before: Model, update: Update): Job[] {
  return update.jobs.filter(job => {
    const known = before.jobs.get(job.key);
    const isNew = before.since !== null && job.created > before.since;
    return isFinished(job) && (known ? !isFinished(known) : isNew);
  });
}

/** True if a job runs, and does not wait for the loop that reads it; as in `nbdata/report.py`. */
export function isMoving(job: Job): boolean {
  return job.state === 'RUNNING' && job.phase !== 'waits for your loop';
}

/** True if a job has paused by itself until there is space on its disk. */
export function waitsForSpace(job: Job): boolean {
  return job.state === 'PAUSED' && job.reason.startsWith('no space');
}

export function isFinished(job: Job): boolean {
  return (FINISHED as readonly string[]).includes(job.state);
}

/** Return the actions that make sense in the job's state. */
export function actions(job: Job): Action[] {
  switch (job.state) {
    case 'QUEUED':
    case 'PLANNING':
    case 'RUNNING':
      return ['pause', 'cancel'];
    case 'PAUSED':
      return ['resume', 'cancel'];
    default:
      return [];
  }
}

/** True if the job's rate can be limited now. */
export function canLimit(job: Job): boolean {
  return job.limitable && !isFinished(job) && job.state !== 'CANCELLING';
}

/** Finished jobs of one line on one day, the newest first. */
export type Runs = readonly [Job, ...Job[]];

/**
 * Group finished jobs by day and line; `jobs` come newest first, and so do the days and lines.
 *
 * `day` is the local midnight at which the day begins, in milliseconds.
 */
export function byDay(jobs: readonly Job[]): { day: number; lines: Runs[] }[] {
  const days = new Map<number, Map<string, [Job, ...Job[]]>>();
  for (const job of jobs) {
    const day = new Date(1000 * ended(job)).setHours(0, 0, 0, 0);
    const lines = days.get(day) ?? new Map<string, [Job, ...Job[]]>();
    days.set(day, lines);
    const runs = lines.get(lineOf(job));
    if (runs) {
      runs.push(job);
    } else {
      lines.set(lineOf(job), [job]);
    }
  }
  return [...days].map(([day, lines]) => ({ day, lines: [...lines.values()] }));
}

/** What tells the runs of one line from those of others; a job without a line is alone. */
function lineOf(job: Job): string {
  return job.command || job.key;
}

/** When a finished job ended, in seconds on the server's clock. */
export function ended(job: Job): number {
  return job.created + job.seconds;
}

/**
 * Sort the jobs: finished ones newest first, and unfinished ones in the order of their start.
 *
 * So no unfinished job moves while the user is about to click it. A job that did not succeed gives its place to the
 * one that runs its line again.
 */
export function sections(
  model: Model,
  isShown: (job: Job) => boolean = () => true
): { running: Job[]; finished: Job[] } {
  const all = [...model.jobs.values()].filter(isShown);
  const order = (a: Job, b: Job): number =>
    a.created - b.created || (a.key < b.key ? -1 : Number(a.key > b.key));
  const running = all.filter(job => !isFinished(job)).sort(order);
  const again = new Set(running.map(lineOf));
  return {
    running,
    finished: all
      .filter(job => isFinished(job) && (job.state === 'DONE' || !again.has(lineOf(job))))
      .sort((a, b) => ended(b) - ended(a) || order(b, a))
  };
}

// -- from JSON ----------------------------------------------------------------------------------

function stateOf(value: unknown): JobState {
  return [...ACTIVE, ...FINISHED].find(state => state === value) ?? 'INTERRUPTED';
}

/** Parse a job; fields that an agent of another version leaves out become empty. */
export function parseJob(value: unknown): Job {
  const job = raw(value);
  return {
    key: text(job.key),
    id: text(job.id),
    verb: name(job.verb),
    source: name(job.source),
    target: name(job.target),
    state: stateOf(job.state),
    reason: name(job.reason),
    phase: name(job.phase),
    files: count(job.files),
    filesTotal: maybe(job.files_total),
    bytes: count(job.bytes),
    bytesTotal: maybe(job.bytes_total),
    present: count(job.present),
    verified: count(job.verified),
    unverified: count(job.unverified),
    rate: count(job.rate),
    eta: maybe(job.eta),
    retries: count(job.retries),
    failures: count(job.failures),
    created: count(job.created),
    seconds: count(job.seconds),
    owner: name(job.owner),
    command: text(job.command),
    whyNoCommand: name(job.why_no_command),
    error: name(job.error),
    folder: typeof job.folder === 'string' ? job.folder : null,
    notebook: typeof job.notebook === 'string' && job.notebook ? job.notebook : null,
    maxRate: maybe(job.max_rate),
    limitable: job.can_limit === true,
    here: job.here === true,
    lacks: parseLack(job.lacks)
  };
}

function parseLack(value: unknown): Lack | null {
  const { folder, limited } = raw(value);
  return typeof folder === 'string' ? { folder, limited: limited === true } : null;
}

/** Parse a message of the live feed. */
export function parseUpdate(value: unknown): Update {
  const update = raw(value);
  return {
    jobs: list(update.jobs).map(parseJob),
    gone: list(update.gone).map(text),
    problem: name(update.problem),
    version: text(update.version)
  };
}
