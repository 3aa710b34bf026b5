/** Texts of what fills a disk, and of what a plan frees; pure functions. */

import { duration, files, size } from './format.js';
import { Lack } from './model.js';
import { Disk, gaugeOf, Seen } from './seen.js';
import { Fill, Filled, FILLS, Freeing, Result } from './results.js';
import { trans } from './text.js';

/** A kind of data in a folder, as `%du` names it, and what that means. */
export function fillName(fill: Fill): { name: string; meaning: string } {
  switch (fill) {
    case 'known':
      return {
        name: trans.__('known'),
        meaning: trans.__('unchanged since nbdata pulled, pushed or unpacked it')
      };
    case 'caches':
      return { name: trans.__('caches'), meaning: trans.__('caches of samples') };
    case 'partial':
      return { name: trans.__('partial'), meaning: trans.__('unfinished files of nbdata') };
    case 'only_here':
      return { name: trans.__('only here'), meaning: trans.__('everything else') };
  }
}

/** What nbdata knows of a folder: `1.2 GB known`, `3.0 MB only here`. */
export function fillWords(part: Filled): string[] {
  return FILLS.filter(fill => part.fills[fill] > 0).map(
    fill => `${size(part.fills[fill])} ${fillName(fill).name}`
  );
}

/** How long ago something ended: `just now`, `5 min 2 s ago`. Both times are in seconds. */
export function ago(ended: number, now: number): string {
  const seconds = Math.max(0, now - ended);
  return seconds < 10
    ? trans.__('scanned just now')
    : trans.__('scanned %1 ago', duration(seconds));
}

/** How many files were looked at or deleted until now. */
export function found(count: number): string {
  return files(count, null);
}

/** What a plan frees, a fact each, the sum first. */
export function freeingWords(what: Freeing): string[] {
  return [
    what.all ? trans.__('frees %1', size(what.all)) : trans.__('frees nothing'),
    what.again ? trans.__('%1 can be fetched again', size(what.again)) : '',
    what.lost ? trans.__('%1 only here, and lost', size(what.lost)) : '',
    what.stays ? trans.__('%1 only here stay', size(what.stays)) : '',
    what.unknown
      ? trans.__('%1 stay because no store could be asked for them', size(what.unknown))
      : ''
  ].filter(Boolean);
}

/** What a cleanup has freed. */
export function freed(report: Result): string {
  return report.freed ? trans.__('Freed %1.', size(report.freed)) : trans.__('Nothing was freed.');
}

/** A number of bytes as `%quota --limit` takes it: `50GB`, `1500MB`, `123B`. */
export function spelled(bytes: number): string {
  for (const [unit, factor] of [
    ['GB', 1e9],
    ['MB', 1e6]
  ] as const) {
    if (bytes > 0 && bytes % factor === 0) {
      return `${bytes / factor}${unit}`;
    }
  }
  return `${bytes}B`;
}

/** True if a gauge is that of a limit, which has a folder; the others are those of disks. */
export function isLimit(disk: Disk): boolean {
  return disk.source !== 'the disk';
}

/**
 * Return the folder in which the tools of a gauge begin: that of the limit, or the server's folder if it is there.
 *
 * Of any other disk it is null: only the user may say that all of it is looked through.
 */
export function firstFolder(disk: Disk, seen: Seen): string | null {
  if (isLimit(disk)) {
    return disk.path;
  }
  const disks = seen.disks.filter(one => !isLimit(one));
  return gaugeOf({ ...seen, disks }, seen.root)?.path === disk.path ? seen.root : null;
}

/** What tells a gauge from all others. */
export function gaugeKey(disk: Disk): string {
  return `${disk.source} ${disk.path}`;
}

/** Return the gauge of the limit or the disk that had no room for a job; null if none is shown. */
export function fullGauge(seen: Seen, lack: Lack): Disk | null {
  const disks = seen.disks.filter(disk => isLimit(disk) === lack.limited);
  return gaugeOf({ ...seen, disks }, lack.folder) ?? gaugeOf(seen, lack.folder);
}
