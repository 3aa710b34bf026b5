/** Reads values out of JSON that may be of another version. Pure functions. */

import { printable } from './text.js';

export type Raw = Record<string, unknown>;

/** An object; anything else is an empty one. */
export function raw(value: unknown): Raw {
  return typeof value === 'object' && value !== null ? (value as Raw) : {};
}

/** A text as it came; anything else is empty. */
export function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** A text that is only shown. */
export function name(value: unknown): string {
  return printable(text(value));
}

/** A number; anything else is 0. */
export function count(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
}

/** A number; anything else is null. */
export function maybe(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

/** A list; anything else is an empty one. */
export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}
