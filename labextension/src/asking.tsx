/** A dialog that begins with a file or a folder of the disk, at the top of the panel. */

import * as React from 'react';

import { MovingDialog, Tools } from './dialog.js';
import { hasGlob, lastName } from './places.js';
import { MovingVerb } from './results.js';
import { printable, trans } from './text.js';
import { Tray } from './trays.js';
import { describe, whyNotSeveral } from './verbs.js';

/** What the user wants to do with a file or a folder. */
export interface Wish {
  verb: MovingVerb;
  /** Its path on the disk; of several, that of their folder. */
  source: string;
  isFolder: boolean;
  /** The names of several in that folder. */
  chosen: readonly string[];
  /** Where they were dropped: a folder of a store. */
  into?: string;
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
  const { verb, source, isFolder, chosen, into, number } = wish;
  const { heading } = describe(verb);
  const whyNot = chosen.length > 0 ? whyNotSeveral(verb, source, chosen) : '';
  const [first = source] = chosen;
  const name =
    chosen.length > 1
      ? trans.__('%1 and %2 more', printable(first), chosen.length - 1)
      : printable(lastName(source));
  return (
    <section className="nbd-Section" aria-label={heading}>
      <Tray key={number} name={heading} of={name} close={close}>
        {hasGlob(source) ? (
          <p className="nbd-Wrapped">
            {trans.__(
              'A line would take %1 for a pattern of several. Use the folder above.',
              printable(source)
            )}
          </p>
        ) : whyNot ? (
          <p className="nbd-Wrapped">{whyNot}</p>
        ) : (
          <MovingDialog
            {...props}
            {...{ verb, source, chosen }}
            {...(into !== undefined && { into })}
            isFile={!isFolder}
            connection=""
          />
        )}
      </Tray>
    </section>
  );
});
