/** The tray *What fills it*: the folders in a folder by size, and what nbdata knows of the files in each. */

import { refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { ago, fillName, fillWords, found } from './diskwords.js';
import { size } from './format.js';
import { upIcon } from './icons.js';
import { Button, Insert } from './parts.js';
import { Fill, Filled, filled, FILLS, isOver, Operation, Result } from './results.js';
import { Run, Runs } from './runs.js';
import { printable, trans } from './text.js';
import { Act, Busy, Ended, isRunning, Line } from './trays.js';

const FIRST_SHOWN = 20;

/** The bytes of a folder as a bar: its length beside the largest folder, and what nbdata knows of them. */
function Bar(props: { part: Filled; largest: number }): React.JSX.Element {
  const { part, largest } = props;
  return (
    <div className="nbd-Fills" aria-hidden="true">
      {FILLS.filter(fill => part.fills[fill] > 0).map(fill => (
        <span
          key={fill}
          className={`nbd-Fill nbd-mod-${fill}`}
          style={{
            width: `${largest > 0 ? (100 * part.fills[fill]) / largest : 0}%`,
            minWidth: 2
          }}
        />
      ))}
    </div>
  );
}

function Folder(props: {
  part: Filled;
  largest: number;
  enter: (name: string) => void;
}): React.JSX.Element {
  const { part, largest, enter } = props;
  const name = printable(part.name) || trans.__('files in this folder');
  const facts = fillWords(part);
  return (
    <li className="nbd-Folder" title={facts.join(', ')}>
      <div className="nbd-Row">
        {part.isFolder ? (
          <button
            type="button"
            className="nbd-Link nbd-Folder-name"
            aria-label={`${name}: ${[size(part.disk), ...facts].join(', ')}`}
            onClick={() => enter(part.name)}
          >
            {name}
          </button>
        ) : (
          <span className="nbd-Folder-name">{name}</span>
        )}
        <span className="nbd-Small">{size(part.disk)}</span>
      </div>
      <Bar part={part} largest={largest} />
    </li>
  );
}

function Legend({ kinds }: { kinds: Fill[] }): React.JSX.Element {
  return (
    <ul className="nbd-Legend" aria-label={trans.__('What the bars show')}>
      {kinds.map(fill => (
        <li key={fill} title={fillName(fill).meaning}>
          <span className={`nbd-Key nbd-mod-${fill}`} aria-hidden="true" />
          {fillName(fill).name}
        </li>
      ))}
    </ul>
  );
}

const Found = React.memo(function Found(props: {
  result: Result;
  enter: (name: string) => void;
}): React.JSX.Element {
  const { result, enter } = props;
  const [areAllShown, showAll] = React.useState(false);
  const { total, parts } = filled(result);
  const shown = areAllShown ? parts : parts.slice(0, FIRST_SHOWN);
  const largest = Math.max(0, ...parts.map(part => part.disk));
  const left = result.count - result.rows.length;
  return (
    <>
      <Legend kinds={FILLS.filter(fill => total.fills[fill] > 0)} />
      {parts.length === 0 && <p className="nbd-Empty">{trans.__('This folder is empty.')}</p>}
      <ul className="nbd-List nbd-Folders" aria-label={trans.__('Folders by size')}>
        {shown.map(part => (
          <Folder key={`${part.isFolder} ${part.name}`} {...{ part, largest, enter }} />
        ))}
      </ul>
      {shown.length < parts.length && (
        <button type="button" className="nbd-Link nbd-More" onClick={() => showAll(true)}>
          {trans.__('Show %1 more', parts.length - shown.length)}
        </button>
      )}
      {left > 0 && (
        <p className="nbd-Small">
          {trans._n('%1 smaller folder is left out', '%1 smaller folders are left out', left)}
        </p>
      )}
      {result.notes.map(note => (
        <p key={note} className="nbd-Small nbd-Wrapped">
          {note}
        </p>
      ))}
    </>
  );
});

/** The content of the tray; `top` is the folder that *back* ends in. A folder is only scanned when the user says so. */
export function Fills(props: {
  folder: string;
  top: string;
  runs: Runs;
  now: number;
  go: (folder: string) => void;
  insert: Insert;
}): React.JSX.Element {
  const { folder, top, runs, now, go, insert } = props;
  const operation: Operation = { verb: 'du', place: folder };
  const run: Run | null = runs.get(operation);
  const scan = (): void => void runs.start(operation);
  const busy = isRunning(run);
  const result = run?.result && isOver(run.result) && !run.result.error ? run.result : null;
  const enter = React.useCallback(
    (name: string) => go(`${folder.replace(/\/$/, '')}/${name}`),
    [folder, go]
  );
  const above = folder.replace(/\/[^/]*$/, '') || '/';
  return (
    <>
      <div className="nbd-Row nbd-At">
        <Button
          label={trans.__('Back to the folder above')}
          of={printable(above)}
          icon={upIcon}
          disabled={folder === top || folder === '/'}
          onClick={() => go(above)}
        />
        <span className="nbd-Path" title={printable(folder)}>
          <bdi>{printable(folder)}</bdi>
        </span>
        {run && (
          <Button
            label={trans.__('Scan again')}
            of={printable(folder)}
            icon={refreshIcon}
            disabled={busy}
            onClick={scan}
          />
        )}
      </div>
      {!run && <Act label={trans.__('Scan this folder')} of={printable(folder)} onClick={scan} />}
      {busy && (
        <Busy
          text={trans.__('Scanning: %1', found(run?.result?.files ?? 0))}
          cancel={() => void runs.cancel(operation)}
        />
      )}
      <Ended run={run} />
      {result && result.state === 'DONE' && (
        <>
          <div className="nbd-Small" role="status">
            {trans.__('%1 on disk, %2', size(filled(result).total.disk), ago(result.ended, now))}
          </div>
          <Found result={result} enter={enter} />
        </>
      )}
      {run?.said && <Line said={run.said} problem="" insert={insert} />}
    </>
  );
}
