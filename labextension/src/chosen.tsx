/** What can be done with the row of a store that is chosen. */

import * as React from 'react';

import { Browse } from './browse.js';
import { moment, size } from './format.js';
import { Insert, OnlyCopied, Parts, Problem, useAttempt } from './parts.js';
import { hasGlob, lastName, pathOn } from './places.js';
import { Preview } from './preview.js';
import { PullHere } from './pull.js';
import { Runs, sayLine } from './runs.js';
import { printable, trans } from './text.js';
import { Act, Tray } from './trays.js';
import { entryAt, isFolder, Place, Tree, urlAt } from './tree.js';

/** What the section Stores is given. */
export interface Shared {
  browse: Browse;
  runs: Runs;
  insert: Insert;
  copy: (text: string) => Promise<void>;
  /** The folder of Lab's file browser on the disk. */
  folder: () => string;
}

/** A button that opens a tray below the buttons, and closes it again. */
function Opens(props: {
  label: string;
  of: string;
  isOpen: boolean;
  isOff?: boolean;
  toggle: () => void;
}): React.JSX.Element {
  const { label, of, isOpen, isOff, toggle } = props;
  return (
    <button
      type="button"
      className="nbd-Button nbd-mod-text nbd-Act"
      aria-expanded={isOpen}
      aria-disabled={isOff ?? false}
      aria-label={`${label}: ${of}`}
      onClick={() => !isOff && toggle()}
    >
      {label}
    </button>
  );
}

/** What can be done with the active row. */
export function Chosen(props: Shared & { tree: Tree; place: Place }): React.JSX.Element | null {
  const { browse, runs, insert, copy, folder, tree, place } = props;
  const [opened, open] = React.useState<'preview' | 'pull' | null>(null);
  const [copied, setCopied] = React.useState(false);
  const [isOnlyCopied, setOnlyCopied] = React.useState(false);
  const { problem, attempt } = useAttempt();
  const buttons = React.useRef<HTMLDivElement>(null);
  const [entry, url] = [entryAt(tree, place), urlAt(tree, place)];
  if (!entry || url === null) {
    return null;
  }
  const { connection } = browse;
  const name = printable(lastName(url));
  const target = pathOn(folder(), '', lastName(url));
  const facts = [
    ...(entry.size === null ? [] : [size(entry.size)]),
    ...(entry.modified === null ? [] : [moment(entry.modified)]),
    ...(entry.version ? [trans.__('version %1', entry.version)] : [])
  ];
  const isPattern = hasGlob(url);
  const insertLabel = trans.__('Insert %pull');
  const previewLabel = trans.__('Preview');
  const close = (): void => {
    buttons.current?.querySelector<HTMLElement>('[aria-expanded="true"]')?.focus();
    open(null);
  };
  const putIn = async (): Promise<void> => {
    const { line, whyNoLine } = await sayLine({
      verb: 'pull',
      source: url,
      target,
      ...(connection && { connection })
    });
    if (!line) {
      throw new Error(whyNoLine);
    }
    setOnlyCopied(!(await insert(line)));
  };
  return (
    <div className="nbd-Chosen" role="group" aria-label={name}>
      <div className="nbd-Wrapped nbd-ChosenName">{printable(url)}</div>
      {facts.length > 0 && <Parts of={facts} />}
      <div className="nbd-Acts" ref={buttons}>
        <Act
          label={copied ? trans.__('Copied') : trans.__('Copy URL')}
          of={name}
          onClick={() => void copy(url).then(() => setCopied(true))}
        />
        <Act
          label={insertLabel}
          of={name}
          disabled={isPattern}
          onClick={() => void attempt(insertLabel, putIn)}
        />
        {!isFolder(entry) && (
          <Opens
            label={previewLabel}
            of={name}
            isOpen={opened === 'preview'}
            toggle={() => open(opened === 'preview' ? null : 'preview')}
          />
        )}
        <Opens
          label={trans.__('Pull here…')}
          of={name}
          isOpen={opened === 'pull'}
          isOff={isPattern}
          toggle={() => open(opened === 'pull' ? null : 'pull')}
        />
        {isFolder(entry) && (
          <Act label={trans.__('Go into')} of={name} onClick={() => browse.show(url)} />
        )}
      </div>
      {isPattern && (
        <p className="nbd-Small nbd-Wrapped">
          {trans.__('A line would take this name for a pattern of several. Pull the folder above.')}
        </p>
      )}
      <OnlyCopied is={isOnlyCopied} />
      <Problem text={problem} />
      {opened && (
        <Tray
          key={opened}
          name={opened === 'pull' ? trans.__('Pull here') : previewLabel}
          of={name}
          close={close}
        >
          {opened === 'pull' ? (
            <PullHere {...{ source: url, target, connection, runs, insert }} />
          ) : (
            <Preview {...{ source: url, connection, runs, insert }} />
          )}
        </Tray>
      )}
    </div>
  );
}
