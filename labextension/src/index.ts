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

import { act, clearCache, clearFinished, Feed } from './connection.js';
import { Gauges } from './gauges.js';
import { nbdataIcon } from './icons.js';
import { Commands } from './job.js';
import { Cache } from './model.js';
import { Notices } from './notices.js';
import { Panel } from './panel.js';
import { parseSettings, Settings } from './settings.js';
import { StatusItem } from './status.js';
import { trans, translateWith } from './text.js';
import { cacheFacts, cacheFolder, magic } from './words.js';

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
    const commands = commandsOf(app, lab);
    const panel = new Panel(feed, gauges, commands);
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
      if (status) {
        status.settings = settings;
      }
    };
    apply(parseSettings({}));
    void registry?.load(ID).then(settings => {
      apply(parseSettings(settings.composite));
      settings.changed.connect(() => apply(parseSettings(settings.composite)));
    });
    feed.connect();
  }
};

function commandsOf(app: JupyterFrontEnd, lab: ILabShell | null): Commands {
  return {
    act,
    clearFinished,
    open: async folder => {
      if (lab) {
        await app.commands.execute('filebrowser:go-to-path', { path: folder });
      } else {
        const tree = URLExt.join(PageConfig.getBaseUrl(), 'tree', URLExt.encodeParts(folder));
        window.open(tree, '_blank', 'noopener');
      }
    },
    copy: job =>
      new Promise(done => {
        Clipboard.copyToSystem(magic(job));
        done();
      }),
    clearCache: askAndClear
  };
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
