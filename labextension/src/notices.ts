/** Tells the ends of jobs with Lab's notifications: a toast for a success; a failure stays in the notification centre. */

import { Notification } from '@jupyterlab/apputils';

import { Feed } from './connection.js';
import { Job } from './model.js';
import { DEFAULTS, toldAs } from './settings.js';
import { beginning, shortened, trans } from './text.js';
import { again, failure, success } from './words.js';

/** Milliseconds for which a toast is shown. */
const SUCCESS_SHOWN = 10_000;
const FAILURE_SHOWN = 20_000;

/** Ends that are told one by one within so many milliseconds; further ones share a notification. */
const SINGLE = 3;
const WITHIN = 10_000;

/** The most characters that Lab shows of a notification. */
const LONGEST = 140;

type Kind = 'success' | 'failure';

/** What the buttons of notifications do. */
export interface Reactions {
  open(folder: string): Promise<void>;
  show(job: Job | null): void;
  again(job: Job): Promise<void>;
}

/** Counts the ends of one kind; `shared` is the notification of those that come too fast to be told one by one. */
class Burst {
  shared = '';
  more = 0;

  /** Add an end; true if it is told by itself, else it is one of `more`. */
  add(): boolean {
    const now = Date.now();
    this._told = this._told.filter(at => at > now - WITHIN);
    if (!this._told.length) {
      [this.shared, this.more] = ['', 0];
    }
    if (this._told.length < SINGLE) {
      this._told.push(now);
      return true;
    }
    this.more++;
    return false;
  }

  private _told: number[] = [];
}

/** Listens to the feed, and tells the end of each job once. */
export class Notices {
  settings = DEFAULTS;

  constructor(
    feed: Feed,
    private readonly _reactions: Reactions
  ) {
    feed.ended.connect((_, jobs) => this._tell(jobs));
  }

  private _tell(jobs: readonly Job[]): void {
    const crowded = new Set<Kind>();
    for (const job of jobs) {
      const kind = this._told.has(job.key) ? null : toldAs(job, this.settings);
      this._told.add(job.key);
      if (kind && this._bursts[kind].add()) {
        this._tellOne(job, kind);
      } else if (kind) {
        crowded.add(kind);
      }
    }
    crowded.forEach(kind => this._tellMore(kind));
  }

  private _tellOne(job: Job, kind: Kind): void {
    if (kind === 'success') {
      Notification.success(shortened(success(job), LONGEST), {
        autoClose: SUCCESS_SHOWN,
        actions: [job.folder === null ? this._show(job) : this._open(job.folder)]
      });
    } else {
      Notification.error(beginning(failure(job), LONGEST), {
        autoClose: FAILURE_SHOWN,
        actions: [this._show(job), ...(again(job) ? [this._again(job)] : [])]
      });
    }
  }

  private _tellMore(kind: Kind): void {
    const burst = this._bursts[kind];
    const actions = [this._show(null)];
    const message =
      kind === 'success'
        ? trans._n('%1 more transfer is done', '%1 more transfers are done', burst.more)
        : trans._n('%1 more transfer has failed', '%1 more transfers have failed', burst.more);
    if (Notification.update({ id: burst.shared, message, actions })) {
      return;
    }
    burst.shared =
      kind === 'success'
        ? Notification.success(message, { autoClose: SUCCESS_SHOWN, actions })
        : Notification.error(message, { autoClose: FAILURE_SHOWN, actions });
  }

  private _open(folder: string): Notification.IAction {
    return {
      label: trans.__('Open folder'),
      callback: () => void this._reactions.open(folder).catch(tellProblem)
    };
  }

  private _show(job: Job | null): Notification.IAction {
    return { label: trans.__('Show'), callback: () => this._reactions.show(job) };
  }

  private _again(job: Job): Notification.IAction {
    return {
      label: again(job),
      displayType: 'accent',
      callback: () => void this._reactions.again(job).catch(tellProblem)
    };
  }

  private readonly _told = new Set<string>();
  private readonly _bursts = { success: new Burst(), failure: new Burst() };
}

function tellProblem(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  Notification.error(beginning(message, LONGEST), { autoClose: FAILURE_SHOWN });
}
