/** Runs Operations by the server, and keeps how far they are and their results, for the sections of the panel. */

import { ISignal, Signal } from '@lumino/signaling';

import { ask } from './connection.js';
import { isOver, Operation, parseLine, parseResult, Result, Said } from './results.js';

/** Milliseconds between two questions how far an operation is: at first, and at most. */
const [FIRST, LONGEST] = [150, 1_000];
/** The most operations that are remembered. */
const MOST = 32;

/** An operation that the panel has begun; another object after each change. */
export interface Run {
  said: Said | null;
  result: Result | null;
  /** Why it could not be begun, or why nobody knows how far it is. */
  problem: string;
}

/** Return the line of an operation, or throw why it cannot be run. */
export async function sayLine(operation: Operation): Promise<Said> {
  return parseLine(await ask('line', 'POST', operation));
}

/** Fetch the files that a finished job could not do, with the reasons. */
export async function failuresOf(jobId: string): Promise<Result> {
  return parseResult(await ask(`jobs/${encodeURIComponent(jobId)}/report?action=bad`, 'GET'));
}

/** The newest run of each operation. */
export class Runs {
  /** Emitted after each change of a run. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted after the end of a run. */
  get ended(): ISignal<this, void> {
    return this._ended;
  }

  /** Return the newest run of an operation; null if there was none. */
  get(operation: Operation): Run | null {
    return this._runs.get(JSON.stringify(operation)) ?? null;
  }

  /** Run an operation, and follow it to its end. */
  async start(operation: Operation): Promise<void> {
    const key = JSON.stringify(operation);
    const begun: Run = { said: null, result: null, problem: '' };
    this._put(key, begun);
    let run = begun;
    const change = (fields: Partial<Run>): boolean => {
      if (this._runs.get(key) !== run) {
        return false; // forgotten, or begun again
      }
      run = { ...run, ...fields };
      this._put(key, run);
      return true;
    };
    try {
      const said = parseLine(await ask('run', 'POST', operation));
      if (!change({ said })) {
        await this._end(said.id);
        return;
      }
      for (let wait = FIRST; ; wait = Math.min(LONGEST, 1.5 * wait)) {
        await new Promise(done => window.setTimeout(done, wait));
        const result = parseResult(await ask(`jobs/${said.id}/report`, 'GET'));
        if (!change({ result })) {
          return;
        }
        if (isOver(result)) {
          this._ended.emit();
          return;
        }
      }
    } catch (error) {
      change({ problem: error instanceof Error ? error.message : String(error) });
    }
  }

  /** Forget a run; a plan or a query, which nobody else can see, ends. */
  forget(operation: Operation): void {
    const run = this.get(operation);
    if (run) {
      this._runs.delete(JSON.stringify(operation));
      if (run.said && !run.said.key && !run.problem && !(run.result && isOver(run.result))) {
        void this._end(run.said.id);
      }
      this._changed.emit();
    }
  }

  /** Cancel what runs; its result says so. */
  async cancel(operation: Operation): Promise<void> {
    const run = this.get(operation);
    if (run?.said) {
      await ask(`jobs/${run.said.id}/cancel`, 'POST');
    } else {
      this.forget(operation);
    }
  }

  private async _end(id: string): Promise<void> {
    await ask(`jobs/${id}/cancel`, 'POST').catch(() => undefined); // it has ended by itself
  }

  private _put(key: string, run: Run): void {
    this._runs.set(key, run);
    for (const old of [...this._runs.keys()].slice(0, -MOST)) {
      this._runs.delete(old);
    }
    this._changed.emit();
  }

  private readonly _runs = new Map<string, Run>();
  private readonly _changed = new Signal<this, void>(this);
  private readonly _ended = new Signal<this, void>(this);
}
