/** The dialogs of the verbs: what each asks for, and the operation that its fields make. Pure functions. */

import { isUrl, lastName } from './places.js';
import { Moving, MovingVerb } from './results.js';
import { printable, trans } from './text.js';

/** What a dialog asks for, and its texts. */
export interface Description {
  /** The button that opens the dialog. */
  open: string;
  /** The heading of the dialog. */
  heading: string;
  /** What the target is: on the disk, in a store, either, where checksums are; null if the verb has none. */
  target: 'disk' | 'store' | 'either' | 'checksums' | null;
  /** The name of the field of the target. */
  into: string;
  /** The option that takes only what matches. */
  only: 'include' | 'members';
  /** The ways to verify, the default first; none if there is no choice. */
  verify: readonly string[];
  start: string;
  planning: string;
  running: string;
  done: string;
  help: string;
}

const ANY = ['auto', 'none', 'md5', 'sha256', 'crc32c'];

/** Describe the dialog of a verb. */
export function describe(verb: MovingVerb): Description {
  const usual = {
    into: trans.__('Into'),
    only: 'include' as const,
    verify: ANY,
    start: trans.__('Start'),
    help: ''
  };
  switch (verb) {
    case 'pull':
      return {
        ...usual,
        open: trans.__('Pull here…'),
        heading: trans.__('Pull here'),
        target: 'disk',
        planning: trans.__('Looking what would be pulled'),
        running: trans.__('Pulling; it is among the transfers'),
        done: trans.__('Pulled.')
      };
    case 'push':
      return {
        ...usual,
        open: trans.__('Push to a store…'),
        heading: trans.__('Push to a store'),
        target: 'store',
        verify: ANY.slice(0, 3),
        planning: trans.__('Looking what would be pushed'),
        running: trans.__('Pushing; it is among the transfers'),
        done: trans.__('Pushed.'),
        help: trans.__('A file goes into a URL that ends in a slash; else it gets this name.')
      };
    case 'copy':
      return {
        ...usual,
        open: trans.__('Copy…'),
        heading: trans.__('Copy'),
        target: 'store',
        verify: ANY.slice(0, 3),
        planning: trans.__('Looking what would be copied'),
        running: trans.__('Copying; it is among the transfers'),
        done: trans.__('Copied.'),
        help: trans.__('From store to store, without the disk.')
      };
    case 'md5check':
      return {
        ...usual,
        open: trans.__('Check…'),
        heading: trans.__('Check'),
        target: 'checksums',
        into: trans.__('Against'),
        verify: [],
        planning: trans.__('Looking for checksums'),
        running: trans.__('Checking; it is among the transfers'),
        done: trans.__('Checked.'),
        help: trans.__(
          'A folder or a file with checksums, or the same data elsewhere. Empty: the checksums beside the files, or those of the store.'
        )
      };
    case 'untar_volumes':
      return {
        ...usual,
        open: trans.__('Unpack…'),
        heading: trans.__('Unpack'),
        target: 'either',
        only: 'members',
        verify: ANY.slice(0, 2),
        planning: trans.__('Looking for volumes'),
        running: trans.__('Unpacking; it is among the transfers'),
        done: trans.__('Unpacked.'),
        help: trans.__('A folder of the disk or a URL. Into a store it needs no disk.')
      };
    case 'pack':
      return {
        ...usual,
        open: trans.__('Pack…'),
        heading: trans.__('Pack'),
        target: 'either',
        planning: trans.__('Looking what would be packed'),
        running: trans.__('Packing; it is among the transfers'),
        done: trans.__('Packed.'),
        help: trans.__(
          'A name that ends in .tar.gz, .tar.zst or .zip makes an archive, and a folder tar shards.'
        )
      };
    case 'delete':
      return {
        ...usual,
        open: trans.__('Delete…'),
        heading: trans.__('Delete'),
        target: null,
        verify: [],
        start: trans.__('Delete…'),
        planning: trans.__('Looking what would be deleted'),
        running: trans.__('Deleting; it is among the transfers'),
        done: trans.__('Deleted. “List again” shows what is left.'),
        help: trans.__('It cannot be undone, unless the bucket keeps versions.')
      };
  }
}

/** What a way to verify means. */
export function verifying(way: string): string {
  switch (way) {
    case 'auto':
      return trans.__('where a checksum is known');
    case 'none':
      return trans.__('nothing');
    default:
      return trans.__('by %1, which must be known', way.toUpperCase());
  }
}

/** What the user has typed and chosen. */
export interface Fields {
  target: string;
  only: string;
  without: string;
  verify: string;
  /** The connection of the target; empty for that of the source, or what the server finds by itself. */
  through: string;
}

