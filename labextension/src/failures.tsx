/** The table *Failed files* of a finished job, fetched when it is opened; it can be copied, and saved as CSV. */

import { Clipboard } from '@jupyterlab/apputils';
import * as React from 'react';

import { isFinished, Job } from './model.js';
import { Problem } from './parts.js';
import { csv, plain, Result } from './results.js';
import { failuresOf } from './runs.js';
import { printable, shortened, trans } from './text.js';
import { Act } from './trays.js';
import { title } from './words.js';

/** The most characters of a reason. */
const REASON = 300;

/** Let the browser save a text as a file. */
function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

/** What the table leaves out. */
function leftOut({ rows, count }: Result, most: number): string {
  if (rows.length >= count) {
    return '';
  }
  return rows.length >= most
    ? trans.__('The first %1 of %2 are shown.', rows.length, count)
    : trans.__(
        '%1 of %2 are on record; the agent that had the others has ended. Run it again to see them.',
        rows.length,
        count
      );
}

function Table({ job, result }: { job: Job; result: Result }): React.JSX.Element {
  const { rows } = result;
  const [copied, setCopied] = React.useState(false);
  const left = leftOut(result, 1000);
  const of = title(job);
  return (
    <>
      <div className="nbd-Table" role="region" aria-label={trans.__('Failed files')} tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">{trans.__('file')}</th>
              <th scope="col">{trans.__('reason')}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, n) => (
              <tr key={n}>
                <td title={printable(row.path)}>{shortened(printable(row.path), REASON)}</td>
                <td title={printable(row.reason)}>
                  {shortened(printable(row.reason || row.action), REASON)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {left && <p className="nbd-Small">{left}</p>}
      <div className="nbd-Acts">
        <Act
          label={copied ? trans.__('Copied') : trans.__('Copy')}
          of={of}
          onClick={() => {
            Clipboard.copyToSystem(plain(rows));
            setCopied(true);
          }}
        />
        <Act
          label={trans.__('CSV')}
          of={of}
          onClick={() => save(`failed-${job.verb}-${job.id}.csv`, csv(rows))}
        />
      </div>
    </>
  );
}

/** The table, closed at first; nothing for a job that succeeded. */
export function Failures({ job }: { job: Job }): React.JSX.Element | null {
  const [isOpen, setOpen] = React.useState(false);
  const [result, setResult] = React.useState<Result | null>(null);
  const [problem, setProblem] = React.useState('');
  React.useEffect(() => {
    if (isOpen && !result) {
      setProblem('');
      failuresOf(job.id).then(setResult, (error: unknown) =>
        setProblem(error instanceof Error ? error.message : String(error))
      );
    }
  }, [isOpen, result, job.id]);
  const hasTried = job.failures > 0 || (job.state === 'FAILED' && job.files > 0);
  if (!isFinished(job) || job.state === 'DONE' || !hasTried) {
    return null;
  }
  const name = job.failures
    ? trans.__('Failed files (%1)', job.failures)
    : trans.__('Failed files');
  return (
    <div className="nbd-Failures">
      <button
        type="button"
        className="nbd-Link nbd-Small"
        aria-expanded={isOpen}
        aria-label={`${name}: ${title(job)}`}
        onClick={() => setOpen(!isOpen)}
      >
        {name}
      </button>
      <Problem text={isOpen ? problem : ''} />
      {isOpen && !result && !problem && <p className="nbd-Empty">{trans.__('Loading…')}</p>}
      {isOpen && result?.count === 0 && (
        <p className="nbd-Empty">
          {trans.__('No single file failed: the reason above ended the job.')}
        </p>
      )}
      {isOpen && result && result.count > 0 && <Table job={job} result={result} />}
    </div>
  );
}
