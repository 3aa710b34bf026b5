/** Plays audio and video with the browser's own player, which asks the server for the parts that it needs. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import * as React from 'react';

import { duration, size } from './format.js';
import { Look } from './looks.js';
import { Parts } from './parts.js';
import { trans } from './text.js';

/** The player of an object; nothing plays by itself. */
export function Player({ look }: { look: Look & { kind: 'media' } }): React.JSX.Element {
  const { baseUrl } = ServerConnection.makeSettings();
  const url = URLExt.join(baseUrl, 'nbdata/api/stores/media', look.ticket);
  const [facts, setFacts] = React.useState<string[]>([]);
  const [isBroken, setBroken] = React.useState(false);
  const player = React.useRef<HTMLVideoElement>(null);
  React.useEffect(() => {
    const element = player.current;
    return () => {
      // Without this a browser goes on to load until the element is collected.
      element?.pause();
      element?.removeAttribute('src');
      element?.load();
    };
  }, [url]);
  const told = (): void => {
    const { duration: seconds, videoWidth, videoHeight } = player.current ?? {};
    setFacts([
      ...(seconds && Number.isFinite(seconds) ? [duration(seconds)] : []),
      ...(videoWidth && videoHeight ? [trans.__('%1 × %2 pixels', videoWidth, videoHeight)] : [])
    ]);
  };
  const given = {
    ref: player,
    className: 'nbd-Player',
    src: url,
    controls: true,
    preload: 'metadata',
    'aria-label': trans.__('The player'),
    onDurationChange: told,
    onLoadedMetadata: told,
    onError: (): void => setBroken(true)
  };
  return (
    <>
      {look.media.startsWith('video/') ? <video {...given} /> : <audio {...given} />}
      {isBroken && (
        <p className="nbd-Wrapped" role="status">
          {trans.__(
            'The browser cannot play this. Opening the preview again helps if the object has changed, or the server was started again.'
          )}
        </p>
      )}
      <Parts of={[...facts, ...(look.size === null ? [] : [size(look.size)])]} />
    </>
  );
}
