/** The notebook in front, and new cells in it. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Contents } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

/**
 * What the panel needs of JupyterLab's `NotebookPanel`.
 *
 * Its package would be by far the largest that the panel is built with, and of its code nothing is needed.
 */
interface NotebookPanel extends Widget {
  readonly sessionContext: ISessionContext;
  readonly context: {
    readonly localPath: string;
    readonly contentsModel: Omit<Contents.IModel, 'content'> | null;
    readonly ready: Promise<void>;
    readonly pathChanged: ISignal<unknown, unknown>;
  };
  readonly content: {
    activeCellIndex: number;
    mode: 'command' | 'edit';
    readonly activeCell: { readonly ready: Promise<void> } | null;
    activate(): void;
    deselectAll(): void;
    scrollToItem(at: number): Promise<void>;
    readonly model: {
      readonly defaultKernelLanguage: string;
      readonly sharedModel: {
        readonly changed: ISignal<unknown, unknown>;
        readonly cells: readonly { readonly cell_type: string; getSource(): string }[];
        insertCell(at: number, cell: object): unknown;
      };
    } | null;
  };
}

function isNotebook(widget: Widget | null): widget is NotebookPanel {
  const panel = widget as Partial<NotebookPanel> | null;
  return Boolean(
    panel?.sessionContext &&
    panel.context?.contentsModel?.type === 'notebook' &&
    panel.content?.model?.sharedModel
  );
}

/** Follows the notebook in front: the one that was used last in the main area, also while the panel has the focus. */
export class Front {
  constructor(private readonly _shell: JupyterFrontEnd.IShell) {
    _shell.currentChanged?.connect(() => this._follow());
    this._follow();
  }

  /** Emitted when another notebook is in front, or has another name, other cells, or another kernel or state of it. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The path of the notebook below the server's root; null if no notebook is in front. */
  get path(): string | null {
    return this._notebook?.context.localPath ?? null;
  }

  get session(): ISessionContext | null {
    return this._notebook?.sessionContext ?? null;
  }

  /** The code of its cells. */
  get code(): string[] {
    const cells = this._notebook?.content.model?.sharedModel.cells ?? [];
    return cells.filter(cell => cell.cell_type === 'code').map(cell => cell.getSource());
  }

  /** Put a line of Python into a new cell below the active one, and focus it; false if no Python notebook is in front. */
  insert(line: string): boolean {
    const notebook = this._notebook;
    const model = notebook?.content.model;
    if (!notebook || !model || !['', 'python'].includes(model.defaultKernelLanguage)) {
      return false;
    }
    const { content } = notebook;
    const at = content.activeCellIndex + 1;
    // Trusted, as are the cells that a user adds.
    model.sharedModel.insertCell(at, {
      cell_type: 'code',
      source: line,
      metadata: { trusted: true }
    });
    content.activeCellIndex = at;
    content.deselectAll();
    this._shell.activateById(notebook.id);
    void this._edit(content);
    return true;
  }

  /** Show the notebook in front, and focus it. */
  show(): void {
    if (this._notebook) {
      this._shell.activateById(this._notebook.id);
    }
  }

  private _follow(): void {
    const widget = this._shell.currentWidget;
    this._leave?.();
    this._leave = null;
    this._notebook = isNotebook(widget) ? widget : null;
    if (this._notebook) {
      this._leave = this._listen(this._notebook);
    } else {
      // A document that is still being read may be a notebook.
      const opening = (widget as Partial<NotebookPanel> | null)?.context?.ready;
      void opening?.then(() => {
        if (widget === this._shell.currentWidget && isNotebook(widget)) {
          this._follow();
        }
      });
    }
    this._changed.emit();
  }

  /** Focus the editor of the active cell, which has none before it is in view. */
  private async _edit(content: NotebookPanel['content']): Promise<void> {
    await content.scrollToItem(content.activeCellIndex);
    await content.activeCell?.ready;
    content.mode = 'edit';
    content.activate();
  }

  private _listen(notebook: NotebookPanel): () => void {
    const tell = (): void => this._changed.emit();
    const { context, sessionContext, content } = notebook;
    const signals: ISignal<unknown, unknown>[] = [
      context.pathChanged,
      sessionContext.kernelChanged,
      sessionContext.statusChanged,
      sessionContext.connectionStatusChanged
    ];
    if (content.model) {
      signals.push(content.model.sharedModel.changed);
    }
    signals.forEach(signal => signal.connect(tell));
    return () => signals.forEach(signal => signal.disconnect(tell));
  }

  private _notebook: NotebookPanel | null = null;
  private _leave: (() => void) | null = null;
  private readonly _changed = new Signal<this, void>(this);
}
