/** The section *Disks*: how full each disk and limited folder is, and where the limit comes from. */

import * as React from 'react';

import { gaugeKey } from './diskwords.js';
import { precise } from './format.js';
import { Disk, fullness, Seen, shareOf } from './seen.js';
import { Insert, Parts } from './parts.js';
import { Runs } from './runs.js';
import { printable, trans } from './text.js';
import { Tools, Wanted } from './tools.js';
import { diskFacts } from './words.js';

interface Shown {
  seen: Seen;
  runs: Runs;
  insert: Insert;
  /** The gauge whose tray *Free…* is to open. */
  wanted: Wanted | null;
}

function Gauge(props: Shown & { disk: Disk }): React.JSX.Element {
  const { disk, seen, runs, insert } = props;
  const wanted = props.wanted?.key === gaugeKey(disk) ? props.wanted : null;
  const { percent, level, word } = fullness(disk);
  const width = (bytes: number): string => `${shareOf(disk, bytes)}%`;
  const said = diskFacts(disk);
  const path = printable(disk.path);
  const limit = disk.source === 'the disk' ? '' : trans.__('limit by %1', disk.source);
  return (
    <li className={`nbd-Gauge nbd-mod-${level}`}>
      <div className="nbd-Row">
        <span className="nbd-Path" title={path}>
          <bdi>{path}</bdi>
        </span>
        <span className="nbd-Strong">
          {word ? `${word}, ${precise(percent)}` : precise(percent)}
        </span>
      </div>
      <div
        className="nbd-Bar"
        role="meter"
        aria-label={`${path}, ${limit || trans.__('disk')}`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.floor(percent)}
        aria-valuetext={said.join(', ')}
      >
        <span
          className="nbd-Bar-used"
          style={{ width: width(disk.used), minWidth: disk.used ? 2 : 0 }}
        />
        <span className="nbd-Bar-reserved" style={{ width: width(disk.reserved) }} />
      </div>
      <Parts of={said} />
      {limit && <div className="nbd-Small nbd-Wrapped">{limit}</div>}
      <Tools {...{ disk, seen, runs, insert, wanted }} />
    </li>
  );
}

/** Shows all gauges; those of disks without a notebook and without a job are collapsed. */
export function Disks(
  props: Omit<Shown, 'seen'> & { seen: Seen | null; problem: string }
): React.JSX.Element {
  const { seen, problem, ...rest } = props;
  const here = seen?.disks.filter(disk => disk.here) ?? [];
  const others = seen?.disks.filter(disk => !disk.here) ?? [];
  return (
    <section className="nbd-Section" aria-label={trans.__('Disks')}>
      <h2 className="nbd-Heading">{trans.__('Disks')}</h2>
      {problem && (
        <p className="nbd-Notice" role="status">
          {trans.__('Disks cannot be shown: %1', problem)}
        </p>
      )}
      {!problem && seen === null && <p className="nbd-Empty">{trans.__('Loading…')}</p>}
      <ul className="nbd-List">
        {seen && here.map(disk => <Gauge key={gaugeKey(disk)} {...{ disk, seen }} {...rest} />)}
      </ul>
      {seen && others.length > 0 && (
        <details className="nbd-Fold">
          <summary>{trans.__('Other disks (%1)', others.length)}</summary>
          <ul className="nbd-List">
            {others.map(disk => (
              <Gauge key={gaugeKey(disk)} {...{ disk, seen }} {...rest} />
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}
