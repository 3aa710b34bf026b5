/** The sidebar panel: the kernel if something is wrong there, disks, caches, mounts and services if any, stores, transfers. */

import { showErrorMessage } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import * as React from 'react';

import { Asking, Wish } from './asking.js';
import { Browse } from './browse.js';
import { Caches } from './caches.js';
import { Feed, unmount } from './connection.js';
import { Connections } from './connections.js';
import { Tools } from './dialog.js';
import { Disks } from './disks.js';
import { fullGauge, gaugeKey } from './diskwords.js';
import { Item } from './files.js';
import { Choice, possible, wideEnough } from './filter.js';
import { Front } from './front.js';
import { Gauges } from './gauges.js';
import { nbdataIcon } from './icons.js';
import { ThisKernel } from './kernel.js';
import { Kernels } from './kernels.js';
import { Job, Lack, sections } from './model.js';
import { Cache, Disk, Mount } from './seen.js';
import { Mounts } from './mounts.js';
import { pathOn } from './places.js';
import { MovingVerb } from './results.js';
import { Runs } from './runs.js';
import { Services } from './services.js';
import { Stores } from './stores.js';
import { printable, trans } from './text.js';
import { Wanted } from './tools.js';
import { Commands, Revealed, Transfers } from './transfers.js';
import { describe } from './verbs.js';

/** Shows the jobs of the feed, disks, caches and mounts, and what is wrong in the kernel of the notebook in front. */
export class Panel extends ReactWidget {
  /** Called when the user has chosen whose transfers are listed. */
  keepChoice: (choice: Choice) => void = () => undefined;

  constructor(
    private readonly _feed: Feed,
    private readonly _gauges: Gauges,
    commands: Omit<Commands, 'free'>,
    private readonly _front: Front
  ) {
    super();
    this._commands = { ...commands, free: lack => this._free(lack) };
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
    this._kernels = new Kernels(_front);
    this._kernels.changed.connect(this._onLooked);
    _front.changed.connect(this._onFront);
  }

  /** Emitted when the user opens the panel. */
  get shown(): ISignal<this, void> {
    return this._shown;
  }

  override dispose(): void {
    this._feed.changed.disconnect(this._onChanged);
    this._gauges.changed.disconnect(this._onLooked);
    Signal.clearData(this._runs);
    this._browse.dispose();
    this._front.changed.disconnect(this._onFront);
    Signal.clearData(this);
    super.dispose();
  }

  /** Scroll to the card of a job, and focus it; call this after the panel is shown. */
  reveal(job: Job): void {
    this._revealed = { key: job.key };
    const { path } = this._front;
    this._choice = wideEnough(possible(this._choice, path), job, path);
    this.update();
  }

  /**
   * Open the dialog of a verb for files and folders in one folder below the server's root.
   *
   * `into` is the folder of a store where they go. Call this after the panel is shown.
   */
  async ask(verb: MovingVerb, items: readonly Item[], into?: string): Promise<void> {
    const root = await this._root();
    if (!root) {
      throw new Error(this._gauges.problem);
    }
    const [first, ...others] = items;
    if (!first) {
      return;
    }
    const above = first.path.replace(/[^/]*$/, '');
    if (others.some(item => item.path.replace(/[^/]*$/, '') !== above)) {
      throw new Error(trans.__('these are not in one folder'));
    }
    const chosen = others.length > 0 ? items.map(item => item.path.slice(above.length)) : [];
    this._wish = {
      verb,
      source: pathOn(root, others.length > 0 ? above : first.path, ''),
      isFolder: others.length > 0 || first.isFolder,
      chosen,
      ...(into !== undefined && { into }),
      number: (this._wish?.number ?? 0) + 1
    };
    this.update();
  }

  /** Whether objects of stores may be deleted. */
  set mayDelete(mayDelete: boolean) {
    this._mayDelete = mayDelete;
    this.update();
  }

  /** Whose transfers are listed. */
  set choice(choice: Choice) {
    this._choice = choice;
    this.update();
  }

