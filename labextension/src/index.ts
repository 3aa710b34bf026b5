/** The JupyterLab plugin: puts the panel into the right sidebar. */

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, ICommandPalette } from '@jupyterlab/apputils';

import { act, clear, Feed } from './connection.js';
import { nbdataIcon } from './icons.js';
import { Panel } from './panel.js';

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
      clear,
      open: async folder => {
        await app.commands.execute('filebrowser:go-to-path', { path: folder });
      },
      copy: text => Clipboard.copyToSystem(text)
    });
    app.shell.add(panel, 'right', { rank: 910 });
    restorer?.add(panel, panel.id);
    app.commands.addCommand(SHOW, {
      label: 'Show nbdata Disks and Transfers',
      icon: nbdataIcon,
      execute: () => {
        app.shell.activateById(panel.id);
        // Once more when the command palette has given the focus back to where it was.
        window.setTimeout(() => panel.activate(), 0);
      }
    });
    palette?.addItem({ command: SHOW, category: 'nbdata' });
    feed.connect();
  }
};

export default plugin;
