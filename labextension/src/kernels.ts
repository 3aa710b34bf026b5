/** Asks the kernel of the notebook in front whether nbdata works there, once, while it is idle. */

import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { Debouncer } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import {
  Answer,
  canChange,
  installs,
  parseAnswer,
  QUESTION,
  Trouble,
  troubleOf,
  usageOf
} from './diagnosis.js';
import { Front } from './front.js';

/** Milliseconds without a change of the notebook after which it is looked at. */
const QUIET = 500;

/** A kernel that was asked; `answer` is null until it has answered, and if it did not answer as expected. */
interface Asked {
  answer: Answer | null;
  /** It has run code since that can have changed the answer. */
  isOld: boolean;
  /** It has run code since that installs something. */
  hasInstalled: boolean;
  /** It was asked before: nbdata was missing, and may have been installed since. */
  isAgain: boolean;
}

/**
 * Knows what is wrong with nbdata in the kernel of the notebook in front.
 *
 * A kernel is asked only while the panel is visible, and only for a notebook that uses nbdata or has no code yet. It is
 * asked once between two restarts, and again if nbdata was missing and may have been installed since: then it is to be
 * loaded, and no restart is needed. A busy kernel is never asked: the question would wait behind the user's cells.
 */
export class Kernels {
  constructor(private readonly _front: Front) {
    const later = new Debouncer(() => this._look(), QUIET);
    _front.changed.connect(() => {
      if (this._isNear) {
        void later.invoke();
      }
    });
  }

  /** Emitted when `trouble` has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  /** The version of the server extension; empty until it is known. */
  set version(version: string) {
    if (version !== this._version) {
      this._version = version;
      this._look();
    }
  }

  /** Ask only while the panel is visible. */
  set isNear(near: boolean) {
    this._isNear = near;
    if (near) {
      this._look();
    }
  }

  private _look(): void {
    const usage = usageOf(this._front.code);
    const kernel = this._front.session?.session?.kernel ?? null;
    let trouble: Trouble | null = null;
    if (kernel && (usage.isUsed || usage.isEmpty)) {
      const asked = this._asked.get(kernel);
      const isMissing = asked?.answer?.state === 'missing';
      if (asked?.answer && !asked.isOld) {
        // The cell itself shows that an installation failed.
        const isTold = asked.isAgain && isMissing;
        trouble = isTold ? null : troubleOf(asked.answer, usage, this._version);
      } else if (this._isNear && isFree(kernel) && (!asked || (isMissing && asked.hasInstalled))) {
        void this._ask(kernel, asked !== undefined);
      }
    }
    if (JSON.stringify(trouble) !== JSON.stringify(this._trouble)) {
      this._trouble = trouble;
      this._changed.emit();
    }
  }

  private async _ask(kernel: Kernel.IKernelConnection, isAgain: boolean): Promise<void> {
    const asked: Asked = { answer: null, isOld: false, hasInstalled: false, isAgain };
    this._asked.set(kernel, asked);
    kernel.statusChanged.connect(this._onStatus);
    kernel.iopubMessage.connect(this._onMessage);
    try {
      const { implementation } = await kernel.info;
      if (implementation !== 'ipython') {
        return; // others may not know `user_expressions`
      }
      if (!isFree(kernel)) {
        this._asked.delete(kernel); // asked when it is free again
        return;
      }
      const { content } = await kernel.requestExecute({
        code: '',
        silent: true,
        store_history: false,
        user_expressions: { nbdata: QUESTION },
        allow_stdin: false,
        stop_on_error: false
      }).done;
      if (content.status === 'ok') {
        asked.answer = parseAnswer(content.user_expressions.nbdata);
      } else if (content.status === 'aborted' && this._asked.get(kernel) === asked) {
        this._asked.delete(kernel); // a cell before it failed, so it was not run
      }
    } catch {
      return; // the kernel was restarted or ended meanwhile
    }
    this._look();
  }

  private readonly _onStatus = (kernel: Kernel.IKernelConnection, status: Kernel.Status): void => {
    if (['starting', 'restarting', 'autorestarting', 'dead'].includes(status)) {
      this._asked.delete(kernel);
      this._look();
    }
  };

  private readonly _onMessage = (
    kernel: Kernel.IKernelConnection,
    message: KernelMessage.IIOPubMessage
  ): void => {
    const asked = this._asked.get(kernel);
    const code = String((message.content as { code?: unknown }).code);
    if (asked && message.header.msg_type === 'execute_input' && canChange(code)) {
      asked.isOld = true;
      asked.hasInstalled ||= installs(code);
      this._look();
    }
  };

  private _isNear = false;
  private _version = '';
  private _trouble: Trouble | null = null;
  private readonly _asked = new WeakMap<Kernel.IKernelConnection, Asked>();
  private readonly _changed = new Signal<this, void>(this);
}

function isFree(kernel: Kernel.IKernelConnection): boolean {
  return kernel.status === 'idle' && kernel.connectionStatus === 'connected';
}
