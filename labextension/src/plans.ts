/** The plan of an operation while the user still chooses: asked for anew after each change, and ended before that. */

import * as React from 'react';

import { ask } from './connection.js';
import { Moving, parseListed, parseResult, Result } from './results.js';

/** Milliseconds for which the plan waits until the user has typed on. */
const PAUSE = 400;
/** Milliseconds between two questions how far a plan is that counts all. */
const LOOK = 1_000;

/** The plan, if it is there, and what can be done about it. */
export interface Planned {
  plan: Result | null;
  problem: string;
  isRunning: boolean;
  isStopped: boolean;
  /** How many entries were listed so far, of a plan that counts all; null if that is not known. */
  listed: number | null;
  /** End the work on it, until the operation changes. */
  stop: () => void;
  /** Plan again, all objects if `countAll` is set. */
  again: (countAll?: boolean) => void;
}

/** A name for a plan that nobody else uses. */
function newName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
}

/** Follow the plan of an operation; null for none. */
export function usePlan(operation: Moving | null): Planned {
  const key = operation ? JSON.stringify(operation) : '';
  const [told, tell] = React.useState({ key: '', isStopped: false, countAll: false, times: 0 });
  const [known, setKnown] = React.useState<{
    asked: string;
    plan: Result | null;
    problem: string;
  }>();
  const [far, setFar] = React.useState<{ asked: string; listed: number }>();
  const { isStopped, countAll, times } =
    told.key === key ? told : { isStopped: false, countAll: false, times: 0 };
  const asked = key && !isStopped ? `${times} ${countAll ? 'all' : 'some'} ${key}` : '';
  React.useEffect(() => {
    if (!asked) {
      return undefined;
    }
    const control = new AbortController();
    const watch = countAll ? newName() : '';
    const body = {
      ...(JSON.parse(key) as Moving),
      ...(countAll && { count_all: true, watch })
    };
    const took = (plan: Result | null, problem: string): void => {
      window.clearInterval(looking);
      if (!control.signal.aborted) {
        setKnown({ asked, plan, problem });
      }
    };
    const begin = (): void => {
      ask('plan', 'POST', body, control.signal).then(
        answer => took(parseResult(answer), ''),
        (error: unknown) => took(null, error instanceof Error ? error.message : String(error))
      );
    };
    const timer = window.setTimeout(begin, times > 0 ? 0 : PAUSE);
    const looking = watch
      ? window.setInterval(() => {
          ask(`plan/${watch}`, 'GET', undefined, control.signal).then(
            answer => setFar({ asked, listed: parseListed(answer) }),
            () => undefined // it is made, or not begun
          );
        }, LOOK)
      : 0;
    control.signal.addEventListener('abort', () => window.clearInterval(looking));
    return () => {
      window.clearTimeout(timer);
      control.abort(); // the server ends a plan whose request is aborted
    };
  }, [asked, key, countAll, times]);
  const found = asked && known?.asked === asked ? known : null;
  return {
    plan: found?.plan ?? null,
    problem: found?.problem ?? '',
    isRunning: asked !== '' && !found,
    isStopped: key !== '' && isStopped,
    listed: asked && far?.asked === asked ? far.listed : null,
    stop: () => tell({ key, isStopped: true, countAll: false, times }),
    again: (all = false) => tell({ key, isStopped: false, countAll: all, times: times + 1 })
  };
}
