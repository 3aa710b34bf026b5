/** The section *Disks*: how full each disk and limited folder is, and where the limit comes from. */

import * as React from 'react';

import { precise, size } from './format.js';
import { Disk, fullness, shareOf } from './model.js';
import { Parts } from './parts.js';

function Gauge({ disk }: { disk: Disk }): React.JSX.Element {
  const { percent, level, word } = fullness(disk);
  const width = (bytes: number): string => `${shareOf(disk, bytes)}%`;
  const limited = disk.source !== 'the disk';
  const said = [
    `${size(disk.used)} used`,
    disk.reserved ? `${size(disk.reserved)} reserved` : '',
    `${size(disk.free)} free of ${size(disk.limit)}`
  ].filter(Boolean);
  return (
    <li className={`nbd-Gauge nbd-mod-${level}`}>
      <div className="nbd-Row">
        <span className="nbd-Path" title={disk.path}>
          <bdi>{disk.path}</bdi>
        </span>
        <span className="nbd-Strong">
          {word ? `${word}, ${precise(percent)}` : precise(percent)}
        </span>
      </div>
      <div
        className="nbd-Bar"
        role="meter"
        aria-label={`${disk.path}, ${limited ? `limit by ${disk.source}` : 'disk'}`}
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
      {limited && <div className="nbd-Small">limit by {disk.source}</div>}
    </li>
  );
}

/** Shows all gauges; those of disks without a notebook and without a job are collapsed. */
export function Disks({
  disks,
  problem
}: {
  disks: Disk[] | null;
  problem: string;
}): React.JSX.Element {
  const here = disks?.filter(disk => disk.here) ?? [];
  const others = disks?.filter(disk => !disk.here) ?? [];
  return (
    <section className="nbd-Section" aria-label="Disks">
      <h2 className="nbd-Heading">Disks</h2>
      {problem && (
        <p className="nbd-Notice" role="status">
          Disks cannot be shown: {problem}
        </p>
      )}
      {!problem && disks === null && <p className="nbd-Empty">Loading…</p>}
      <ul className="nbd-List">
        {here.map(disk => (
          <Gauge key={`${disk.source} ${disk.path}`} disk={disk} />
        ))}
      </ul>
      {others.length > 0 && (
        <details className="nbd-Fold">
          <summary>Other disks ({others.length})</summary>
          <ul className="nbd-List">
            {others.map(disk => (
              <Gauge key={disk.path} disk={disk} />
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}