/** The patterns in a text: spaces are between them. */
export function patterns(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

/** True if the target of a verb, in a store, may have another connection than the source. */
export function hasConnectionOfItsOwn(verb: MovingVerb, source: string): boolean {
  return verb !== 'md5check' || !isUrl(source);
}

/** The most names that are chosen at once: a request takes no more patterns. */
export const MOST_CHOSEN = 100;

/** The verbs that take several entries of a folder. */
const OF_SEVERAL: readonly MovingVerb[] = ['pull', 'push', 'copy', 'md5check', 'pack', 'delete'];

/**
 * Say why a verb cannot take several entries of the folder `source` by one line; '' if it can.
 *
 * The line names the folder, and each entry by a pattern that matches nothing else.
 */
export function whyNotSeveral(verb: MovingVerb, source: string, chosen: readonly string[]): string {
  const odd = chosen.find(name => /[\\\p{Cc}]/u.test(name) || /^(\.\.?)?\/*$/.test(name));
  if (!OF_SEVERAL.includes(verb)) {
    return trans.__('A line takes one archive. Choose the folder if all of it is one archive.');
  }
  if (chosen.length > MOST_CHOSEN) {
    return trans.__('A line takes at most %1 of them. Use filters instead.', MOST_CHOSEN);
  }
  if (/^[^:/]+:\/\/$/.test(source)) {
    return trans.__('A line takes one bucket.');
  }
  return odd === undefined
    ? ''
    : trans.__('A pattern for %1 cannot be written. Choose it alone.', printable(odd));
}

/** The pattern that matches an entry of the source and what is below it; as in `nbdata/globs.py`. */
export function patternOf(name: string): string {
  return `/${name.replace(/\/+$/, '').replace(/[*?[{}]/g, '[$&]')}`;
}

/** Return the operation of a dialog; `connection` is that of the source, of which `chosen` are taken if there are any. */
export function operationOf(
  verb: MovingVerb,
  source: string,
  fields: Fields,
  connection: string,
  chosen: readonly string[] = []
): Moving {
  const { target: place, only, verify } = describe(verb);
  const target = fields.target.trim();
  const wanted = chosen.length > 0 ? chosen.map(patternOf) : patterns(fields.only);
  const unwanted = patterns(fields.without);
  const isStored = isUrl(target) && fields.through !== '' && hasConnectionOfItsOwn(verb, source);
  // A verb with one store takes its connection as that of the operation.
  const own = place === 'either' || verb === 'copy' ? 'target_connection' : 'connection';
  return {
    verb,
    source,
    ...(place === 'checksums' ? target && { against: target } : place && { target }),
    ...(wanted.length > 0 && { [only]: wanted }),
    ...(unwanted.length > 0 && { exclude: unwanted }),
    ...(verify.length > 0 && fields.verify !== verify[0] && { verify: fields.verify }),
    ...(verb === 'delete' && { yes: true as const }),
    ...(connection && { connection }),
    ...(isStored && fields.through !== connection && { [own]: fields.through })
  };
}

/** True if the verb can begin with this target. */
export function isComplete(verb: MovingVerb, target: string): boolean {
  const { target: place } = describe(verb);
  return place === null || place === 'checksums' || target.trim() !== '';
}

const ENDS = /(\.tar)?\.(gz|bz2|xz|zst|lz4)$|\.(tar|tgz|tbz2|txz|tzst|zip|ffr)$/i;

/** The name of what is in an archive or one of its volumes: `site.tar.gz.000` is `site`. */
export function unpackedName(place: string): string {
  const name = lastName(place);
  const whole = name.replace(/\.\d{2,6}$|\.part\d*$/i, '');
  const bare = whole.replace(ENDS, '');
  return bare && bare !== name ? bare : name && bare === name ? `${name}-files` : name;
}

/**
 * Return what a dialog suggests as target.
 *
 * `folder` is the folder of Lab's file browser, empty if it is not known, and `stored` the one that is browsed.
 */
export function suggested(
  verb: MovingVerb,
  source: string,
  folder: string,
  stored: string | null,
  isFile = false,
  areSeveral = false
): string {
  const join = (base: string, name: string): string =>
    base && `${base.replace(/\/+$/, '')}/${name}`;
  switch (verb) {
    case 'pull':
      return join(folder, lastName(source));
    case 'push':
      // A file goes into a folder of the store, a folder's content below one of its name.
      return stored ? join(stored, isFile || areSeveral ? '' : `${lastName(source)}/`) : '';
    case 'untar_volumes':
      return join(folder, unpackedName(source));
    case 'pack':
      return join(folder, `${lastName(source)}.tar.gz`);
    default:
      return '';
  }
}
