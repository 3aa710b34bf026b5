/** The sidebar panel: disks above, caches if there are any, transfers below. */

import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { Poll } from '@lumino/polling';
import * as React from 'react';

import { Caches } from './caches.js';
import { Feed, look } from './connection.js';
import { Disks } from './disks.js';
import { nbdataIcon } from './icons.js';
import { Cache, sections, Seen } from './model.js';
import { Commands, Transfers } from './transfers.js';

const LOOK_AT_DISKS_EVERY = 5_000;

/** Shows the jobs of the feed, the disks and the caches; polls the disks only while it is visible. */
export class Panel extends ReactWidget {
  constructor(
    private readonly _feed: Feed,
    private readonly _commands: Commands
  ) {
    super();
    this.id = 'nbdata-panel';
    this.title.caption = 'nbdata: disks and transfers';
    this.title.icon = nbdataIcon;
    this.addClass('nbd-Panel');
    this.node.tabIndex = -1; // takes the focus when it is shown, so Tab continues from here
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'nbdata');
    this._poll = new Poll({
      factory: () => this._look(),
      frequency: { interval: LOOK_AT_DISKS_EVERY, backoff: true, max: 12 * LOOK_AT_DISKS_EVERY },
      standby: () => !this.isVisible || document.hidden,
      name: 'nbdata:disks'
    });
    _feed.changed.connect(this._onChanged);
  }

  override dispose(): void {
    this._poll.dispose();
    this._feed.changed.disconnect(this._onChanged);
    super.dispose();
  }

  protected override render(): React.JSX.Element {
    return (
      <>
        <Disks disks={this._seen?.disks ?? null} problem={this._problem} />
        <Caches caches={this._seen?.caches ?? []} clear={cache => this._clear(cache)} />
        <Transfers
          model={this._feed.model}
          commands={this._commands}
          retry={() => this._feed.connect()}
        />
      </>
    );
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
    void this._poll.refresh();
  }

  protected override onActivateRequest(): void {
    this.node.focus();
  }

  private readonly _onChanged = (): void => {
    // The start or end of a job changes the reserved or used space.
    const { running, finished } = sections(this._feed.model);
    const jobs = `${running.map(job => job.key).join()} ${finished.length}`;
    if (jobs !== this._jobs) {
      this._jobs = jobs;
      if (this.isVisible) {
        void this._poll.refresh();
      }
    }
    this.update();
  };

  private async _look(): Promise<void> {
    try {
      this._seen = await look();
      this._problem = '';
    } catch (error) {
      this._problem = error instanceof Error ? error.message : String(error);
      throw error; // makes the poll wait longer
    } finally {
      this.update();
    }
  }

  private async _clear(cache: Cache): Promise<void> {
    if (await this._commands.clearCache(cache)) {
      await this._poll.refresh();
      await this._poll.tick;
    }
  }

  private _seen: Seen | null = null;
  private _problem = '';
  private _jobs = '';
  private readonly _poll: Poll;
}
