/** The tray *Preview*: an object as text, table, picture, sound or film, its samples, or the members of an archive. */

import * as React from 'react';

import { ask } from './connection.js';
import { size } from './format.js';
import { Look, parseLook, Sample } from './looks.js';
import { Insert, Parts, Problem, useChanges } from './parts.js';
import { hasGlob } from './places.js';
import { Player } from './player.js';
import { Operation, Result } from './results.js';
import { Runs } from './runs.js';
import { printable, printableLines, trans } from './text.js';
import { Act, Busy, Ended, isRunning, Line, useLine } from './trays.js';

/** The most members that are drawn. */
const MOST_MEMBERS = 500;

interface Given {
  source: string;
  connection: string;
  runs: Runs;
  insert: Insert;
}

/** Ask for the beginning of an object; the server stops to read it when the tray is closed. */
function useLook(source: string, connection: string): { look: Look | null; problem: string } {
  const [found, setFound] = React.useState<{ look: Look | null; problem: string }>({
    look: null,
    problem: ''
  });
  React.useEffect(() => {
    const control = new AbortController();
    setFound({ look: null, problem: '' });
    ask('stores/preview', 'POST', { place: source, connection }, control.signal)
      .then(answer => setFound({ look: parseLook(answer), problem: '' }))
      .catch((error: unknown) => {
        if (!control.signal.aborted) {
          const problem = error instanceof Error ? error.message : String(error);
          setFound({ look: null, problem });
        }
      });
    return () => control.abort();
  }, [source, connection]);
  return found;
}

/** The content of the tray. */
export function Preview(props: Given): React.JSX.Element {
  const { look, problem } = useLook(props.source, props.connection);
  if (!look) {
    return problem ? <Problem text={problem} /> : <p role="status">{trans.__('Loading…')}</p>;
  }
  switch (look.kind) {
    case 'text':
      return (
        <>
          <pre className="nbd-Preview" tabIndex={0} aria-label={trans.__('The text')}>
            {printableLines(look.text)}
          </pre>
          <Shown look={look} />
        </>
      );
    case 'table':
      return (
        <>
          <Table rows={look.rows} />
          <Shown look={look} />
        </>
      );
    case 'picture':
      return <Picture look={look} />;
    case 'media':
      return <Player look={look} />;
    case 'samples':
      return <Samples look={look} />;
    case 'archive':
      return <Members {...props} />;
    case 'nothing':
      return <p className="nbd-Wrapped">{trans.__('No preview: %1.', printable(look.why))}</p>;
  }
}

/** How much of the object is shown. */
function Shown({ look }: { look: { size: number | null; isCut: boolean } }): React.JSX.Element {
  const whole = look.size === null ? '' : size(look.size);
  return (
    <p className="nbd-Small" role="status">
      {!look.isCut
        ? trans.__('All of it.')
        : whole
          ? trans.__('Only its beginning; the object has %1.', whole)
          : trans.__('Only its beginning.')}
    </p>
  );
}

