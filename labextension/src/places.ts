/** URLs of stores as people type them, and names in them. Pure functions. */

import { shortened } from './text.js';

const S3 = ['s3', 's3a', 'obs'];

/** The last part of a URL without a slash, as a name for a file or a folder; '' if it has none. */
export function lastName(url: string): string {
  const bare = url.replace(/^[^:]*:\/\//, '').replace(/\/+$/, '');
  const name = bare.slice(bare.lastIndexOf('/') + 1);
  if (!/^https?:/i.test(url)) {
    return name;
  }
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** Return the folder that a typed URL leads to, and how the names begin that it means. */
export function typed(text: string): { place: string; begin: string } {
  const url = text.trim();
  const after = url.indexOf('://') + 3;
  const slash = url.lastIndexOf('/');
  return after < 3 || slash < after || slash === url.length - 1
    ? { place: url, begin: '' }
    : { place: url.slice(0, slash + 1), begin: url.slice(slash + 1) };
}

/** True if a place is in a store. */
export function isUrl(place: string): boolean {
  return /^[A-Za-z][A-Za-z0-9+.-]*:\/\//.test(place);
}

/** True if a line takes the URL for a pattern of several names; as in `nbdata/paths.py`. */
export function hasGlob(url: string): boolean {
  return /[*?[]|\{[^{}]*(,|\.\.)[^{}]*\}/.test(url);
}

/** A text as a word of a line, as Python's `shlex.quote` writes it. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'"'"'`)}'`;
}

/** The line that pulls a URL into the folder of a notebook; the URL alone where a cell would change what it means. */
export function pullLine(url: string, connection: string): string {
  if (hasGlob(url) || /[{}$\p{Cc}]/u.test(url + connection)) {
    return url;
  }
  const through = connection && ` --option ${quoted(`connection=${connection}`)}`;
  return `%pull ${quoted(url)}${through}`;
}

/** Return the folder above; null at the top. */
export function above(place: string): string | null {
  const [scheme = '', rest = ''] = place.split(/:\/\/(.*)/s);
  const bare = rest.replace(/\/+$/, '');
  if (!bare) {
    return null;
  }
  const slash = bare.lastIndexOf('/');
  return slash >= 0
    ? `${scheme}://${bare.slice(0, slash + 1)}`
    : S3.includes(scheme)
      ? `${scheme}://`
      : null;
}

/** A path on the disk below a folder of Lab. */
export function pathOn(root: string, folder: string, name: string): string {
  return [root.replace(/\/+$/, ''), folder.replace(/^\/+|\/+$/g, ''), name]
    .filter((part, n) => n === 0 || part)
    .join('/');
}

/** The most characters of a name in a sentence. */
const LONGEST = 60;

export function short(name: string): string {
  return shortened(name, LONGEST);
}
