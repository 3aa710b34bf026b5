/** A dialog that begins with a file or a folder of the disk, at the top of the panel. */

import * as React from 'react';

import { MovingDialog, Tools } from './dialog.js';
import { hasGlob, lastName } from './places.js';
import { MovingVerb } from './results.js';
import { printable, trans } from './text.js';
import { Tray } from './trays.js';
import { describe } from './verbs.js';

/** What the user wants to do with a file or a folder. */
export interface Wish {
  verb: MovingVerb;
  /** Its path on the disk. */
  source: string;
  isFolder: boolean;
  /** Counts the wishes, so that the same one can be had twice. */
  number: number;
}

export const Asking = React.memo(function Asking(
  props: Tools & { wish: Wish | null; close: () => void }
): React.JSX.Element | null {
  const { wish, close } = props;
  if (!wish) {
    return null;
  }
  const { verb, source, isFolder, number } = wish;
  const { heading } = describe(verb);
  return (
    <section className="nbd-Section" aria-label={heading}>
      <Tray key={number} name={heading} of={printable(lastName(source))} close={close}>
        {hasGlob(source) ? (
          <p className="nbd-Wrapped">
            {trans.__(
              'A line would take %1 for a pattern of several. Use the folder above.',
              printable(source)
            )}
          </p>
        ) : (
          <MovingDialog {...props} verb={verb} source={source} isFile={!isFolder} connection="" />
        )}
      </Tray>
    </section>
  );
});