/** Cells are text, whatever a spreadsheet would take them for. */
function Table({ rows }: { rows: string[][] }): React.JSX.Element {
  const [head = [], ...body] = rows;
  return (
    <div className="nbd-Table nbd-Preview-table" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {head.map((cell, n) => (
              <th key={n} scope="col">
                {printable(cell)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {body.map((row, n) => (
            <tr key={n}>
              {row.map((cell, m) => (
                <td key={m}>{printable(cell)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The URL of a blob of this page, whose type is that of a picture; it is gone with what shows it. */
function usePixels(data: Uint8Array<ArrayBuffer>, media: string): string {
  const [url, setUrl] = React.useState('');
  React.useEffect(() => {
    const made = URL.createObjectURL(new Blob([data], { type: media }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [data, media]);
  return url;
}

function Picture({ look }: { look: Look & { kind: 'picture' } }): React.JSX.Element {
  const url = usePixels(look.data, look.media);
  const [sides, setSides] = React.useState<string[]>([]);
  const [isBroken, setBroken] = React.useState(false);
  if (isBroken) {
    return <p>{trans.__('The browser cannot show this picture.')}</p>;
  }
  return (
    <>
      {url && (
        <img
          className="nbd-Picture"
          src={url}
          alt={trans.__('The picture')}
          onError={() => setBroken(true)}
          onLoad={event => {
            const { naturalWidth, naturalHeight } = event.currentTarget;
            setSides([trans.__('%1 × %2 pixels', naturalWidth, naturalHeight)]);
          }}
        />
      )}
      <Parts of={[...sides, ...(look.size === null ? [] : [size(look.size)])]} />
    </>
  );
}

/** The first samples of an FFRecord file. */
function Samples({ look }: { look: Look & { kind: 'samples' } }): React.JSX.Element {
  const shown = look.samples.length;
  const count = look.count.toLocaleString('en');
  return (
    <>
      {shown > 0 && (
        <div
          className="nbd-Table nbd-Preview-table"
          tabIndex={0}
          role="group"
          aria-label={trans.__('Samples')}
        >
          <table>
            <thead>
              <tr>
                <th scope="col">{trans.__('Sample')}</th>
                <th scope="col">{trans.__('Size')}</th>
                <th scope="col">{trans.__('Content')}</th>
              </tr>
            </thead>
            <tbody>
              {look.samples.map(sample => (
                <tr key={sample.number}>
                  <td className="nbd-mod-number">{sample.number.toLocaleString('en')}</td>
                  <td className="nbd-mod-number">{size(sample.size)}</td>
                  <td>
                    <Content sample={sample} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p className="nbd-Small" role="status">
        {shown < look.count
          ? trans.__('The first %1 of %2 samples.', shown, count)
          : trans._n('%2 sample.', 'All %2 samples.', look.count, count)}
      </p>
    </>
  );
}

function Content({ sample }: { sample: Sample }): React.JSX.Element {
  const url = usePixels(sample.data, sample.media);
  const [isBroken, setBroken] = React.useState(false);
  if (sample.problem) {
    return <span className="nbd-Wrapped">{trans.__('Wrong: %1.', printable(sample.problem))}</span>;
  }
  if (sample.media && !isBroken) {
    return url ? (
      <img
        className="nbd-Thumb"
        src={url}
        alt={trans.__('The picture of sample %1', sample.number)}
        onError={() => setBroken(true)}
      />
    ) : (
      <></>
    );
  }
  return <span className="nbd-Wrapped">{printable(sample.text) || trans.__('bytes')}</span>;
}

/** The members of an archive, or of a shard. To list them, a job reads the archive. */
function Members({ source, connection, runs, insert }: Given): React.JSX.Element {
  useChanges(runs.changed);
  const operation: Operation = {
    verb: 'untar_volumes',
    source,
    list: true,
    ...(connection && { connection })
  };
  const line = useLine(operation);
  const listed = runs.get(operation);
  const key = JSON.stringify(operation);
  React.useEffect(
    () => () => {
      const ours = JSON.parse(key) as Operation;
      if (isRunning(runs.get(ours))) {
        void runs.cancel(ours).catch(() => undefined); // it has ended by itself
      }
      runs.forget(ours);
    },
    [runs, key]
  );
  if (hasGlob(source)) {
    return <p>{trans.__('An archive. A line would take its name for a pattern of several.')}</p>;
  }
  return (
    <>
      <p className="nbd-Small nbd-Wrapped">
        {trans.__('An archive, or a shard. To list its members, a job reads it.')}
      </p>
      <Line {...line} insert={insert} />
      {isRunning(listed) ? (
        <Busy text={trans.__('Reading the archive')} cancel={() => void runs.cancel(operation)} />
      ) : (
        listed?.result?.state !== 'DONE' && (
          <div className="nbd-Acts">
            <Act
              label={trans.__('List members')}
              disabled={line.said === null}
              onClick={() => void runs.start(operation)}
            />
          </div>
        )
      )}
      <Ended run={listed} />
      {listed?.result?.state === 'DONE' && <Names result={listed.result} />}
    </>
  );
}

function Names({ result }: { result: Result }): React.JSX.Element {
  const shown = result.rows.slice(0, MOST_MEMBERS);
  const count = result.count.toLocaleString('en');
  return (
    <>
      <div
        className="nbd-Table nbd-Preview-table"
        tabIndex={0}
        role="group"
        aria-label={trans.__('Members')}
      >
        <table>
          <tbody>
            {shown.map((row, n) => (
              <tr key={n}>
                <td>{printable(row.path)}</td>
                <td className="nbd-mod-number">{row.size >= 0 ? size(row.size) : ''}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="nbd-Small" role="status">
        {shown.length < result.count
          ? trans.__('The first %1 of %2 members.', shown.length.toLocaleString('en'), count)
          : trans._n('%2 member.', 'All %2 members.', result.count, count)}
      </p>
    </>
  );
}
