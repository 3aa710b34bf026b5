/** The tray *Sum up*: how many objects are below a folder of a store, and which folders are the largest. */

import * as React from 'react';

import { size, soFar } from './format.js';
import { Insert, Place, useChanges } from './parts.js';
import { Operation, Row } from './results.js';
import { Runs } from './runs.js';
import { printable, trans } from './text.js';
import { Busy, Ended, isRunning, Line, useLine } from './trays.js';

/** The most folders that are listed. */
const MOST = 20;

function facts(row: Row): string {
  const objects = row.numbers.get('objects') ?? 0;
  const count = objects.toLocaleString('en');
  return trans._n('%2 object, %3', '%2 objects, %3', objects, count, size(row.size));
}

/** The content of the tray. */
export function Sums(props: {
  place: string;
  connection: string;
  runs: Runs;
  insert: Insert;
}): React.JSX.Element {
  const { place, connection, runs, insert } = props;
  const key = JSON.stringify({ verb: 'du', place, ...(connection && { connection }) });
  const operation = React.useMemo(() => JSON.parse(key) as Operation, [key]);
  const line = useLine(operation);
  useChanges(runs.changed);
  React.useEffect(() => {
    void runs.start(operation);
    return () => runs.forget(operation); // which ends it
  }, [runs, operation]);
  const run = runs.get(operation);
  const result = run?.result?.state === 'DONE' ? run.result : null;
  const total = result?.rows.find(row => row.action === 'total');
  const folders = (result?.rows ?? [])
    .filter(row => row.action !== 'total')
    .sort((a, b) => b.size - a.size);
  return (
    <>
      <Place name={trans.__('below')} place={printable(place)} />
      <Line {...line} insert={insert} />
      {isRunning(run) && (
        <Busy
          text={trans.__('Summing up')}
          far={soFar(run?.result?.files ?? null)}
          cancel={() => void runs.cancel(operation)}
        />
      )}
      <Ended run={run} />
      {total && (
        <div role="status">
          <ul className="nbd-Plan">
            <li>{facts(total)}</li>
            {folders.slice(0, MOST).map(row => (
              <li key={row.path} className="nbd-Wrapped">
                {trans.__('%1: %2', printable(row.path), facts(row))}
              </li>
            ))}
            {folders.length > MOST && <li>{trans.__('The largest %1 are listed.', MOST)}</li>}
          </ul>
        </div>
      )}
    </>
  );
}
