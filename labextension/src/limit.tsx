/** The tray *Set limit…*: how much may be used below a folder. */

import * as React from 'react';

import { Insert, Place } from './parts.js';
import { Operation } from './results.js';
import { Runs } from './runs.js';
import { printable, trans } from './text.js';
import { Act, Busy, Ended, isRunning, Line, useLine } from './trays.js';

/** The content of the tray; `present` is the limit that the folder has, and `lifts` whether this can lift it. */
export function Limit(props: {
  folder: string;
  present: string;
  lifts: boolean;
  runs: Runs;
  insert: Insert;
}): React.JSX.Element {
  const { folder, present, lifts, runs, insert } = props;
  const [text, setText] = React.useState(present);
  const [last, setLast] = React.useState<Operation | null>(null);
  const setting = (limit: string): Operation => ({ verb: 'quota', path: folder, limit });
  const line = useLine(setting(text.trim()));
  const run = last && runs.get(last);
  const begin = (operation: Operation): void => {
    setLast(operation);
    void runs.start(operation);
  };
  const isLifted = last?.verb === 'quota' && last.limit === 'none';
  return (
    <form
      onSubmit={event => {
        event.preventDefault();
        // Also while its line is still awaited: Enter follows the last key closely.
        if (text.trim() && !line.problem) {
          begin(setting(text.trim()));
        }
      }}
    >
      <Place name={trans.__('of')} place={printable(folder)} />
      <label className="nbd-Field">
        {trans.__('At most')}
        <input
          type="text"
          value={text}
          placeholder="50GB"
          spellCheck={false}
          onChange={event => setText(event.target.value)}
        />
      </label>
      {text.trim() ? (
        <Line {...line} insert={insert} />
      ) : (
        <p className="nbd-Small">{trans.__('A size such as 500MB, 50GB or 1TiB.')}</p>
      )}
      <div className="nbd-Acts">
        <button
          type="submit"
          className="nbd-Button nbd-mod-text nbd-Act"
          aria-disabled={!text.trim() || line.problem !== ''}
        >
          {trans.__('Set')}
        </button>
        {lifts && <Act label={trans.__('Lift the limit')} onClick={() => begin(setting('none'))} />}
      </div>
      {isRunning(run) && last && (
        <Busy text={trans.__('Setting')} cancel={() => void runs.cancel(last)} />
      )}
      {!line.problem && <Ended run={run} />}
      {run?.result?.state === 'DONE' && (
        <div role="status">
          <p>
            {isLifted
              ? trans.__('There is no limit on this folder any more.')
              : trans.__('The limit is set.')}
          </p>
          {run.result.notes.map(note => (
            <p key={note} className="nbd-Small nbd-Wrapped">
              {note}
            </p>
          ))}
        </div>
      )}
    </form>
  );
}
