/** Formats numbers for people, in the same way as the Python code. */

import { trans } from './text.js';

/** `999 B`, `1.5 kB`, `20.0 GB`: decimal units. */
export function size(bytes: number): string {
  if (bytes < 1000) {
    return `${Math.trunc(bytes)} B`;
  }
  let value = bytes;
  for (const unit of ['kB', 'MB', 'GB', 'TB']) {
    value /= 1000;
    if (value < 999.95) {
      return `${value.toFixed(1)} ${unit}`;
    }
  }
  return `${(value / 1000).toFixed(1)} PB`;
}

/** `2026-11-28 08:22`, of the local time. */
export function moment(seconds: number): string {
  const at = new Date(1000 * seconds);
  if (Number.isNaN(at.getTime())) {
    return '–';
  }
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** `<0.1 s`, `0.3 s`, `42 s`, `3 min 20 s`, `2 h 5 min`. */
export function duration(seconds: number): string {
  if (seconds > 0 && seconds < 0.1) {
    return '<0.1 s';
  }
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  const whole = Math.round(seconds);
  if (whole < 60) {
    return `${whole} s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  }
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** `12 of 20 files`, or `12 files` while the total is unknown. */
export function files(done: number, total: number | null): string {
  const count = (value: number): string => value.toLocaleString('en');
  return total === null
    ? trans._n('%2 file', '%2 files', done, count(done))
    : trans._n('%2 of %3 file', '%2 of %3 files', total, count(done), count(total));
}

/** `12,800 listed so far`; empty for none, or if that is not known. */
export function soFar(listed: number | null): string {
  return listed ? trans.__('%1 listed so far', listed.toLocaleString('en')) : '';
}

/** `1.2 GB of 2.3 GB`, or `1.2 GB` while the total is unknown. */
export function share(done: number, total: number | null): string {
  return total === null ? size(done) : trans.__('%1 of %2', size(done), size(total));
}

/** A whole percentage, which is 100 only when nothing is missing; null if the total is unknown. */
export function percent(done: number, total: number | null): number | null {
  if (total === null || total <= 0) {
    return null;
  }
  return done >= total ? 100 : Math.max(0, Math.min(99, Math.floor((100 * done) / total)));
}

/** A percentage of a disk: `48%`; below ten with a decimal, so that a large disk is seen to fill. */
export function precise(percent: number): string {
  if (percent > 0 && percent < 0.1) {
    return '<0.1%';
  }
  return percent > 0 && percent < 10
    ? `${(Math.floor(10 * percent) / 10).toFixed(1)}%`
    : `${Math.floor(percent)}%`;
}
