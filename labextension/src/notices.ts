/** Tells the ends of jobs with Lab's notifications: a toast for a success; a failure stays in the notification centre. */

import { Notification } from '@jupyterlab/apputils';

import { Feed } from './connection.js';
import { Job } from './model.js';
import { DEFAULTS, toldAs } from './settings.js';
import { shortened, trans } from './text.js';
import { again, failure, success } from './words.js';

/** Milliseconds for which a toast is shown. */
const SUCCESS_SHOWN = 10_000;
const FAILURE_SHOWN = 20_000;

/** Failures that are told one by one within so many milliseconds; further ones share a notification. */
const SINGLE = 3;
const WITHIN = 10_000;

/** The most characters that Lab shows of a notification. */
const LONGEST = 140;

/** What the buttons of notifications do. */
export interface Reactions {
  open(folder: string): Promise<void>;
  show(job: Job | null): void;
  again(job: Job): Promise<void>;
}

/** Listens to the feed, and tells the end of each job once. */
export class Notices {
  settings = DEFAULTS;

  constructor(
    feed: Feed,
    private readonly _reactions: Reactions
  ) {
    feed.ended.connect((_, jobs) => jobs.forEach(job => this._tell(job)));
  }

  private _tell(job: Job): void {
    const kind = this._told.has(job.key) ? null : toldAs(job, this.settings);
    this._told.add(job.key);
    if (kind === 'success') {
      Notification.success(shortened(success(job), LONGEST), {
        autoClose: SUCCESS_SHOWN,
        actions: [job.folder === null ? this._show(job) : this._open(job.folder)]
      });
    } else if (kind === 'failure') {
      this._tellFailure(job);
    }
  }

  private _tellFailure(job: Job): void {
    const now = Date.now();
    this._failures = this._failures.filter(at => at > now - WITHIN);
    this._failures.push(now);
    if (this._failures.length <= SINGLE) {
      Notification.error(shortened(failure(job), LONGEST), {
        autoClose: FAILURE_SHOWN,
        actions: [this._show(job), ...(again(job) ? [this._again(job)] : [])]
      });
      return;
    }
    const more = this._failures.length - SINGLE;
    const message = trans._n('%1 more transfer has failed', '%1 more transfers have failed', more);
    const actions = [this._show(null)];
    if (more === 1 || !Notification.update({ id: this._shared, message, actions })) {
      this._shared = Notification.error(message, { autoClose: FAILURE_SHOWN, actions });
    }
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
  private _failures: number[] = [];
  private _shared = '';
}

function tellProblem(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  Notification.error(shortened(message, LONGEST), { autoClose: FAILURE_SHOWN });
}
