/** What the user has set; `schema/panel.json` describes the settings and their defaults. */

import { Choice } from './filter.js';
import { Job } from './model.js';

export interface Settings {
  notifyJobs: 'server' | 'all' | 'none';
  notifyAfter: number;
  notifyFailures: boolean;
  statusBar: 'both' | 'transfers' | 'disk' | 'nothing';
  workingDisk: string;
  transfersOf: Choice;
  /** Whether objects of stores may be deleted by the panel. */
  allowDeleting: boolean;
}

export const DEFAULTS: Settings = {
  notifyJobs: 'server',
  notifyAfter: 30,
  notifyFailures: true,
  statusBar: 'both',
  workingDisk: '',
  transfersOf: 'all',
  allowDeleting: false
};

/** Return the settings with the defaults for what is missing; Lab has checked them against the schema. */
export function parseSettings(given: object): Settings {
  return { ...DEFAULTS, ...given };
}

/** Return how the end of a job is told: as a success, as a failure, or not at all. */
export function toldAs(job: Job, settings: Settings): 'success' | 'failure' | null {
  if (settings.notifyJobs === 'none' || (settings.notifyJobs === 'server' && !job.here)) {
    return null;
  }
  if (job.state === 'FAILED' || job.state === 'INTERRUPTED') {
    return settings.notifyFailures ? 'failure' : null;
  }
  return job.state === 'DONE' && job.seconds >= settings.notifyAfter ? 'success' : null;
}
