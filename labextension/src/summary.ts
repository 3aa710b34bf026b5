/** What the status bar says of all jobs and of the working disk; pure functions. */

import { duration, precise, size } from './format.js';
import { isFinished, isMoving, Job, waitsForSpace } from './model.js';
import { Disk, fullness } from './seen.js';
import { printable, trans } from './text.js';
import { diskFacts, state } from './words.js';

/** A part of the status bar: its text, and the same in words for tooltips and screen readers. */
export interface Fact {
  text: string;
  spoken: string;
  level: 'ok' | 'warn' | 'full';
}

/** The percentage of the working disk from which the status bar warns: later than the panel, since it is always seen. */
const WARNS = 85;

const UP = ['push', 'pack'];
const BOTH = ['copy'];

function arrow(jobs: readonly Job[]): string {
  const up = jobs.some(job => UP.includes(job.verb) || BOTH.includes(job.verb));
  const down = jobs.some(job => !UP.includes(job.verb));
  return up && down ? '⇅' : up ? '↑' : '↓';
}

/** Facts about unfinished jobs, and how many have `failed` since the user last looked. */
export function jobFacts(jobs: readonly Job[], failed: number): Fact[] {
  const ok = (text: string, spoken = text): Fact => ({ text, spoken, level: 'ok' });
  const active = jobs.filter(job => !isFinished(job));
  const moving = active.filter(job => isMoving(job) && job.rate > 0);
  const short = active.filter(waitsForSpace).length;
  const paused = active.filter(job => job.state === 'PAUSED').length - short;
  const rest = active.filter(job => job.state !== 'PAUSED' && !moving.includes(job));
  const facts: Fact[] = [];
  if (moving.length) {
    const rate = `${size(moving.reduce((sum, job) => sum + job.rate, 0))}/s`;
    const times = moving.map(job => job.eta);
    const known = times.filter(eta => eta !== null);
    // Without the time of one of them, nobody knows when all are over.
    const left = known.length === times.length ? duration(Math.max(...known)) : '';
    facts.push(
      ok(
        [`${arrow(moving)} ${rate}`, left].filter(Boolean).join(' · '),
        [rate, left && trans.__('%1 left', left)].filter(Boolean).join(', ')
      )
    );
  }
  if (short) {
    facts.push({
      ...ok(trans._n('%1 waits for space', '%1 wait for space', short)),
      level: 'warn'
    });
  }
  if (paused) {
    facts.push(ok(trans.__('%1 paused', paused)));
  }
  const [one] = rest;
  if (one && !moving.length) {
    facts.push(
      ok(rest.length === 1 ? state(one).toLowerCase() : trans.__('%1 waiting', rest.length))
    );
  }
  if (failed) {
    const text = trans.__('%1 failed', failed);
    facts.push({ text: `! ${text}`, spoken: text, level: 'full' });
  }
  return facts;
}

/** How full the working disk is; amber from 85 %, red from 95 %, with little left. */
export function diskFact(disk: Disk): Fact {
  const { percent, level, word } = fullness(disk);
  const text = precise(percent);
  return {
    text: trans.__('disk %1', text),
    spoken: [`${printable(disk.path)}: ${text}`, word, ...diskFacts(disk)]
      .filter(Boolean)
      .join(', '),
    level: percent < WARNS ? 'ok' : level
  };
}
