/** Icons that JupyterLab lacks, drawn for nbdata. */

import { LabIcon } from '@jupyterlab/ui-components';

const svg = (body: string): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">${body}</svg>`;

/** A store at the top, with an arrow down to a disk. */
export const nbdataIcon = new LabIcon({
  name: 'nbdata:panel',
  svgstr: svg(
    '<g class="jp-icon3" fill="#616161">' +
      '<path d="M12 2C7.6 2 4 3.3 4 5s3.6 3 8 3 8-1.3 8-3-3.6-3-8-3z"/>' +
      '<path d="M4 7.6v3.2c0 1.1 1.6 2.1 4 2.6v-3.1C6.300 9.800 4.900 8.900 4 7.600zM20 7.600c-.9 1.300-2.300 2.200-4 2.700v3.100c2.400-.5 4-1.500 4-2.600z"/>' +
      '<path d="M10.800 10h2.400v6h3L12 20.200 7.800 16h3z"/>' +
      '<path d="M4 19.500h2.200V21h11.600v-1.500H20V23H4z"/></g>'
  )
});

export const pauseIcon = new LabIcon({
  name: 'nbdata:pause',
  svgstr: svg('<path class="jp-icon3" fill="#616161" d="M7 5h4v14H7zM13 5h4v14h-4z"/>')
});
