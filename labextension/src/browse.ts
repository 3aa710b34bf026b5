/** Looks into stores by the server, a page a request, and keeps what came. */

import { ISignal, Signal } from '@lumino/signaling';

import { ask } from './connection.js';
import { Kept, parseKept } from './known.js';
import { printable } from './text.js';
import { Change, Entry, grown, Listed, Place, planted, Tree, urlAt } from './tree.js';

/** The most pages of which is known when they were looked at. */
const MOST_USED = 10_000;

/** Where people may begin. */
export interface Starts {
  connections: Kept[];
  recent: string[];
  configured: string[];
}

/** Ask for one page of a folder. */
async function list(
  place: string,
  begin: string,
  token: string,
  connection: string,
  signal: AbortSignal
): Promise<Listed> {
  const body = { place, begin, token, connection };
  return parseListed(await ask('stores/list', 'POST', body, signal));
}

/** The tree of the folder that is browsed; null before the user has chosen one. */
export class Browse {
  /** Emitted after each change. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted where the section Stores is to be seen. */
  get revealed(): ISignal<this, void> {
    return this._revealed;
  }

  /** The name of the connection through which stores are asked; empty for what the server finds by itself. */
  get connection(): string {
    return this._connection;
  }

  get tree(): Tree | null {
    return this._tree;
  }

  get starts(): Starts | null {
    return this._starts;
  }

  get problem(): string {
    return this._problem;
  }

  /** Fetch where people may begin. */
  async begin(): Promise<void> {
    try {
      this._starts = parseStarts(await ask('stores/starts', 'GET'));
      this._problem = '';
    } catch (error) {
      this._problem = said(error);
    }
    this._changed.emit();
  }

  /** Show a folder, or those of its entries whose names begin with a text; null: where people may begin. */
  show(root: string | null, begin = ''): void {
    this._abort(() => true);
    this._used.clear();
    if (root === null) {
      this._connection = '';
    }
    this._tree = root === null ? null : planted(root, begin);
    this._changed.emit();
    if (root === null) {
      void this.begin();
    } else {
      this.more(root);
    }
  }

  /** Show a folder through a connection, or without one; null: where people may begin. */
  through(connection: string, root: string | null): void {
    this.show(null);
    if (root !== null) {
      this._connection = connection;
      this.show(root);
    }
  }

  /** The same, in a section that may be closed. */
  reveal(root: string, connection: string): void {
    this.through(connection, root);
    this._revealed.emit();
  }

  open(place: Place): void {
    const url = this._tree && urlAt(this._tree, place);
    if (this._tree && url && !this._tree.levels.has(url)) {
      this._change({ type: 'open', place });
      this._leaveClosed();
      this.more(url);
    }
  }

  close(base: string): void {
    this._change({ type: 'close', base });
    this._leaveClosed();
  }

  /** Fetch the page behind the loaded ones, unless one is fetched. */
  more(base: string): void {
    const at = this._tree?.levels.get(base);
    if (at && at.next !== null) {
      void this._fetch(base, at.pages.length, at.next);
    }
  }

  /** Take back why a folder could not be listed, so that it is asked for again where it is looked at. */
  forgive(base: string): void {
    this._change({ type: 'failed', base, problem: '' });
  }

  /** Fetch the pages of these entries that were forgotten, one after the other; all of them are looked at now. */
  look(places: readonly Place[]): void {
    const now = ++this._clock;
    if (this._used.size > MOST_USED) {
      this._used.clear();
    }
    for (const { base, page } of places) {
      this._used.set(`${page} ${base}`, now);
    }
    for (const { base, page } of places) {
      const at = this._tree?.levels.get(base);
      const known = at?.pages[page];
      if (known && !known.entries && !at.problem) {
        void this._fetch(base, page, known.token);
      }
    }
  }

  dispose(): void {
    this._abort(() => true);
    Signal.clearData(this);
  }

  private async _fetch(base: string, page: number, token: string): Promise<void> {
    const at = this._tree?.levels.get(base);
    if (!at || at.asked !== null) {
      return;
    }
    const control = new AbortController();
    this._asked.set(base, control);
    this._change({ type: 'asked', base, page });
    try {
      const listed = await list(base, at.begin, token, this._connection, control.signal);
      if (!control.signal.aborted) {
        this._asked.delete(base);
        this._used.set(`${page} ${base}`, ++this._clock);
        this._change(
          { type: 'came', base, page, listed },
          { type: 'forget', kept: (one, number) => this._used.get(`${number} ${one}`) ?? 0 }
        );
      }
    } catch (error) {
      if (!control.signal.aborted) {
        this._asked.delete(base);
        this._change({ type: 'failed', base, problem: said(error) });
      }
    }
  }

  private _change(...changes: Change[]): void {
    if (this._tree) {
      this._tree = changes.reduce(grown, this._tree);
      this._changed.emit();
    }
  }

  private _leaveClosed(): void {
    this._abort(base => !this._tree?.levels.has(base));
  }

  /** The server ends a listing whose request is aborted. */
  private _abort(isUnwanted: (base: string) => boolean): void {
    for (const [base, control] of [...this._asked]) {
      if (isUnwanted(base)) {
        this._asked.delete(base);
        control.abort();
      }
    }
  }

  private _tree: Tree | null = null;
  private _connection = '';
  private readonly _revealed = new Signal<this, void>(this);
  private _starts: Starts | null = null;
  private _problem = '';
  /** When each page was looked at last. */
  private readonly _used = new Map<string, number>();
  private _clock = 0;
  private readonly _asked = new Map<string, AbortController>();
  private readonly _changed = new Signal<this, void>(this);
}

function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

// -- from JSON ----------------------------------------------------------------------------------

type Raw = Record<string, unknown>;

function raw(value: unknown): Raw {
  return typeof value === 'object' && value !== null ? (value as Raw) : {};
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function items(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function maybe(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function parseListed(value: unknown): Listed {
  const { base, entries, token } = raw(value);
  return { base: text(base), entries: items(entries).map(parseEntry), token: text(token) };
}

function parseEntry(value: unknown): Entry {
  const { name, size, modified, version, storage_class, url } = raw(value);
  return {
    name: text(name),
    size: maybe(size),
    modified: maybe(modified),
    version: printable(text(version)),
    storageClass: printable(text(storage_class)),
    url: text(url)
  };
}

function parseStarts(value: unknown): Starts {
  const { connections, recent, configured } = raw(value);
  return {
    connections: items(connections).map(parseKept),
    recent: items(recent).map(text),
    configured: items(configured).map(name => printable(text(name)))
  };
}
