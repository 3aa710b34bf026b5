/** What the server says of an operation of the panel, and what the sections make of that. Pure functions. */

import { count, list, raw, text } from './json.js';
import { printable } from './text.js';

/** The verb and the options of an operation, as `nbdata/server/asked.py` takes them. */
export type Operation =
  | Moving
  | { verb: 'du'; place: string; connection?: string }
  | { verb: 'quota'; path: string; limit: string }
  | { verb: 'untar_volumes'; source: string; list: true; connection?: string }
  | {
      verb: 'cleanup';
      source: string;
      caches?: true;
      stored?: true;
      only_here?: true;
      dry_run?: true;
    };

/** The verbs that have a dialog. */
export type MovingVerb =
  'pull' | 'push' | 'copy' | 'md5check' | 'untar_volumes' | 'pack' | 'delete';

/** What a dialog begins. */
export interface Moving {
  verb: MovingVerb;
  source: string;
  target?: string;
  against?: string;
  include?: string[];
  members?: string[];
  exclude?: string[];
  verify?: string;
  yes?: true;
  connection?: string;
  target_connection?: string;
}

/** The line of an operation, as it came; once it is begun also its id, and its key if it is among the jobs. */
export interface Said {
  id: string;
  key: string;
  line: string;
  whyNoLine: string;
}

/** A row of a report or a plan. */
export interface Row {
  /** As it came; show it as `printable`. */
  path: string;
  action: string;
  size: number;
  reason: string;
  numbers: ReadonlyMap<string, number>;
}

/** A plan or a report, or how far it is. */
export interface Result {
  state: string;
  error: string;
  files: number;
  /** When it ended, in seconds; 0 if that is not known. */
  ended: number;
  /** What a report says of its end, in one line. */
  outcome: string;
  notes: string[];
  rows: Row[];
  count: number;
  /** The numbers of `frees` and `stays`, and the bytes of each action, of a plan of cleanup. */
  frees: ReadonlyMap<string, number>;
  stays: ReadonlyMap<string, number>;
  actions: ReadonlyMap<string, number>;
  /** The objects of each action of a plan. */
  counts: ReadonlyMap<string, number>;
  /** The bytes that a cleanup has freed. */
  freed: number;
  /** Of a plan that unpacks: the number of volumes, and whether all of them are unpacked. */
  volumes: number;
  isComplete: boolean;
  /** Of a plan: whether it has not looked at all objects. */
  isCut: boolean;
  /** Of a plan that moves objects; null in other results. */
  moves: Moves | null;
}

/** What a plan would move, in objects and bytes, and the room for that; null where it is not known. */
export interface Moves {
  objects: number;
  bytes: number;
  /** The objects that are looked at, with those that are there already. */
  all: number;
  needed: number;
  free: number | null;
  fits: boolean;
}

export function isOver(result: Result): boolean {
  return ['DONE', 'FAILED', 'CANCELLED', 'INTERRUPTED'].includes(result.state);
}

/** What fills a folder, in the order of a bar: as `%du` names it. */
export const FILLS = ['known', 'caches', 'partial', 'only_here'] as const;

export type Fill = (typeof FILLS)[number];

/** A folder, or the files that are in no other folder, with its bytes on the disk. */
export interface Filled {
  name: string;
  /** Whether it is a folder that can be looked into. */
  isFolder: boolean;
  disk: number;
  fills: Record<Fill, number>;
}

/** Return what `%du` found: the folders, largest first, with the files beside them; and the sum of all. */
export function filled(result: Result): { total: Filled; parts: Filled[] } {
  const rows = result.rows.map(filledBy);
  const total = rows.find(row => row.name === '') ?? nothing('');
  const folders = rows.filter(row => row.name !== '');
  const rest = nothing('');
  if (folders.length === result.count - 1) {
    rest.disk = total.disk - sum(folders.map(folder => folder.disk));
    for (const fill of FILLS) {
      rest.fills[fill] = total.fills[fill] - sum(folders.map(folder => folder.fills[fill]));
    }
  }
  const parts = sum(Object.values(rest.fills)) > 0 ? [...folders, rest] : folders;
  return { total, parts: parts.sort((a, b) => b.disk - a.disk) };
}

function filledBy(row: Row): Filled {
  const found = nothing(row.action === 'total' ? '' : row.path.replace(/\/$/, ''));
  found.isFolder = row.action !== 'total';
  found.disk = row.numbers.get('disk') ?? row.size;
  for (const fill of FILLS) {
    found.fills[fill] = row.numbers.get(fill) ?? 0;
  }
  return found;
}

