/** The item in the status bar: what moves, what waits, what failed, and the working disk. A click opens the panel. */

import { ReactWidget } from '@jupyterlab/ui-components';
import { ISignal, Signal } from '@lumino/signaling';
import * as React from 'react';

import { Feed } from './connection.js';
import { Gauges } from './gauges.js';
import { Job, sections } from './model.js';
import { gaugeOf } from './seen.js';
import { DEFAULTS, Settings } from './settings.js';
import { diskFact, Fact, jobFacts } from './summary.js';
import { trans } from './text.js';

/** Shows facts of the feed and the gauges; `isPanelVisible` tells whether the user sees failures in the panel. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly _feed: Feed,
    private readonly _gauges: Gauges,
    private readonly _isPanelVisible: () => boolean,
    private readonly _open: () => void
  ) {
    super();
    this.addClass('nbd-Status');
    _feed.changed.connect(() => this._refresh());
    _gauges.changed.connect(() => this._refresh());
    _feed.ended.connect((_, jobs) => this._note(jobs));
  }

  /** Emitted when `isActive` has changed. */
  get activeChanged(): ISignal<this, void> {
    return this._activeChanged;
  }

  /** True if the user wants anything of it. */
  get isActive(): boolean {
    return this._settings.statusBar !== 'nothing';
  }

  set settings(settings: Settings) {
    this._settings = settings;
    this._gauges.isInStatusBar = ['both', 'disk'].includes(settings.statusBar);
    if (this._gauges.isInStatusBar && !this._gauges.seen) {
      void this._gauges.refresh();
    }
    this._activeChanged.emit();
    this._refresh();
  }

  /** Forget the failures, because the user looks at the panel. */
  forget(): void {
    this._failed.clear();
    this._refresh();
  }

  protected override render(): React.JSX.Element {
    const facts = this._facts;
    const name = ['nbdata', ...facts.map(fact => fact.spoken)].join('. ');
    return (
      <button
        type="button"
        className="nbd-Status-button"
        title={name}
        aria-label={facts.length ? name : trans.__('nbdata: no transfer runs')}
        onClick={this._open}
      >
        {facts.length === 0 && 'nbdata'}
        {facts.map((fact, n) => (
          <span key={n} className={`nbd-Status-fact nbd-mod-${fact.level}`}>
            {fact.text}
          </span>
        ))}
      </button>
    );
  }

  private _note(jobs: readonly Job[]): void {
    if (this._isPanelVisible()) {
      return;
    }
    for (const job of jobs) {
      if (job.state === 'FAILED' || job.state === 'INTERRUPTED') {
        this._failed.add(job.key);
      }
    }
    this._refresh();
  }

  private _refresh(): void {
    const { statusBar, workingDisk } = this._settings;
    const { model } = this._feed;
    if (this._failed.size) {
      const shown = new Set(sections(model).finished.map(job => job.key));
      this._failed.forEach(key => shown.has(key) || this._failed.delete(key)); // cleared, or begun again
    }
    const { seen } = this._gauges;
    const disk = seen && gaugeOf(seen, workingDisk || seen.root);
    const facts = [
      ...(statusBar === 'disk' ? [] : jobFacts([...model.jobs.values()], this._failed.size)),
      ...(statusBar === 'transfers' || !disk ? [] : [diskFact(disk)])
    ];
    if (JSON.stringify(facts) !== JSON.stringify(this._facts)) {
      this._facts = facts;
      this.update();
    }
  }

  private _settings = DEFAULTS;
  private _facts: Fact[] = [];
  private readonly _failed = new Set<string>();
  private readonly _activeChanged = new Signal<this, void>(this);
}
