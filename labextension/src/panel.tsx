/** The sidebar panel: disks above, caches if there are any, transfers below. */

import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import * as React from 'react';

import { Caches } from './caches.js';
import { Feed } from './connection.js';
import { Disks } from './disks.js';
import { Gauges } from './gauges.js';
import { nbdataIcon } from './icons.js';
import { Cache, Job, sections } from './model.js';
import { Runs } from './runs.js';
import { trans } from './text.js';
import { Commands, Revealed, Transfers } from './transfers.js';

/** Shows the jobs of the feed, the disks and the caches. */
export class Panel extends ReactWidget {
  constructor(
    private readonly _feed: Feed,
    private readonly _gauges: Gauges,
    private readonly _commands: Commands
  ) {
    super();
    this.id = 'nbdata-panel';
    this.title.caption = trans.__('nbdata: disks and transfers');
    this.title.icon = nbdataIcon;
    this.addClass('nbd-Panel');
    this.node.tabIndex = -1; // takes the focus when it is shown, so Tab continues from here
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'nbdata');
    _feed.changed.connect(this._onChanged);
    _gauges.changed.connect(this._onLooked);
    this._runs.changed.connect(this._onLooked);
    this._runs.ended.connect(this._onRan);
  }

  /** Emitted when the user opens the panel. */
  get shown(): ISignal<this, void> {
    return this._shown;
  }

  override dispose(): void {
    this._feed.changed.disconnect(this._onChanged);
    this._gauges.changed.disconnect(this._onLooked);
    Signal.clearData(this._runs);
    Signal.clearData(this);
    super.dispose();
  }

  /** Scroll to the card of a job, and focus it; call this after the panel is shown. */
  reveal(job: Job): void {
    this._revealed = { key: job.key };
    this._onlyHere &&= job.here;
    this.update();
  }

  protected override render(): React.JSX.Element {
    return (
      <>
        <Disks seen={this._gauges.seen} problem={this._gauges.problem} runs={this._runs} />
        <Caches caches={this._gauges.seen?.caches ?? []} clear={cache => this._clear(cache)} />
        <Transfers
          model={this._feed.model}
          commands={this._commands}
          onlyHere={this._onlyHere}
          filter={onlyHere => {
            this._onlyHere = onlyHere;
            this.update();
          }}
          revealed={this._revealed}
          retry={() => this._feed.connect()}
        />
      </>
    );
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
    this._gauges.isNear = true;
    this._shown.emit();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._gauges.isNear = false;
  }

  protected override onActivateRequest(): void {
    this.node.focus();
  }

  private readonly _onChanged = (): void => {
    if (!this.isVisible) {
      return;
    }
    // The start or end of a job changes the reserved or used space.
    const { running, finished } = sections(this._feed.model);
    const jobs = `${running.map(job => job.key).join()} ${finished.length}`;
    if (jobs !== this._jobs) {
      this._jobs = jobs;
      void this._gauges.refresh();
    }
    this.update();
  };

  private readonly _onLooked = (): void => {
    if (this.isVisible) {
      this.update();
    }
  };

  private readonly _onRan = (): void => {
    void this._gauges.refresh();
  };

  private async _clear(cache: Cache): Promise<void> {
    if (await this._commands.clearCache(cache)) {
      await this._gauges.refresh();
    }
  }

  private readonly _runs = new Runs();
  private _jobs = '';
  private _onlyHere = false;
  private _revealed: Revealed | null = null;
  private readonly _shown = new Signal<this, void>(this);
}
