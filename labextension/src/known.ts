/** What the server says of connections. Pure functions. */

import { printable } from './text.js';

/** A connection that is kept; the server never tells its keys. */
export interface Kept {
  name: string;
  place: string;
  endpoint: string;
  isPublic: boolean;
}

export interface Known {
  kept: Kept[];
  /** The names of profiles, logins and variables on the server. */
  found: string[];
  /** The folders of recent jobs, as they came; show them as `printable`. */
  recent: string[];
}

function text(value: unknown): string {
  return typeof value === 'string' ? printable(value) : '';
}

function items(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

/** Parse the response of the route `connections`. */
export function parseKnown(value: unknown): Known {
  const { kept, found, recent } = record(value);
  return {
    kept: items(kept).map(parseKept),
    found: items(found).map(text),
    recent: items(recent).filter(url => typeof url === 'string')
  };
}

/** Parse one connection. */
export function parseKept(value: unknown): Kept {
  const { name, place, endpoint, anonymous } = record(value);
  return {
    name: text(name),
    place: text(place),
    endpoint: text(endpoint),
    isPublic: anonymous === true
  };
}
