/** The plan of an operation while the user still chooses: asked for anew after each change, and ended before that. */

import * as React from 'react';

import { ask } from './connection.js';
import { Moving, parseResult, Result } from './results.js';

/** Milliseconds for which the plan waits until the user has typed on. */
const PAUSE = 400;

/** The plan, if it is there, and what can be done about it. */
export interface Planned {
  plan: Result | null;
  problem: string;
  isRunning: boolean;
  isStopped: boolean;
  /** End the work on it, until the operation changes. */
  stop: () => void;
  /** Plan again, all objects if `countAll` is set. */
  again: (countAll?: boolean) => void;
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
  const { isStopped, countAll, times } =
    told.key === key ? told : { isStopped: false, countAll: false, times: 0 };
  const asked = key && !isStopped ? `${times} ${countAll ? 'all' : 'some'} ${key}` : '';
  React.useEffect(() => {
    if (!asked) {
      return undefined;
    }
    const control = new AbortController();
    const body = { ...(JSON.parse(key) as Moving), ...(countAll && { count_all: true }) };
    const took = (plan: Result | null, problem: string): void => {
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
    stop: () => tell({ key, isStopped: true, countAll: false, times }),
    again: (all = false) => tell({ key, isStopped: false, countAll: all, times: times + 1 })
  };
}
