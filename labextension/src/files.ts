/** Lab's file browser: its folder, the item that is selected in it, and its dialog that chooses a folder. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Contents } from '@jupyterlab/services';
import type { Widget } from '@lumino/widgets';

import { trans } from './text.js';

/** What the panel needs of JupyterLab's `FileBrowser`. */
interface FileBrowser extends Widget {
  readonly model?: { readonly path?: unknown; readonly manager?: unknown };
  selectedItems?(): Iterable<Omit<Contents.IModel, 'content'>>;
}

/** A file or folder below the server's root folder. */
export interface Item {
  path: string;
  isFolder: boolean;
}

/** Lab's file browser, as far as this page has one. */
export class Files {
  constructor(private readonly _app: JupyterFrontEnd) {}

  /** Its folder, below the server's root; null if there is no such browser. */
  get folder(): string | null {
    const path = this._browser?.model?.path;
    return typeof path === 'string' ? this._local(path) : null;
  }

  /** The selected items of one folder; none if one of them is not on the server's disk. */
  get selected(): Item[] {
    return this._items([...(this._browser?.selectedItems?.() ?? [])]);
  }

  /** Look up what was dragged out of the file browser. */
  async dragged(paths: readonly string[]): Promise<Item[]> {
    const { contents } = this._app.serviceManager;
    return this._items(
      await Promise.all(paths.map(path => contents.get(path, { content: false })))
    );
  }

  private _items(found: Omit<Contents.IModel, 'content'>[]): Item[] {
    return found.every(item => this._isOnDisk(item.path))
      ? found.map(item => ({
          path: this._local(item.path),
          isFolder: item.type === 'directory'
        }))
      : [];
  }

  /** True if the user can choose a folder. */
  get canChoose(): boolean {
    return Boolean(this._browser?.model?.manager);
  }

  /** Ask for a folder; null if the user has chosen none. */
  async choose(): Promise<string | null> {
    const { FileDialog } = await import('@jupyterlab/filebrowser');
    const path = this._browser?.model?.path;
    const chosen = await FileDialog.getExistingDirectory({
      manager: this._browser?.model?.manager,
      title: trans.__('Choose a folder'),
      ...(typeof path === 'string' && { defaultPath: path })
    });
    const [folder] = chosen.value ?? [];
    return chosen.button.accept && folder && this._isOnDisk(folder.path)
      ? this._local(folder.path)
      : null;
  }

  private get _browser(): FileBrowser | null {
    for (const widget of this._app.shell.widgets('left')) {
      if (widget.id === 'filebrowser') {
        return widget;
      }
    }
    return null;
  }

  /** The path without its drive. */
  private _local(path: string): string {
    return this._app.serviceManager.contents.localPath(path);
  }

  /** True unless the drive is that of an extension; that of the collaboration shows the same disk. */
  private _isOnDisk(path: string): boolean {
    return ['', 'RTC'].includes(this._app.serviceManager.contents.driveName(path));
  }
}
