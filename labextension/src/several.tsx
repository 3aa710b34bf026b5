/** What can be done with several rows of a folder of a store. */

import * as React from 'react';

import { DeletingIsOff, Opens, Shared } from './chosen.js';
import { MovingDialog } from './dialog.js';
import { size } from './format.js';
import { Parts } from './parts.js';
import { hasGlob } from './places.js';
import { MovingVerb } from './results.js';
import { printable, trans } from './text.js';
import { Act, Tray } from './trays.js';
import { entryAt, isFolder, Place, Tree, urlAt } from './tree.js';
import { describe, whyNotSeveral } from './verbs.js';

/** The verbs whose dialogs begin with several rows, in the order of their buttons. */
const VERBS: readonly MovingVerb[] = ['pull', 'copy', 'md5check', 'pack', 'delete'];

/** The chosen rows: one line takes them, which names their folder and each of them by a pattern. */
export function Several(
  props: Shared & { tree: Tree; places: readonly Place[] }
): React.JSX.Element | null {
  const { browse, copy, mayDelete, openSettings, tree, places } = props;
  const [opened, open] = React.useState<MovingVerb | null>(null);
  const [copied, setCopied] = React.useState(false);
  const [isRefused, refuse] = React.useState(false);
  const buttons = React.useRef<HTMLDivElement>(null);
  const entries = places.flatMap(place => entryAt(tree, place) ?? []);
  const urls = places.flatMap(place => urlAt(tree, place) ?? []);
  const base = tree.levels.get(places[0]?.base ?? '')?.url;
  // The same array as long as nothing else is chosen, because the dialog depends on it.
  const names = JSON.stringify(entries.map(entry => entry.name));
  const chosen = React.useMemo(() => JSON.parse(names) as string[], [names]);
  if (base === undefined || entries.length < places.length) {
    return null; // their page is forgotten
  }
  const title = trans._n('%1 entry', '%1 entries', entries.length);
  const folders = entries.filter(isFolder).length;
  const bytes = entries.reduce((sum, entry) => sum + (entry.size ?? 0), 0);
  const facts = [
    ...(folders > 0 ? [trans._n('%1 folder', '%1 folders', folders)] : []),
    ...(folders < entries.length
      ? [trans._n('%1 object, %2', '%1 objects, %2', entries.length - folders, size(bytes))]
      : [])
  ];
  const odd = entries.some(entry => entry.url) || hasGlob(base);
  const whyNot = odd
    ? trans.__('One line cannot name these. Choose them one by one.')
    : whyNotSeveral('pull', base, chosen);
  const close = (): void => {
    buttons.current?.querySelector<HTMLElement>('[aria-expanded="true"]')?.focus();
    open(null);
  };
  return (
    <div className="nbd-Chosen" role="group" aria-label={title}>
      <div className="nbd-Wrapped nbd-ChosenName">
        {trans.__('%1 of %2', title, printable(base))}
      </div>
      <Parts of={facts} />
      <div className="nbd-Acts" ref={buttons}>
        <Act
          label={copied ? trans.__('Copied') : trans.__('Copy URLs')}
          of={title}
          onClick={() => void copy(urls.join('\n')).then(() => setCopied(true))}
        />
        {VERBS.map(verb => (
          <Opens
            key={verb}
            label={describe(verb).open}
            of={title}
            isOpen={opened === verb}
            isOff={whyNot !== '' || (verb === 'delete' && !mayDelete)}
            tellWhy={() => refuse(whyNot === '')}
            toggle={() => open(opened === verb ? null : verb)}
          />
        ))}
      </div>
      {whyNot && <p className="nbd-Small nbd-Wrapped">{whyNot}</p>}
      {isRefused && !mayDelete && <DeletingIsOff openSettings={openSettings} />}
      {opened && (
        <Tray key={opened} name={describe(opened).heading} of={title} close={close}>
          <MovingDialog
            {...props}
            verb={opened}
            source={base}
            chosen={chosen}
            connection={browse.connection}
          />
        </Tray>
      )}
    </div>
  );
}
