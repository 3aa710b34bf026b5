/** Which transfers the panel lists: those of the notebook in front, of this server, or all. Pure functions. */

import type { Job } from './model.js';

export const CHOICES = ['notebook', 'server', 'all'] as const;

export type Choice = (typeof CHOICES)[number];

/** Return what can be shown: without a notebook in front, its transfers cannot, and those of the server are. */
export function possible(choice: Choice, notebook: string | null): Choice {
  return choice === 'notebook' && notebook === null ? 'server' : choice;
}

/** True if a job belongs to a choice; `notebook` is the path of the notebook in front. */
export function belongs(job: Job, choice: Choice, notebook: string | null): boolean {
  switch (choice) {
    case 'notebook':
      return job.notebook !== null && job.notebook === notebook;
    case 'server':
      return job.here;
    case 'all':
      return true;
  }
}

/** Return the first choice, from this one on to wider ones, that a job belongs to. */
export function wideEnough(choice: Choice, job: Job, notebook: string | null): Choice {
  return (
    CHOICES.slice(CHOICES.indexOf(choice)).find(wider => belongs(job, wider, notebook)) ?? 'all'
  );
}
