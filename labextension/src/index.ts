/** The JupyterLab plugin: puts the panel into the right sidebar. */

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, Dialog, ICommandPalette, showDialog } from '@jupyterlab/apputils';

import { act, clearCache, clearFinished, Feed } from './connection.js';
import { nbdataIcon } from './icons.js';
import { Panel } from './panel.js';
import { cacheFolder, cacheFacts, magic } from './words.js';

const SHOW = 'nbdata:show';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'nbdata:panel',
  description: 'Disks and transfers of nbdata.',
  autoStart: true,
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    const feed = new Feed();
    const panel = new Panel(feed, {
      act,
      clearFinished,
      open: async folder => {
        await app.commands.execute('filebrowser:go-to-path', { path: folder });
      },
      copy: job =>
        new Promise(done => {
          Clipboard.copyToSystem(magic(job));
          done();
        }),
      clearCache: async cache => {
        const asked = await showDialog({
          title: 'Clear this cache?',
          body: `${cacheFacts(cache)[0]} in ${cacheFolder(cache)} of ${cache.source} will be deleted. It is fetched again when it is needed.`,
          buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Clear' })],
          defaultButton: 0
        });
        if (asked.button.accept) {
          await clearCache(cache);
        }
        return asked.button.accept;
      }
    });
    app.shell.add(panel, 'right', { rank: 910 });
    restorer?.add(panel, panel.id);
    app.commands.addCommand(SHOW, {
      label: 'Show nbdata Disks and Transfers',
      icon: nbdataIcon,
      execute: () => {
        app.shell.activateById(panel.id);
        // Activate again, because the command palette first returns the focus to the previous widget.
        window.setTimeout(() => panel.activate(), 0);
      }
    });
    palette?.addItem({ command: SHOW, category: 'nbdata' });
    feed.connect();
  }
};

export default plugin;