  protected override render(): React.JSX.Element {
    return (
      <>
        <ThisKernel
          trouble={this._kernels.trouble}
          insert={line => this._commands.insert(line)}
          copy={line => this._commands.copyLine(line)}
        />
        <Asking {...this._tools} wish={this._wish} close={this._endWish} />
        <Disks
          seen={this._gauges.seen}
          problem={this._gauges.problem}
          runs={this._runs}
          insert={line => this._commands.insert(line)}
          wanted={this._wanted}
        />
        <Caches caches={this._gauges.seen?.caches ?? []} clear={cache => this._clear(cache)} />
        <Mounts mounts={this._gauges.seen?.mounts ?? []} end={mount => this._endMount(mount)} />
        <Services services={this._gauges.seen?.services ?? []} />
        <Stores
          {...this._tools}
          copy={this._copy}
          drop={this._drop}
          mayDelete={this._mayDelete}
          openSettings={this._commands.openSettings}
        />
        <Connections browse={this._browse} />
        <Transfers
          model={this._feed.model}
          commands={this._commands}
          choice={this._choice}
          notebook={this._front.path}
          choose={choice => {
            this.choice = choice;
            this.keepChoice(choice);
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
    this._kernels.isNear = true;
    this._shown.emit();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._gauges.isNear = false;
    this._kernels.isNear = false;
  }

  protected override onActivateRequest(): void {
    this.node.focus();
  }

  private readonly _onChanged = (): void => {
    this._kernels.version = this._feed.model.version;
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

  private readonly _onFront = (): void => {
    if (this.isVisible && this._path !== this._front.path) {
      this._path = this._front.path;
      this.update();
    }
  };

  private async _clear(cache: Cache): Promise<void> {
    if (await this._commands.clearCache(cache)) {
      await this._gauges.refresh();
    }
  }

  private async _endMount(mount: Mount): Promise<void> {
    await unmount(mount);
    await this._gauges.refresh();
  }

  /** Open the tray *Free…* of the gauge that had no room. */
  private async _free(lack: Lack): Promise<void> {
    const find = (): Disk | null => this._gauges.seen && fullGauge(this._gauges.seen, lack);
    if (!find()) {
      await this._gauges.refresh();
    }
    const disk = find();
    if (!disk) {
      throw new Error(trans.__('the disk of %1 is not known', printable(lack.folder)));
    }
    const taken = (): void => {
      this._wanted = null; // or it would open again where its gauge is drawn anew
    };
    this._wanted = { key: gaugeKey(disk), taken };
    this.update();
  }

  // The same functions each time, so that the section is not drawn anew with each message of the feed.
  private readonly _insert = (line: string): Promise<boolean> => this._commands.insert(line);
  private readonly _copy = (text: string): Promise<void> => this._commands.copyLine(text);

  /** Lab's folder on the disk; of Notebook 7, which has none, the folder of the notebook in front. */
  private readonly _folder = async (): Promise<string> => {
    const root = await this._root();
    const above = this._front.path?.replace(/[^/]*$/, '') ?? '';
    return root && pathOn(root, this._commands.folder() ?? above, '');
  };

  /** The same of the limit that a folder is in, or else of its disk. */
  private readonly _freeBelow = (folder: string): Promise<void> =>
    this._free({ folder, limited: true });

  /** The server's root folder; empty if the server does not say it. */
  private async _root(): Promise<string> {
    if (!this._gauges.seen) {
      await this._gauges.refresh();
    }
    return this._gauges.seen?.root ?? '';
  }

  private readonly _choose = async (): Promise<string | null> => {
    const folder = await this._commands.chooseFolder();
    return folder === null ? null : pathOn(await this._root(), folder, '');
  };

  private readonly _drop = async (paths: readonly string[], into: string): Promise<void> => {
    try {
      const items = await this._commands.dragged(paths);
      if (items.length === 0) {
        throw new Error(trans.__('these are not on the disk of the server'));
      }
      await this.ask('push', items, into);
    } catch (error) {
      await showErrorMessage(describe('push').heading, error as Error);
    }
  };

  private readonly _endWish = (): void => {
    this._wish = null;
    this.update();
    this.node.focus();
  };

  private get _tools(): Tools {
    return {
      browse: this._browse,
      runs: this._runs,
      insert: this._insert,
      free: this._freeBelow,
      folder: this._folder,
      choose: this._commands.canChoose() ? this._choose : null
    };
  }

  private readonly _commands: Commands;
  private _wish: Wish | null = null;
  private _mayDelete = false;
  private _wanted: Wanted | null = null;
  private readonly _runs = new Runs();
  private readonly _browse = new Browse();
  private _jobs = '';
  private _choice: Choice = 'all';
  private _path: string | null = null;
  private readonly _kernels: Kernels;
  private _revealed: Revealed | null = null;
  private readonly _shown = new Signal<this, void>(this);
}
