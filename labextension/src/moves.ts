/** What a plan would move, in words. Pure functions. */

import { size } from './format.js';
import { Moves } from './results.js';
import { trans } from './text.js';

/** The most objects of a plan; it asks for one more, so that it can say that there are more. */
export const MOST = 10_000;

/** The facts of a plan, each for a line. */
export function moving(moves: Moves): string[] {
  const isCut = moves.all > MOST;
  const objects = isCut ? Math.min(moves.objects, MOST) : moves.objects;
  const count = objects.toLocaleString('en');
  const facts = [
    isCut
      ? trans.__('at least %1 objects, %2', count, size(moves.bytes))
      : trans._n('%2 object, %3', '%2 objects, %3', objects, count, size(moves.bytes))
  ];
  const there = moves.all - moves.objects;
  if (there > 0) {
    facts.push(trans.__('%1 are there already, or stay as they are', there.toLocaleString('en')));
  }
  if (moves.free !== null && moves.fits) {
    const left = size(Math.max(0, moves.free - moves.needed));
    facts.push(
      isCut ? trans.__('at most %1 free after that', left) : trans.__('%1 free after that', left)
    );
  } else if (moves.free !== null) {
    facts.push(
      trans.__('it does not fit: %1 needed, %2 free', size(moves.needed), size(moves.free))
    );
  }
  return facts;
}
