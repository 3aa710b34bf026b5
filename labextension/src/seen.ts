/** What the server says of disks, caches, mounts and loader services. Pure functions. */

import { count, list, maybe, name, raw, text } from './json.js';

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

/** A folder of a store that is mounted; `alive` unless its process was killed. */
export interface Mount {
  path: string;
  source: string;
  /** In seconds. */
  age: number;
  alive: boolean;
}

/** A trainer of a loader service; `waits` is the share of the last seconds in which it had no batch. */
export interface Consumer {
  name: string;
  used: number;
  waits: number;
}

/** A loader service; `waits` is the share of the last seconds in which the loader waited for its trainers. */
export interface Service {
  name: string;
  mode: string;
  /** In seconds. */
  age: number;
  epoch: number;
  /** Batches of the epoch that are used, and all of them: 0 if that is not known. */
  used: number;
  of: number;
  /** Batches and bytes a second. */
  rate: number;
  byteRate: number;
  waits: number;
  /** Trainers that are connected, and how many an epoch needs to begin. */
  count: number;
  needed: number;
  /** At most 32 of them. */
  consumers: Consumer[];
}

/** The state of disks, caches, mounts and loader services at one moment; `root` is the folder of the file browser. */
export interface Seen {
  root: string;
  disks: Disk[];
  caches: Cache[];
  mounts: Mount[];
  services: Service[];
}

/** Return the gauge of a folder: of those that hold it the innermost, and of these the fullest. */
export function gaugeOf(seen: Seen, folder: string): Disk | null {
  const inside = (path: string): boolean => `${folder}/`.startsWith(path.replace(/\/*$/, '/'));
  const [first = null] = seen.disks
    .filter(disk => inside(disk.path))
    .sort((a, b) => b.path.length - a.path.length || fullness(b).percent - fullness(a).percent);
  return first;
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
    return { percent, level: 'full', word: percent < 100 ? 'almost full' : 'full' };
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

/** Parse the response of the route `disks`. */
export function parseSeen(value: unknown): Seen {
  const { root, disks, caches, mounts, services } = raw(value);
  return {
    root: text(root),
    disks: parseDisks(disks),
    caches: parseCaches(caches),
    mounts: parseMounts(mounts),
    services: parseServices(services)
  };
}

function parseServices(value: unknown): Service[] {
  return list(value).map(item => {
    const service = raw(item);
    return {
      name: text(service.name),
      mode: name(service.mode),
      age: count(service.age),
      epoch: count(service.epoch),
      used: count(service.used),
      of: count(service.of),
      rate: count(service.rate),
      byteRate: count(service.byte_rate),
      waits: count(service.waits),
      count: count(service.count),
      needed: count(service.needed),
      consumers: list(service.consumers).map(one => {
        const consumer = raw(one);
        return {
          name: name(consumer.name),
          used: count(consumer.used),
          waits: count(consumer.waits)
        };
      })
    };
  });
}

function parseMounts(value: unknown): Mount[] {
  return list(value).map(item => {
    const mount = raw(item);
    return {
      path: text(mount.path),
      source: name(mount.source),
      age: count(mount.age),
      alive: mount.alive === true
    };
  });
}

function parseCaches(value: unknown): Cache[] {
  return list(value).map(item => {
    const cache = raw(item);
    return {
      path: text(cache.path),
      source: name(cache.source),
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
      source: name(disk.source),
      limit: count(disk.limit),
      used: count(disk.used),
      reserved: count(disk.reserved),
      free: count(disk.free),
      here: disk.here === true
    };
  });
}
