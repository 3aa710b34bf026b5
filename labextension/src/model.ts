/** The panel's state, and how messages of the server change it. Pure functions, so tests need no server. */

const ACTIVE = ['QUEUED', 'PLANNING', 'RUNNING', 'PAUSED', 'CANCELLING'] as const;
const FINISHED = ['DONE', 'FAILED', 'CANCELLED', 'INTERRUPTED'] as const;

export type JobState = (typeof ACTIVE)[number] | (typeof FINISHED)[number];

export type Action = 'pause' | 'resume' | 'cancel';

/** A job as the server sends it; `nbdata/server/shown.py` documents the fields. */
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
}

/** The room on a disk or in a limited folder; `source` is where the limit comes from. */
export interface Disk {
  path: string;
  source: string;
  limit: number;
  used: number;
  reserved: number;
  free: number;
  here: boolean;
}

/** A cache of samples on a disk; `hitRate` is null until something was read from it. */
export interface Cache {
  path: string;
  source: string;
  limit: number;
  used: number;
  hitRate: number | null;
  consumers: number;
  inUse: boolean;
}

/** The state of the disks and caches at one moment. */
export interface Seen {
  disks: Disk[];
  caches: Cache[];
}

/** A message of the live feed. */
export interface Update {
  jobs: Job[];
  gone: string[];
  problem: string;
}

/** `live` while the feed is connected; `lost` while the server cannot be reached. */
export type Link = 'connecting' | 'live' | 'lost';

export interface Model {
  link: Link;
  problem: string;
  jobs: ReadonlyMap<string, Job>;
}

export type Event = { type: 'lost' } | { type: 'update'; first: boolean; update: Update };

export const EMPTY: Model = { link: 'connecting', problem: '', jobs: new Map() };

/** Return the state after an event; jobs stay visible while the server cannot be reached. */
export function reduce(model: Model, event: Event): Model {
  switch (event.type) {
    case 'lost':
      return model.link === 'lost' ? model : { ...model, link: 'lost' };
    case 'update': {
      const jobs = new Map(event.first ? [] : model.jobs);
      event.update.gone.forEach(key => jobs.delete(key));
      event.update.jobs.forEach(job => jobs.set(job.key, job));
      return { link: 'live', problem: event.update.problem, jobs };
    }
  }
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

/**
 * Sort the jobs: finished ones newest first, and unfinished ones in the order of their start.
 *
 * So no unfinished job moves while the user is about to click it.
 */
export function sections(model: Model): { running: Job[]; finished: Job[] } {
  const all = [...model.jobs.values()];
  const order = (a: Job, b: Job): number => a.created - b.created || a.key.localeCompare(b.key);
  const ended = (job: Job): number => job.created + job.seconds;
  return {
    running: all.filter(job => !isFinished(job)).sort(order),
    finished: all.filter(isFinished).sort((a, b) => ended(b) - ended(a) || order(b, a))
  };
}

/** With this many bytes free no disk counts as full, however large it is; as in `engine/upkeep/quota.py`. */
const AMPLE = 20e9;

/**
 * Return how full a disk is, including reserved space, as a percentage, a level and words.
 *
 * As df does: what the file system keeps for root is not part of the whole.
 */
export function fullness(disk: Disk): {
  percent: number;
  level: 'ok' | 'warn' | 'full';
  word: string;
} {
  const percent = shareOf(disk, disk.used + disk.reserved);
  const ample = disk.free >= AMPLE;
  if (percent >= 95 && !ample) {
    return { percent, level: 'full', word: 'almost full' };
  }
  return percent >= 80 && !ample
    ? { percent, level: 'warn', word: 'filling up' }
    : { percent, level: 'ok', word: '' };
}

/** Return a part of what can be used on a disk as a percentage. */
export function shareOf(disk: Disk, bytes: number): number {
  const whole = disk.used + disk.reserved + disk.free;
  return whole > 0 ? (100 * bytes) / whole : 100;
}

// -- from JSON ----------------------------------------------------------------------------------

type Raw = Record<string, unknown>;

function raw(value: unknown): Raw {
  return typeof value === 'object' && value !== null ? (value as Raw) : {};
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
}

function maybe(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function stateOf(value: unknown): JobState {
  return [...ACTIVE, ...FINISHED].find(state => state === value) ?? 'INTERRUPTED';
}

/** Parse a job; fields that an agent of another version leaves out become empty. */
export function parseJob(value: unknown): Job {
  const job = raw(value);
  return {
    key: text(job.key),
    id: text(job.id),
    verb: text(job.verb),
    source: text(job.source),
    target: text(job.target),
    state: stateOf(job.state),
    reason: text(job.reason),
    phase: text(job.phase),
    files: count(job.files),
    filesTotal: maybe(job.files_total),
    bytes: count(job.bytes),
    bytesTotal: maybe(job.bytes_total),
    rate: count(job.rate),
    eta: maybe(job.eta),
    retries: count(job.retries),
    failures: count(job.failures),
    created: count(job.created),
    seconds: count(job.seconds),
    owner: text(job.owner),
    command: text(job.command),
    whyNoCommand: text(job.why_no_command),
    error: text(job.error),
    folder: typeof job.folder === 'string' ? job.folder : null
  };
}

/** Parse a message of the live feed. */
export function parseUpdate(value: unknown): Update {
  const update = raw(value);
  return {
    jobs: list(update.jobs).map(parseJob),
    gone: list(update.gone).map(text),
    problem: text(update.problem)
  };
}

/** Parse the response of the route `disks`. */
export function parseSeen(value: unknown): Seen {
  return { disks: parseDisks(raw(value).disks), caches: parseCaches(raw(value).caches) };
}

function parseCaches(value: unknown): Cache[] {
  return list(value).map(item => {
    const cache = raw(item);
    return {
      path: text(cache.path),
      source: text(cache.source),
      limit: count(cache.limit),
      used: count(cache.used),
      hitRate: maybe(cache.hit_rate),
      consumers: count(cache.consumers),
      inUse: cache.in_use === true
    };
  });
}

function parseDisks(value: unknown): Disk[] {
  return list(value).map(item => {
    const disk = raw(item);
    return {
      path: text(disk.path),
      source: text(disk.source),
      limit: count(disk.limit),
      used: count(disk.used),
      reserved: count(disk.reserved),
      free: count(disk.free),
      here: disk.here === true
    };
  });
}
