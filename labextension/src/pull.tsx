/** The tray *Pull here…*: where to, the line, a plan of at most some objects, and the start. */

import * as React from 'react';

import { MOST, moving } from './moves.js';
import { Insert, Place, useChanges } from './parts.js';
import { Operation } from './results.js';
import { Runs } from './runs.js';
import { printable, trans } from './text.js';
import { Act, Busy, Ended, isRunning, Line, useLine } from './trays.js';

/** The content of the tray. */
export function PullHere(props: {
  source: string;
  target: string;
  connection: string;
  runs: Runs;
  insert: Insert;
}): React.JSX.Element {
  const { source, connection, runs, insert } = props;
  const [target, setTarget] = React.useState(props.target);
  const [begun, setBegun] = React.useState<Operation | null>(null);
  useChanges(runs.changed);
  const operation: Operation = {
    verb: 'pull',
    source,
    target: target.trim(),
    ...(connection && { connection })
  };
  const asPlan: Operation = { ...operation, max_files: MOST + 1, dry_run: true };
  const line = useLine(operation);
  const planned = runs.get(asPlan);
  const started = begun && runs.get(begun);
  const moves = planned?.result?.state === 'DONE' ? planned.result.moves : null;
  const key = JSON.stringify(asPlan);
  React.useEffect(() => () => runs.forget(JSON.parse(key) as Operation), [runs, key]);
  const isReady = Boolean(target.trim()) && !line.problem && !isRunning(started);
  const begin = (): void => {
    setBegun(operation);
    void runs.start(operation);
  };
  return (
    <form
      onSubmit={event => {
        event.preventDefault();
        if (isReady) {
          begin();
        }
      }}
    >
      <Place name={trans.__('from')} place={printable(source)} />
      <label className="nbd-Field nbd-mod-wide">
        {trans.__('Into')}
        <input
          type="text"
          value={target}
          spellCheck={false}
          onChange={event => setTarget(event.target.value)}
        />
      </label>
      {target.trim() && <Line {...line} insert={insert} />}
      {moves && (
        <ul className="nbd-Plan" role="status" aria-label={trans.__('The plan')}>
          {moving(moves).map(fact => (
            <li key={fact}>{fact}</li>
          ))}
        </ul>
      )}
      {isRunning(planned) && (
        <Busy
          text={trans.__('Looking what would be pulled')}
          cancel={() => void runs.cancel(asPlan)}
        />
      )}
      <Ended run={planned} />
      <div className="nbd-Acts">
        <button type="submit" className="nbd-Button nbd-mod-text nbd-Act" aria-disabled={!isReady}>
          {trans.__('Start')}
        </button>
        {!moves && !isRunning(planned) && (
          <Act
            label={trans.__('Show the plan')}
            disabled={!target.trim() || line.said === null}
            onClick={() => void runs.start(asPlan)}
          />
        )}
      </div>
      {isRunning(started) && begun && (
        <Busy
          text={trans.__('Pulling; it is among the transfers')}
          cancel={() => void runs.cancel(begun)}
        />
      )}
      <Ended run={started} />
      {started?.result?.state === 'DONE' && <p role="status">{trans.__('Pulled.')}</p>}
    </form>
  );
}
