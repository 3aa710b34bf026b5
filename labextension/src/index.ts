/** The plugin for JupyterLab and Notebook 7: the panel in the right sidebar, the status bar, and notifications. */

import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Clipboard, Dialog, ICommandPalette, showDialog } from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';

import { act, clearCache, clearFinished, Feed, limit } from './connection.js';
import { Files } from './files.js';
import { Front } from './front.js';
import { Gauges } from './gauges.js';
import { nbdataIcon } from './icons.js';
import { Commands } from './job.js';
import { Job } from './model.js';
import { Cache } from './seen.js';
import { Notices } from './notices.js';
import { Panel } from './panel.js';
import { Deed, questionOf } from './questions.js';
import { MovingVerb } from './results.js';
import { parseSettings, Settings } from './settings.js';
import { StatusItem } from './status.js';
import { printable, shortened, trans, translateWith } from './text.js';
import { describe } from './verbs.js';
import { cacheFacts, cacheFolder, magic, typedRate } from './words.js';

/** The most characters of a path in an error. */
const LONGEST = 200;

const ID = 'nbdata:panel';
const SHOW = 'nbdata:show';
/** The button in the toolbar of a notebook; JupyterLab shows the panel's icon in its sidebar instead. */
const SHOW_FROM_TOOLBAR = 'nbdata:show-from-toolbar';

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Disks and transfers of nbdata.',
  autoStart: true,
  optional: [
    ILabShell,
    ILayoutRestorer,
    ICommandPalette,
    IStatusBar,
    ISettingRegistry,
    ITranslator
  ],
  activate: (
    app: JupyterFrontEnd,
    lab: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    statusBar: IStatusBar | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    if (translator) {
      translateWith(translator.load('nbdata'));
    }
    const [feed, gauges] = [new Feed(), new Gauges()];
    const front = new Front(app.shell);
    const files = new Files(app);
    const commands = commandsOf(app, lab, front, files);
    const panel = new Panel(feed, gauges, commands, front);
    app.shell.add(panel, 'right', { rank: 910 });
    restorer?.add(panel, panel.id);

    const show = (): void => {
      app.shell.activateById(panel.id);
      // Activate again, because the command palette first returns the focus to the previous widget.
      window.setTimeout(() => panel.activate(), 0);
    };
    const label = trans.__('Show nbdata Disks and Transfers');
    app.commands.addCommand(SHOW, { label, icon: nbdataIcon, execute: show });
    app.commands.addCommand(SHOW_FROM_TOOLBAR, {
      label: 'nbdata',
      caption: label,
      icon: nbdataIcon,
      isVisible: () => lab === null,
      execute: show
    });
    palette?.addItem({ command: SHOW, category: 'nbdata' });
    addWishes(app, panel, files);

    const notices = new Notices(feed, {
      open: folder => commands.open(folder),
      again: job => commands.act(job, 'again'),
      show: job => {
        app.shell.activateById(panel.id);
        if (job) {
          panel.reveal(job);
        }
      }
    });
    const status = statusBar && addStatus(statusBar, feed, gauges, panel, show);
    const apply = (settings: Settings): void => {
      notices.settings = settings;
      panel.choice = settings.transfersOf;
      panel.mayDelete = settings.allowDeleting;
      if (status) {
        status.settings = settings;
      }
    };
    apply(parseSettings({}));
    void registry?.load(ID).then(settings => {
      apply(parseSettings(settings.composite));
      panel.keepChoice = choice => void settings.set('transfersOf', choice);
      settings.changed.connect(() => apply(parseSettings(settings.composite)));
    });
    feed.connect();
  }
};

/** The commands in the context menu of the file browser. */
function addWishes(app: JupyterFrontEnd, panel: Panel, files: Files): void {
  const wishes: [string, MovingVerb][] = [
    ['nbdata:push', 'push'],
    ['nbdata:check', 'md5check'],
    ['nbdata:unpack', 'untar_volumes']
  ];
  for (const [id, verb] of wishes) {
    app.commands.addCommand(id, {
      label: describe(verb).open,
      icon: nbdataIcon,
      isEnabled: () => files.selected.length > 0,
      execute: async () => {
        app.shell.activateById(panel.id);
        await panel.ask(verb, files.selected);
      }
    });
  }
}