function nothing(name: string): Filled {
  return {
    name,
    isFolder: false,
    disk: 0,
    fills: { known: 0, caches: 0, partial: 0, only_here: 0 }
  };
}

function sum(values: number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

/** What a plan of cleanup frees, in bytes; null for those that nobody asked a store about. */
export interface Freeing {
  all: number;
  again: number | null;
  lost: number;
  stays: number;
  unknown: number;
}

/** Return what a plan of cleanup frees. */
export function freeing(plan: Result): Freeing {
  const of = (from: ReadonlyMap<string, number>, name: string): number => from.get(name) ?? 0;
  if (!plan.frees.size) {
    const all = of(plan.actions, 'remove') + of(plan.actions, 'delete');
    return { all, again: null, lost: 0, stays: 0, unknown: 0 };
  }
  return {
    all: sum([...plan.frees.values()]),
    again: of(plan.frees, 'stored'),
    lost: of(plan.frees, 'only_here'),
    stays: of(plan.stays, 'only_here'),
    unknown: of(plan.stays, 'not_asked')
  };
}

/** A cell of a spreadsheet; one that a program would take for a formula is made a text. */
function cell(text: string): string {
  const safe = /^[=+\-@]/.test(text) ? `'${text}` : text;
  return `"${safe.replace(/"/g, '""')}"`;
}

/** Failed files as a file of comma-separated values. */
export function csv(rows: readonly Row[]): string {
  const lines = [['file', 'outcome', 'reason'], ...rows.map(r => [r.path, r.action, r.reason])];
  return lines.map(line => `${line.map(text => cell(printable(text))).join(',')}\r\n`).join('');
}

/** Failed files as lines of text. */
export function plain(rows: readonly Row[]): string {
  const said = (row: Row): string => [row.path, row.reason].filter(Boolean).join(': ');
  return rows.map(row => `${printable(said(row))}\n`).join('');
}

// -- from JSON ----------------------------------------------------------------------------------

function numbers(value: unknown): Map<string, number> {
  const found = new Map<string, number>();
  for (const [name, number] of Object.entries(raw(value))) {
    if (typeof number === 'number') {
      found.set(name, number);
    }
  }
  return found;
}

/** Parse the response of the routes `run` and `line`. */
export function parseLine(value: unknown): Said {
  const said = raw(value);
  return {
    id: text(said.id),
    key: text(said.key),
    line: text(said.line),
    whyNoLine: printable(text(said.why_no_line))
  };
}

/** Parse the response of the route `report`. */
export function parseResult(value: unknown): Result {
  const result = raw(value);
  const details = raw(result.details);
  const sums = Object.entries(raw(result.actions));
  const actions = sums.map(([name, both]) => [name, count(list(both)[1])] as const);
  const counts = sums.map(([name, both]) => [name, count(list(both)[0])] as const);
  const all = sum(counts.map(([, objects]) => objects));
  return {
    state: text(result.state),
    error: printable(text(result.error)),
    files: count(result.files),
    ended: count(result.ended),
    outcome: printable(text(result.outcome)),
    notes: list(result.notes).map(note => printable(text(note))),
    rows: list(result.rows).map(parseRow),
    count: count(result.count),
    frees: numbers(details.frees),
    stays: numbers(details.stays),
    actions: new Map(actions),
    counts: new Map(counts),
    freed: count(details.freed),
    volumes: count(details.volumes),
    isComplete: details.complete === true,
    isCut: result.is_cut === true,
    moves: parseMoves(result.moves, all)
  };
}

/** Parse how many entries a plan has listed so far. */
export function parseListed(value: unknown): number {
  return count(raw(value).listed);
}

function parseMoves(value: unknown, all: number): Moves | null {
  const { files, bytes, needed, free, fits } = raw(value);
  return typeof files === 'number'
    ? {
        objects: files,
        bytes: count(bytes),
        all,
        needed: count(needed),
        free: typeof free === 'number' ? free : null,
        fits: fits === true
      }
    : null;
}

function parseRow(value: unknown): Row {
  const row = raw(value);
  const detail = raw(row.detail);
  return {
    path: text(row.path),
    action: text(row.action),
    size: count(row.size),
    reason: text(detail.reason),
    numbers: numbers(row.detail)
  };
}
