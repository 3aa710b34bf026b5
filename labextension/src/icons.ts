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

const icon = (name: string, path: string): LabIcon =>
  new LabIcon({
    name: `nbdata:${name}`,
    svgstr: svg(`<path class="jp-icon3" fill="#616161" d="${path}"/>`)
  });

const DOWN = icon('down', 'M10.500 3h3v8h4L12 17l-5.500-6h4zM4 19h16v2H4z');
const CHECK = icon(
  'check',
  'M12 2L4 5v6c0 5 3.400 9.300 8 11 4.600-1.700 8-6 8-11V5zm-1.200 14L7 12.200l1.500-1.500 2.300 2.300 5-5L17.300 9.500z'
);
const STREAM = icon(
  'stream',
  'M12 4V1L7.500 5.500 12 10V7a5 5 0 0 1 4.600 7l1.600 1.600A7 7 0 0 0 12 4zM7.400 10L5.800 8.400A7 7 0 0 0 12 19.900V23l4.500-4.500L12 14v3a5 5 0 0 1-4.600-7z'
);
const BOX = 'M4 10h2v9h12v-9h2v11H4z';

/** An icon for each verb, and one for verbs that have none. */
const VERBS: Record<string, LabIcon> = {
  pull: DOWN,
  push: icon('up', 'M10.500 17h3V9h4L12 3 6.500 9h4zM4 19h16v2H4z'),
  copy: icon('copy', 'M3 7h12V4l6 4.500L15 13v-3H3zM21 15.500H9v-3L3 17l6 4.500v-3h12z'),
  md5check: CHECK,
  shards: CHECK,
  untar_volumes: icon('unpack', `M10.500 15h3V8h3.500L12 2 7 8h3.500z${BOX}`),
  pack: icon('pack', `M10.500 2h3v7h3.500L12 15 7 9h3.500z${BOX}`),
  cache_stream: STREAM,
  samples: STREAM,
  sample_cache: STREAM
};
const OTHER = icon('job', 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zm-2 4l6 4-6 4z');

/** True if a verb has an icon that tells it from others. */
export function hasIcon(verb: string): boolean {
  return verb in VERBS;
}

export function verbIcon(verb: string): LabIcon {
  return VERBS[verb] ?? OTHER;
}

export const upIcon = icon(
  'above',
  'M12 4l-7 7 1.400 1.400L11 7.800V20h2V7.800l4.600 4.600L19 11z'
);

/** A disk, and an arrow out of it. */
export const freeIcon = icon(
  'free',
  'M4 15h16v6H4zm12.500 2v2h2v-2zM6.500 13L12 3l5.500 10h-2.300L12 7.200 8.800 13z'
);

export const failedIcon = icon(
  'failed',
  'M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm-1.200 5h2.400v7h-2.400zm0 8.600h2.400V18h-2.400z'
);

export const limitIcon = icon(
  'limit',
  'M12 4A10 10 0 0 0 2 14c0 2.100.7 4.100 1.800 5.700h2.700A8 8 0 1 1 17.500 19.700h2.700A10 10 0 0 0 12 4zM16.800 8.200l-6 4.800a1.800 1.800 0 1 0 2.400 2.400z'
);

export const waitsIcon = icon(
  'waits',
  'M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm0 2.500a7.500 7.500 0 1 1 0 15 7.500 7.500 0 0 1 0-15zM10.800 7v6l4.700 2.800 1.100-1.800-3.600-2.200V7z'
);
