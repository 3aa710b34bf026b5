/** Texts that describe a job or a cache; pure functions. */

import { duration, files, percent, share, size } from './format.js';
import type { Trouble } from './diagnosis.js';
import { type Action, isFinished, isMoving, type Job, waitsForSpace } from './model.js';
import type { Cache, Disk } from './seen.js';
import { printable, shortened, trans } from './text.js';

/** The label of the button for an action. */
export function button(action: Action): string {
  switch (action) {
    case 'pause':
      return trans.__('Pause');
    case 'resume':
      return trans.__('Resume');
    case 'cancel':
      return trans.__('Cancel');
  }
}

/** The name of the job's state: `Running`, `Waits for space`, `Failed`. */
export function state(job: Job): string {
  switch (job.state) {
    case 'QUEUED':
      return trans.__('Waiting');
    case 'PLANNING':
      return trans.__('Planning');
    case 'RUNNING':
      return isMoving(job) ? trans.__('Running') : trans.__('Waits for your loop');
    case 'PAUSED':
      return waitsForSpace(job) ? trans.__('Waits for space') : trans.__('Paused');
    case 'CANCELLING':
      return trans.__('Cancelling');
    case 'DONE':
      return trans.__('Done');
    case 'FAILED':
      return trans.__('Failed');
    case 'CANCELLED':
      return trans.__('Cancelled');
    case 'INTERRUPTED':
      return trans.__('Interrupted');
  }
}

/** The most characters of a reason, and of a phase. */
const [REASON, PHASE] = [1000, 80];

/** The reason for the job's state; empty if there is no more to say. */
export function why(job: Job): string {
  return shortened(reasonOf(job), REASON);
}

