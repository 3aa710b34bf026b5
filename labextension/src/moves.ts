/** What a plan would do, in words. Pure functions. */

import { size } from './format.js';
import { Moves, MovingVerb, Result } from './results.js';
import { trans } from './text.js';

/** The most objects of a plan that does not count all; it looks at one more, which says that there are more. */
export const MOST = 10_000;
/** The verbs whose plans have this bound; the others look at archives and at what is packed. */
const BOUND: readonly MovingVerb[] = ['pull', 'push', 'copy', 'md5check', 'delete'];
/** The most notes of a plan that are shown. */
const NOTES = 3;

function number(count: number): string {
  return count.toLocaleString('en');
}

/** True if a plan has not looked at all objects. */
export function isCut(verb: MovingVerb, plan: Result): boolean {
  return BOUND.includes(verb) && plan.isCut;
}

/** True if there is no room for what a plan would do. */
export function isTooLarge(plan: Result): boolean {
  return plan.moves !== null && plan.moves.free !== null && !plan.moves.fits;
}

/** The facts of a plan, each for a line. */
export function planned(verb: MovingVerb, plan: Result): string[] {
  const { moves } = plan;
  if (!moves) {
    return [];
  }
  const notes = plan.notes.slice(0, NOTES);
  switch (verb) {
    case 'md5check':
      return [...checking(plan), ...notes];
    case 'delete':
      return [objects(moves.all, sum(plan.actions), isCut(verb, plan)), ...notes];
    case 'untar_volumes':
      return [...(plan.isComplete ? [] : [volumes(plan, moves)]), ...room(moves, false), ...notes];
    case 'pack':
      return [
        trans._n(
          '%2 file to write, of %3',
          '%2 files to write, of %3',
          moves.objects,
          number(moves.objects),
          size(moves.bytes)
        ),
        ...there(moves),
        ...room(moves, false),
        ...notes
      ];
    default:
      return [...moving(moves, isCut(verb, plan)), ...notes];
  }
}

/** The facts of a plan that moves objects; `cut` if it has not looked at all. */
export function moving(moves: Moves, cut: boolean): string[] {
  return [objects(moves.objects, moves.bytes, cut), ...there(moves), ...room(moves, cut)];
}

function sum(values: ReadonlyMap<string, number>): number {
  return [...values.values()].reduce((all, value) => all + value, 0);
}

function objects(found: number, bytes: number, cut: boolean): string {
  const count = cut ? Math.min(found, MOST) : found;
  return cut
    ? trans.__('at least %1 objects, %2', number(count), size(bytes))
    : trans._n('%2 object, %3', '%2 objects, %3', count, number(count), size(bytes));
}

function volumes(plan: Result, moves: Moves): string {
  const count = plan.volumes || moves.all;
  return trans._n(
    '%2 volume, %3 to read',
    '%2 volumes, %3 to read',
    count,
    number(count),
    size(moves.bytes)
  );
}

function there(moves: Moves): string[] {
  const count = moves.all - moves.objects;
  return count > 0 ? [trans.__('%1 are there already, or stay as they are', number(count))] : [];
}

function room(moves: Moves, cut: boolean): string[] {
  if (moves.free === null) {
    return [];
  }
  if (!moves.fits) {
    return [trans.__('it does not fit: %1 needed, %2 free', size(moves.needed), size(moves.free))];
  }
  const left = size(Math.max(0, moves.free - moves.needed));
  return [
    cut ? trans.__('at most %1 free after that', left) : trans.__('%1 free after that', left)
  ];
}

function checking(plan: Result): string[] {
  const count = plan.counts.get('check') ?? 0;
  const bytes = size(plan.actions.get('check') ?? 0);
  const first = isCut('md5check', plan)
    ? trans.__('at least %1 files to check, %2', number(count), bytes)
    : trans._n('%2 file to check, %3', '%2 files to check, %3', count, number(count), bytes);
  const others: [string, (count: string) => string][] = [
    ['mismatch', n => trans.__('%1 differ already in size', n)],
    ['missing', n => trans.__('%1 are missing', n)],
    ['conflict', n => trans.__('%1 have checksums that contradict each other', n)],
    ['extra', n => trans.__('%1 are in no list', n)],
    ['unverifiable', n => trans.__('%1 have no checksum', n)],
    ['unreadable', n => trans.__('%1 lists cannot be read', n)]
  ];
  return [
    first,
    ...others.flatMap(([action, say]) => {
      const found = plan.counts.get(action) ?? 0;
      return found > 0 ? [say(number(found))] : [];
    })
  ];
}
