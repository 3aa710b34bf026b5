/** What can be done with the row of a store that is chosen. */

import * as React from 'react';

import { MovingDialog, Tools } from './dialog.js';
import { Drop } from './drops.js';
import { moment, size } from './format.js';
import { OnlyCopied, Parts, Problem, useAttempt } from './parts.js';
import { hasGlob, lastName, pathOn } from './places.js';
import { Preview } from './preview.js';
import { MovingVerb } from './results.js';
import { sayLine } from './runs.js';
import { Sums } from './sums.js';
import { printable, trans } from './text.js';
import { Act, Tray } from './trays.js';
import { entryAt, isFolder, Place, Tree, urlAt } from './tree.js';
import { describe } from './verbs.js';

/** What the section Stores is given. */
export interface Shared extends Tools {
  drop: Drop;
  copy: (text: string) => Promise<void>;
  /** Whether the user has allowed in Settings that objects are deleted. */
  mayDelete: boolean;
  /** Opens the settings of the panel; null where there is no editor of settings. */
  openSettings: (() => void) | null;
}

/** The verbs whose dialogs begin with a row, in the order of their buttons. */
const VERBS: readonly MovingVerb[] = [
  'pull',
  'copy',
  'md5check',
  'untar_volumes',
  'pack',
  'delete'
];

/** A button that opens a tray below the buttons, and closes it again. */
export function Opens(props: {
  label: string;
  of: string;
  isOpen: boolean;
  isOff?: boolean;
  /** Says why it is off. */
  tellWhy?: () => void;
  toggle: () => void;
}): React.JSX.Element {
  const { label, of, isOpen, isOff, tellWhy, toggle } = props;
  return (
    <button
      type="button"
      className="nbd-Button nbd-mod-text nbd-Act"
      aria-expanded={isOpen}
      aria-disabled={isOff ?? false}
      aria-label={`${label}: ${of}`}
      onClick={() => (isOff ? tellWhy?.() : toggle())}
    >
      {label}
    </button>
  );
}

/** Says why *Delete…* does nothing. */
export function DeletingIsOff(props: { openSettings: (() => void) | null }): React.JSX.Element {
  return (
    <p className="nbd-Small nbd-Wrapped" role="status">
      {trans.__('Deleting in stores is off: “Allow deleting in stores” in Settings turns it on.')}
      {props.openSettings && (
        <>
          {' '}
          <button type="button" className="nbd-Link nbd-Small" onClick={props.openSettings}>
            {trans.__('Open Settings')}
          </button>
        </>
      )}
    </p>
  );
}

/** What can be done with the active row. */
export function Chosen(props: Shared & { tree: Tree; place: Place }): React.JSX.Element | null {
  const { browse, runs, insert, copy, folder, mayDelete, openSettings, tree, place } = props;
  const [opened, open] = React.useState<'preview' | 'sums' | MovingVerb | null>(null);
  const [copied, setCopied] = React.useState(false);
  const [isOnlyCopied, setOnlyCopied] = React.useState(false);
  const [isRefused, refuse] = React.useState(false);
  const { problem, attempt } = useAttempt();
  const buttons = React.useRef<HTMLDivElement>(null);
  const [entry, url] = [entryAt(tree, place), urlAt(tree, place)];
  if (!entry || url === null) {
    return null;
  }
  const { connection } = browse;
  const name = printable(lastName(url));
  const facts = [
    ...(entry.size === null ? [] : [size(entry.size)]),
    ...(entry.modified === null ? [] : [moment(entry.modified)]),
    ...(entry.storageClass ? [trans.__('class %1', entry.storageClass)] : []),
    ...(entry.version ? [trans.__('version %1', entry.version)] : [])
  ];
  const isPattern = hasGlob(url);
  const insertLabel = trans.__('Insert %pull');
  const previewLabel = trans.__('Preview');
  const sumsLabel = trans.__('Sum up');
  const verbs = VERBS.filter(verb => verb !== 'pack' || isFolder(entry));
  const close = (): void => {
    buttons.current?.querySelector<HTMLElement>('[aria-expanded="true"]')?.focus();
    open(null);
  };
  const putIn = async (): Promise<void> => {
    const { line, whyNoLine } = await sayLine({
      verb: 'pull',
      source: url,
      target: pathOn(await folder(), '', lastName(url)),
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
        {isFolder(entry) && (
          <Opens
            label={sumsLabel}
            of={name}
            isOpen={opened === 'sums'}
            toggle={() => open(opened === 'sums' ? null : 'sums')}
          />
        )}
        {verbs.map(verb => (
          <Opens
            key={verb}
            label={describe(verb).open}
            of={name}
            isOpen={opened === verb}
            isOff={isPattern || (verb === 'delete' && !mayDelete)}
            tellWhy={() => refuse(!isPattern)}
            toggle={() => open(opened === verb ? null : verb)}
          />
        ))}
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
      {isRefused && !mayDelete && <DeletingIsOff openSettings={openSettings} />}
      {opened && (
        <Tray
          key={opened}
          name={
            opened === 'preview'
              ? previewLabel
              : opened === 'sums'
                ? sumsLabel
                : describe(opened).heading
          }
          of={name}
          close={close}
        >
          {opened === 'preview' ? (
            <Preview {...{ source: url, connection, runs, insert }} />
          ) : opened === 'sums' ? (
            <Sums {...{ place: url, connection, runs, insert }} />
          ) : (
            <MovingDialog {...props} verb={opened} source={url} connection={connection} />
          )}
        </Tray>
      )}
    </div>
  );
}
