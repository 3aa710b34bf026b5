/** Looks at the disks and caches from time to time, for the panel and the status bar. */

import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { look } from './connection.js';
import { Seen } from './seen.js';

/** Milliseconds between two looks while the panel is visible, and while only the status bar shows a disk. */
const NEAR = 5_000;
const FAR = 60_000;

/** The newest state of the disks; null before the first answer. */
export class Gauges {
  constructor() {
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden && this._isWanted) {
        void this._poll.refresh();
      }
    });
  }

  /** True while the status bar shows a disk. */
  isInStatusBar = false;

  /** Emitted after each look, also after one that failed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get seen(): Seen | null {
    return this._seen;
  }

  /** Why the last look failed; empty if it did not. */
  get problem(): string {
    return this._problem;
  }

  /** Look often while the panel is visible. */
  set isNear(near: boolean) {
    this._isNear = near;
    this._poll.frequency = frequencyOf(near);
    if (near) {
      void this._poll.refresh();
    }
  }

  /** Look now. */
  async refresh(): Promise<void> {
    await this._poll.refresh();
    await this._poll.tick;
  }

  private get _isWanted(): boolean {
    return this._isNear || this.isInStatusBar;
  }

  private async _look(): Promise<void> {
    try {
      this._seen = await look();
      this._problem = '';
    } catch (error) {
      this._problem = error instanceof Error ? error.message : String(error);
      throw error; // makes the poll wait longer
    } finally {
      this._changed.emit();
    }
  }

  private _seen: Seen | null = null;
  private _problem = '';
  private _isNear = false;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _poll = new Poll({
    factory: () => this._look(),
    frequency: frequencyOf(false),
    standby: () => document.hidden || !this._isWanted,
    name: 'nbdata:disks'
  });
}

function frequencyOf(near: boolean): { interval: number; backoff: boolean; max: number } {
  const interval = near ? NEAR : FAR;
  return { interval, backoff: true, max: 12 * interval };
}