function commandsOf(
  app: JupyterFrontEnd,
  lab: ILabShell | null,
  front: Front,
  files: Files
): Omit<Commands, 'free'> {
  return {
    act: async (job, action) => {
      if (await isAgreed(job, action)) {
        await act(job, action);
      }
    },
    limit: async (job, rate) => {
      const agreed = await isAgreed(job, 'limit');
      if (agreed) {
        await limit(job, typedRate(rate));
      }
      return agreed;
    },
    clearFinished,
    open: async folder => {
      if (lab) {
        await app.commands.execute('filebrowser:go-to-path', { path: folder });
      } else {
        openPage('tree', folder);
      }
    },
    goTo: async notebook => {
      if (front.path === notebook) {
        front.show();
        return;
      }
      const { contents } = app.serviceManager;
      if (!(await contents.get(notebook, { content: false }).catch(() => null))) {
        const name = printable(shortened(notebook, LONGEST));
        throw new Error(trans.__('%1 is not there any more, or has another name', name));
      }
      if (lab) {
        await app.commands.execute('docmanager:open', { path: notebook });
      } else {
        openPage('notebooks', notebook);
      }
    },
    insert: async line => {
      const inserted = front.insert(line);
      if (!inserted) {
        await copy(line);
      }
      return inserted;
    },
    copy: job => new Promise(done => done(copy(magic(job)))),
    copyLine: copy,
    folder: () => files.folder,
    canChoose: () => files.canChoose,
    chooseFolder: () => files.choose(),
    dragged: paths => files.dragged(paths),
    openSettings: lab
      ? () => void app.commands.execute('settingeditor:open', { query: 'nbdata' })
      : null,
    clearCache: askAndClear
  };
}

/** Open a page of Notebook 7 in another tab of the browser. */
function openPage(kind: 'tree' | 'notebooks', path: string): void {
  const page = URLExt.join(PageConfig.getBaseUrl(), kind, URLExt.encodeParts(path));
  window.open(page, '_blank', 'noopener');
}

function copy(line: string): Promise<void> {
  Clipboard.copyToSystem(line);
  return Promise.resolve();
}

/** Ask the user whether to act on a job, where there is a reason to ask. */
async function isAgreed(job: Job, deed: Deed): Promise<boolean> {
  const question = questionOf(job, deed);
  if (!question) {
    return true;
  }
  const { accept } = question;
  const asked = await showDialog({
    title: question.title,
    body: question.body,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Do nothing') }),
      deed === 'cancel' ? Dialog.warnButton({ label: accept }) : Dialog.okButton({ label: accept })
    ],
    defaultButton: 0
  });
  return asked.button.accept;
}

async function askAndClear(cache: Cache): Promise<boolean> {
  const asked = await showDialog({
    title: trans.__('Clear this cache?'),
    body: trans.__(
      '%1 in %2 of %3 will be deleted. It is fetched again when it is needed.',
      cacheFacts(cache)[0],
      cacheFolder(cache),
      cache.source
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Clear') })
    ],
    defaultButton: 0
  });
  if (asked.button.accept) {
    await clearCache(cache);
  }
  return asked.button.accept;
}

function addStatus(
  statusBar: IStatusBar,
  feed: Feed,
  gauges: Gauges,
  panel: Panel,
  show: () => void
): StatusItem {
  const item = new StatusItem(feed, gauges, () => panel.isVisible, show);
  panel.shown.connect(() => item.forget());
  statusBar.registerStatusItem('nbdata:status', {
    item,
    align: 'left',
    rank: 50,
    isActive: () => item.isActive,
    activeStateChanged: item.activeChanged
  });
  return item;
}

export default plugin;
