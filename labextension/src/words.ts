/** Texts that describe a job or a cache; pure functions. */

import { duration, files, percent, share, size } from './format.js';
import { type Cache, isFinished, type Job, type JobState } from './model.js';

const STATES: Record<JobState, string> = {
  QUEUED: 'Waiting',
  PLANNING: 'Planning',
  RUNNING: 'Running',
  PAUSED: 'Paused',
  CANCELLING: 'Cancelling',
  DONE: 'Done',
  FAILED: 'Failed',
  CANCELLED: 'Cancelled',
  INTERRUPTED: 'Interrupted'
};

/** True if a job runs, and does not wait for the loop that reads it; as in `nbdata/report.py`. */
export function moving(job: Job): boolean {
  return job.state === 'RUNNING' && job.phase !== 'waits for your loop';
}

/** The name of the job's state: `Running`, `Failed`. */
export function state(job: Job): string {
  if (job.state === 'RUNNING' && !moving(job)) {
    return 'Waits for your loop';
  }
  return STATES[job.state];
}

/** The reason for the job's state; empty if there is no more to say. */
export function why(job: Job): string {
  if (job.error && job.state !== 'CANCELLED') {
    return job.error;
  }
  if (job.state === 'PAUSED' && job.reason === 'user') {
    return '';
  }
  return job.reason;
}

/** The progress: `52%`, `1.2 GB of 2.3 GB`, `12 of 20 files`. */
export function amount(job: Job): string[] {
  const done = percent(job.bytes, job.bytesTotal);
  const parts = [
    done === null ? '' : `${done}%`,
    job.bytes || job.bytesTotal ? share(job.bytes, job.bytesTotal) : '',
    job.files || job.filesTotal ? files(job.files, job.filesTotal) : ''
  ];
  return parts.filter(Boolean);
}

/** Speed, remaining time and problems: `4.0 MB/s`, `42 s left`, `2 retries`. */
export function pace(job: Job): string[] {
  const running = moving(job);
  const parts = [
    running && job.rate > 0 ? `${size(job.rate)}/s` : '',
    running && job.eta !== null ? `${duration(job.eta)} left` : '',
    job.retries ? `${job.retries} ${job.retries === 1 ? 'retry' : 'retries'}` : '',
    job.failures ? `${job.failures} failed` : '',
    running ? job.phase : ''
  ];
  return parts.filter(Boolean);
}

/** A label such as `pull data`: the verb and the last part of the target's path. */
export function title(job: Job): string {
  const name = (job.target || job.source).replace(/\/+$/, '').split('/').pop() ?? '';
  return `${job.verb} ${name}`.trim();
}

/** A tooltip such as `pull s3://bucket/data/ → /work/data`. */
export function whole(job: Job): string {
  return `${job.verb} ${job.source}${job.target ? ` → ${job.target}` : ''}`.trim();
}

/** The result of a finished job: `3.6 MB`, `14 files`, `1.1 s`; before that `49%` if it came no further. */
export function outcome(job: Job): string[] {
  const done = job.state === 'DONE' || !job.bytes ? null : percent(job.bytes, job.bytesTotal);
  return [
    done === null ? '' : `${done}%`,
    job.bytes ? size(job.bytes) : '',
    job.files ? files(job.files, null) : '',
    took(job)
  ].filter(Boolean);
}

/** How long a finished job took; empty if that is not known. */
export function took(job: Job): string {
  return job.seconds > 0 ? duration(job.seconds) : '';
}

const FROM_THE_BEGINNING = ['md5check', 'cache_stream', 'shards'];
const NOT_BY_ITSELF = ['cache_stream', 'samples', 'sample_cache', 'convert'];

/** The label of the button that starts a finished job again; empty if it has no such button. */
export function again(job: Job): '' | 'Resume' | 'Retry' {
  if (job.state === 'DONE' || !isFinished(job) || NOT_BY_ITSELF.includes(job.verb)) {
    return '';
  }
  return job.state === 'FAILED' || FROM_THE_BEGINNING.includes(job.verb) ? 'Retry' : 'Resume';
}

/** The job's command as a notebook magic; throws an error if no line can express it. */
export function magic(job: Job): string {
  if (job.whyNoCommand) {
    throw new Error(job.whyNoCommand);
  }
  return `%${job.command}`;
}

/** The folder that the user chose for a cache, without the subfolders that nbdata creates. */
export function cacheFolder(cache: Cache): string {
  return cache.path.replace(/\/\.nbdata\/kept-[0-9a-f]+$/, '') || '/';
}

/** How full a cache is, as a whole percentage; null if its limit is not known. */
export function cacheShare(cache: Cache): number | null {
  return percent(cache.used, cache.limit > 0 ? cache.limit : null);
}

/** Facts about a cache: `1.2 GB of 10.0 GB`, `92% hits`, `used by 3`. */
export function cacheFacts(cache: Cache): string[] {
  const parts = [
    share(cache.used, cache.limit > 0 ? cache.limit : null),
    cache.hitRate === null ? '' : `${Math.floor(100 * cache.hitRate)}% hits`,
    cache.inUse ? `used by ${cache.consumers}` : 'not in use'
  ];
  return parts.filter(Boolean);
}
