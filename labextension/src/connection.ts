/** Talks to nbdata's server extension: the live feed, the disks, and commands for jobs, caches and mounts. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

import { Action, EMPTY, endedIn, Event, Job, MINUTE, Model, parseUpdate, reduce } from './model.js';
import { Cache, Mount, parseSeen, Seen } from './seen.js';
import { printable, trans } from './text.js';

const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 30_000;
/**
 * Milliseconds without a message after which a connection counts as lost; the server sends one every 15 s.
 *
 * No close tells it, for example after the computer has slept.
 */
const SILENCE = 45_000;
/**
 * Milliseconds in which the connection that takes the place of a silent one brings a message.
 *
 * Nothing is said before: a notice that comes and goes within a moment moves the cards while the user clicks on one.
 */
const PROMPT = 5_000;
/** Milliseconds for which a page that nobody sees stays connected: as long as a sparkline remembers. */
const UNSEEN = 1_000 * MINUTE;

/** Send a request and return the response's JSON; throws an error with the server's message. */
export async function ask(
  path: string,
  method: 'GET' | 'POST',
  body?: object,
  signal?: AbortSignal
): Promise<unknown> {
  const settings = ServerConnection.makeSettings();
  const url = URLExt.join(settings.baseUrl, 'nbdata/api', path);
  const response = await ServerConnection.makeRequest(
    url,
    { method, ...(body && { body: JSON.stringify(body) }), ...(signal && { signal }) },
    settings
  );
  const answer = (await response.json().catch(() => null)) as {
    message?: unknown;
    remedy?: unknown;
  } | null;
  if (!response.ok) {
    const said = typeof answer?.message === 'string' ? answer.message : response.statusText;
    const remedy = typeof answer?.remedy === 'string' && answer.remedy ? `. ${answer.remedy}` : '';
    throw new Error(
      printable(`${said || trans.__('the server answered %1', response.status)}${remedy}`)
    );
  }
  return answer;
}

/** Pause, resume or cancel a job, or start it again. */
export async function act(job: Job, action: Action | 'again'): Promise<void> {
  await ask(`jobs/${encodeURIComponent(job.id)}/${action}`, 'POST');
}

/** Limit the rate of a job to what `--max-rate` takes; an empty text lifts the limit. */
export async function limit(job: Job, rate: string): Promise<void> {
  await ask(`jobs/${encodeURIComponent(job.id)}/limit`, 'POST', { max_rate: rate || null });
}

/** Remove all jobs that are finished now from the panel, in every browser tab. */
export async function clearFinished(): Promise<void> {
  await ask('jobs/finished/clear', 'POST');
}

/** Fetch the current limits, disks, caches and mounts. */
export async function look(): Promise<Seen> {
  return parseSeen(await ask('disks', 'GET'));
}

/** Delete a cache that no process uses. */
export async function clearCache(cache: Cache): Promise<void> {
  await ask('caches/clear', 'POST', { path: cache.path });
}

/** End a mount that no process uses. */
export async function unmount(mount: Mount): Promise<void> {
  await ask('mounts/unmount', 'POST', { path: mount.path });
}

/**
 * Keeps a websocket to the server open and the model up to date.
 *
 * After each failure it waits longer before it reconnects, at most 30 s. A page that is not seen for a minute is
 * disconnected, and costs nothing until it is seen again.
 */
export class Feed {
  constructor() {
    document.addEventListener('visibilitychange', this._onSeen);
    if (document.hidden) {
      this._onSeen();
    }
  }

  /** Emitted when the model has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted with the jobs that have just ended, while the page was open. */
  get ended(): ISignal<this, Job[]> {
    return this._ended;
  }

  get model(): Model {
    return this._model;
  }

  /** Connect now, also while a reconnect is pending. */
  connect(): void {
    this._open(SILENCE);
  }

  dispose(): void {
    this._disposed = true;
    document.removeEventListener('visibilitychange', this._onSeen);
    window.clearTimeout(this._rest);
    this._close();
    Signal.clearData(this);
  }

  /** Connect anew; `patience` is how long the first message may take, in milliseconds. */
  private _open(patience: number): void {
    this._close();
    if (this._disposed) {
      return;
    }
    const settings = ServerConnection.makeSettings();
    let url = URLExt.join(settings.wsUrl, 'nbdata/api/live');
    if (settings.appendToken && settings.token !== '') {
      url += `?token=${encodeURIComponent(settings.token)}`;
    }
    const socket = new settings.WebSocket(url);
    this._socket = socket;
    this._expectMessage(patience);
    let first = true;
    socket.onmessage = (message: MessageEvent): void => {
      this._failures = 0;
      this._expectMessage();
      const update = parseUpdate(JSON.parse(String(message.data)));
      const ended = endedIn(this._model, update);
      this._apply({ type: 'update', first, update, at: Date.now() / 1000 });
      first = false;
      if (ended.length) {
        this._ended.emit(ended);
      }
    };
    socket.onclose = (): void => {
      this._close();
      this._apply({ type: 'lost' });
      const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this._failures);
      this._failures = Math.min(this._failures + 1, 10);
      // Random, so that browsers that lost the same server do not all reconnect at once.
      this._timer = window.setTimeout(() => this.connect(), wait * (0.75 + Math.random() / 2));
    };
  }

  private readonly _onSeen = (): void => {
    window.clearTimeout(this._rest);
    if (document.hidden) {
      this._rest = window.setTimeout(() => this._close(), UNSEEN);
    } else if (!this._socket) {
      this.connect();
    }
  };

  private _expectMessage(patience = SILENCE): void {
    window.clearTimeout(this._timer);
    this._timer = window.setTimeout(() => {
      if (patience === PROMPT) {
        this._apply({ type: 'lost' });
        this._open(SILENCE);
      } else {
        this._open(PROMPT);
      }
    }, patience);
  }

  /** Disconnect, and do not reconnect by itself. */
  private _close(): void {
    window.clearTimeout(this._timer);
    const socket = this._socket;
    this._socket = null;
    if (socket) {
      socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }

  private _apply(event: Event): void {
    const model = reduce(this._model, event);
    if (model !== this._model) {
      this._model = model;
      this._changed.emit();
    }
  }

  private _model = EMPTY;
  private _socket: WebSocket | null = null;
  private _timer = 0;
  private _rest = 0;
  private _failures = 0;
  private _disposed = false;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _ended = new Signal<this, Job[]>(this);
}
