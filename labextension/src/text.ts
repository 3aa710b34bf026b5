/** The texts of the panel: Lab's translation of them, and names from outside in a form that is safe to show. */

import type { TranslationBundle } from '@jupyterlab/translation';

type Texts = Pick<TranslationBundle, '__' | '_n'>;

const fill = (text: string, ...values: unknown[]): string =>
  text.replace(/%(\d+)/g, (_, place: string) => String(values[Number(place) - 1]));

const ENGLISH: Texts = {
  __: fill,
  _n: (one, many, count, ...values: unknown[]) => fill(count === 1 ? one : many, count, ...values)
};

let chosen = ENGLISH;

/** Translate all texts of the panel with this bundle from now on. */
export function translateWith(texts: Texts): void {
  chosen = texts;
}

/** Lab's translation; English until the plugin has started, and in tests. */
export const trans: Texts = {
  __: (text, ...values) => chosen.__(text, ...(values as string[])),
  _n: (one, many, count, ...values) => chosen._n(one, many, count, ...(values as string[]))
};

/**
 * Control, line-separating, direction-changing and zero-width characters, lone surrogates and blank fillers.
 *
 * They could disguise a name, break a line, or hide a part of it.
 */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164\uffa0]/gu;

const SHORT: Record<string, string> = { '\t': '\\t', '\n': '\\n', '\r': '\\r' };

function escaped(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  const digits = code > 0xffff ? 8 : code > 0xff ? 4 : 2;
  const prefix = { 8: 'U', 4: 'u', 2: 'x' }[digits];
  return SHORT[char] ?? `\\${prefix}${code.toString(16).padStart(digits, '0')}`;
}

/** A text from outside on one line, with its hidden characters escaped as Python does: `\x1b`, `\u202e`. */
export function printable(text: string): string {
  return text.replace(HIDDEN, escaped);
}

/** The same for a text of several lines; its line ends and tabs stay. */
export function printableLines(text: string): string {
  return text.replace(HIDDEN, char => (char === '\n' || char === '\t' ? char : escaped(char)));
}

/** A text of at most so many characters; of a longer one the last words are left out. */
export function beginning(text: string, most: number): string {
  const chars = Array.from(text);
  if (chars.length <= most) {
    return text;
  }
  const kept = chars.slice(0, most - 1).join('');
  const words = kept.replace(/\s\S*$/, '');
  // A single long word, such as a path, is cut.
  return `${words.length > kept.length / 2 ? words : kept}…`;
}

/** A text of at most so many characters; the middle of a longer one is left out. */
export function shortened(text: string, most: number): string {
  const chars = Array.from(text);
  const kept = Math.floor((most - 1) / 2);
  return chars.length > most
    ? `${chars.slice(0, kept).join('')}…${chars.slice(-kept).join('')}`
    : text;
}
