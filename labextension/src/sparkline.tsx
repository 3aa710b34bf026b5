/** A small graph of a job's rate over the last minute. */

import * as React from 'react';

import { size } from './format.js';
import { MINUTE, Speed } from './model.js';
import { trans } from './text.js';

const [WIDTH, HEIGHT] = [60, 16];

/** Return the corners of the graph, in steps, from the left; rates are relative to the highest. */
export function corners(speeds: readonly Speed[]): [number, number][] {
  const last = speeds[speeds.length - 1];
  const most = Math.max(...speeds.map(speed => speed.rate));
  if (!last || most <= 0) {
    return [];
  }
  const x = (at: number): number => Math.max(0, WIDTH * (1 - (last.at - at) / MINUTE));
  const y = (rate: number): number => 1 + (HEIGHT - 2) * (1 - rate / most);
  return speeds.flatMap((speed, n): [number, number][] => {
    const before = speeds[n - 1];
    const corner: [number, number] = [x(speed.at), y(speed.rate)];
    return before ? [[corner[0], y(before.rate)], corner] : [corner];
  });
}

/** Shows the rates; an empty frame until there are any. */
export function Sparkline({ speeds }: { speeds: readonly Speed[] }): React.JSX.Element {
  const points = corners(speeds);
  const most = Math.max(0, ...speeds.map(speed => speed.rate));
  return (
    <svg
      className="nbd-Sparkline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={trans.__('rate of the last minute, at most %1', `${size(most)}/s`)}
    >
      {points.length > 1 && (
        <polyline points={points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' ')} />
      )}
    </svg>
  );
}