function reasonOf(job: Job): string {
  if (job.error && job.state !== 'CANCELLED') {
    return job.error;
  }
  if (job.state === 'PAUSED' && job.reason === 'user') {
    return '';
  }
  if (job.state === 'PAUSED' && job.reason === 'interrupt') {
    return trans.__('by an interrupt of its cell');
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
  const running = isMoving(job);
  const parts = [
    running && job.rate > 0 ? `${size(job.rate)}/s` : '',
    job.maxRate !== null && !isFinished(job)
      ? trans.__('limited to %1', `${size(job.maxRate)}/s`)
      : '',
    running && job.eta !== null ? trans.__('%1 left', duration(job.eta)) : '',
    job.retries ? trans._n('%1 retry', '%1 retries', job.retries) : '',
    job.failures ? trans.__('%1 failed', job.failures) : '',
    running ? shortened(job.phase, PHASE) : ''
  ];
  return parts.filter(Boolean);
}

/** The last part of a path or URL: `data` of `s3://bucket/data/`. */
function last(place: string): string {
  return place.replace(/\/+$/, '').split('/').pop() ?? '';
}

/** What a job moves: `vols20`, or `vols20 → volumes` if the target has another name. */
export function thing(job: Job): string {
  const [source, target] = [last(job.source), last(job.target)];
  return source && target && source !== target ? `${source} → ${target}` : source || target;
}

/** A label such as `pull data`: the verb and the thing. */
export function title(job: Job): string {
  return `${job.verb} ${thing(job)}`.trim();
}

/** A tooltip such as `pull s3://bucket/data/ → /work/data`. */
export function whole(job: Job): string {
  return `${job.verb} ${job.source}${job.target ? ` → ${job.target}` : ''}`.trim();
}

/** The result of a finished job: `3.6 MB`, `14 files`, `1.1 s`; before that `49%` or `2 failed` if it was not all. */
export function outcome(job: Job): string[] {
  // The total leaves out what was not tried: 100% beside failures would mislead.
  const isSaid = job.state !== 'DONE' && job.bytes > 0 && !job.failures;
  const done = isSaid ? percent(job.bytes, job.bytesTotal) : null;
  return [
    job.failures ? trans.__('%1 failed', job.failures) : '',
    done === null ? '' : `${done}%`,
    job.bytes ? size(job.bytes) : '',
    job.files ? files(job.files, null) : '',
    took(job)
  ].filter(Boolean);
}

/** Whether the files of a finished job were compared with stored checksums; empty if it does not say. */
export function verified(job: Job): string {
  if (!job.verified) {
    return job.unverified ? trans.__('not verified') : '';
  }
  return job.unverified
    ? trans.__('%1 of %2 verified', job.verified, job.verified + job.unverified)
    : trans.__('verified');
}

/** The average rate of a job that succeeded: `4.0 MB/s`; empty if it moved nothing, or ended at once. */
export function average(job: Job): string {
  const moved = job.bytes - job.present;
  return job.state === 'DONE' && moved > 0 && job.seconds > 0.05
    ? `${size(moved / job.seconds)}/s`
    : '';
}

/** What a notification says of a job that has succeeded: `Pulled vols20: 80.3 MB, 20 files verified`. */
export function success(job: Job): string {
  const name = thing(job);
  const facts = [
    job.bytes ? size(job.bytes) : '',
    job.verified && !job.unverified
      ? trans._n('%1 file verified', '%1 files verified', job.verified)
      : [job.files ? files(job.files, null) : '', verified(job)].filter(Boolean).join(', ')
  ].filter(Boolean);
  return [did(job.verb, name), facts.join(', ')].filter(Boolean).join(': ');
}

function did(verb: string, name: string): string {
  switch (verb) {
    case 'pull':
      return trans.__('Pulled %1', name);
    case 'push':
      return trans.__('Pushed %1', name);
    case 'copy':
      return trans.__('Copied %1', name);
    case 'md5check':
      return trans.__('Checked %1', name);
    case 'untar_volumes':
      return trans.__('Unpacked %1', name);
    case 'pack':
      return trans.__('Packed %1', name);
    case 'cleanup':
      return trans.__('Freed space in %1', name);
    default:
      return trans.__('%1 has ended', `${verb} ${name}`.trim());
  }
}

/** What a notification says of a job that has not succeeded: `pull vols20 failed: no such bucket`. */
export function failure(job: Job): string {
  const told =
    job.state === 'INTERRUPTED'
      ? trans.__('%1 was interrupted', title(job))
      : trans.__('%1 failed', title(job));
  const reason = why(job).replace(new RegExp(`^${job.verb}: `), ''); // the verb is told already
  return [told, reason].filter(Boolean).join(': ');
}

/** How long a finished job took; empty if that is not known, or would be `0.0 s`. */
export function took(job: Job): string {
  return job.seconds >= 0.05 ? duration(job.seconds) : '';
}

const FROM_THE_BEGINNING = ['md5check', 'cache_stream', 'shards'];
const NOT_BY_ITSELF = ['cache_stream', 'samples', 'sample_cache', 'convert'];

/** The label of the button that starts a finished job again; empty if it has no such button. */
export function again(job: Job): string {
  if (job.state === 'DONE' || !isFinished(job) || NOT_BY_ITSELF.includes(job.verb)) {
    return '';
  }
  return job.state === 'FAILED' || FROM_THE_BEGINNING.includes(job.verb)
    ? trans.__('Retry')
    : trans.__('Resume');
}

/** The job's command as a notebook magic; throws an error if no line can express it. */
export function magic(job: Job): string {
  if (job.whyNoCommand) {
    throw new Error(job.whyNoCommand);
  }
  return `%${job.command}`;
}

/** A limit as `--max-rate` takes it: `20MB/s`; empty without one. */
export function rateText(rate: number | null): string {
  if (rate === null) {
    return '';
  }
  for (const [unit, bytes] of [
    ['MB', 1e6],
    ['kB', 1e3]
  ] as const) {
    if (rate % bytes === 0) {
      return `${rate / bytes}${unit}/s`;
    }
  }
  return `${rate}B/s`;
}

/** What is typed as a limit, without spaces, so that it is one word of a line. */
export function typedRate(text: string): string {
  return text.replace(/\s+/g, '');
}

/** The line that limits the rate of a job: `%transfers 3f2a91 --max-rate 20MB/s`. */
export function limitLine(job: Job, typed: string): string {
  return `%transfers ${job.id} --max-rate ${printable(typedRate(typed)) || '0'}`;
}

/** True if a finished job did not succeed and its line can be put into a notebook, to be changed there. */
export function canEdit(job: Job): boolean {
  return isFinished(job) && job.state !== 'DONE' && job.command !== '';
}

/** What is wrong with nbdata in a kernel, in one sentence or two. */
export function troubleText(trouble: Trouble): string {
  switch (trouble.kind) {
    case 'missing':
      return trans.__('nbdata is not installed in the kernel of this notebook.');
    case 'not loaded':
      return trans.__('This notebook has not loaded nbdata.');
    case 'version':
      return trans.__(
        'This kernel has nbdata %1, and the Jupyter server %2. Restart the kernel after the installation.',
        trouble.kernel,
        printable(shortened(trouble.server, 40))
      );
  }
}

/** The folder that the user chose for a cache, without the subfolders that nbdata creates. */
export function cacheFolder(cache: Cache): string {
  return printable(cache.path.replace(/\/\.nbdata\/kept-[0-9a-f]+$/, '')) || '/';
}

/** How full a cache is, as a whole percentage; null if its limit is not known. */
export function cacheShare(cache: Cache): number | null {
  return percent(cache.used, cache.limit > 0 ? cache.limit : null);
}

/** Facts about a cache: `1.2 GB of 10.0 GB`, `92% hits`, `used by 3`. */
export function cacheFacts(cache: Cache): string[] {
  const parts = [
    share(cache.used, cache.limit > 0 ? cache.limit : null),
    cache.hitRate === null ? '' : trans.__('%1 hits', `${Math.floor(100 * cache.hitRate)}%`),
    cache.inUse ? trans.__('used by %1', cache.consumers) : trans.__('not in use')
  ];
  return parts.filter(Boolean);
}

/** Facts about a disk: `1.2 GB used`, `3.0 MB reserved`, `8.8 GB free of 10.0 GB`. */
export function diskFacts(disk: Disk): string[] {
  return [
    trans.__('%1 used', size(disk.used)),
    disk.reserved ? trans.__('%1 reserved', size(disk.reserved)) : '',
    trans.__('%1 free of %2', size(disk.free), size(disk.limit))
  ].filter(Boolean);
}

/** A day, which begins at this local midnight: `Today`, `Yesterday`, `Monday, 23 November`. */
export function dayName(day: number, now: number): string {
  const days = Math.round((new Date(now).setHours(0, 0, 0, 0) - day) / 86_400_000);
  if (days === 0) {
    return trans.__('Today');
  }
  return days === 1
    ? trans.__('Yesterday')
    : new Date(day).toLocaleDateString([], { weekday: 'long', day: 'numeric', month: 'long' });
}
