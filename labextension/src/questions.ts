/** What is asked before the panel acts on a job; pure functions. */

import type { Action, Job } from './model.js';
import { shortened, trans } from './text.js';
import { again, button, title } from './words.js';

/** What can be done with a job: `again` starts its line again, `limit` changes its rate. */
export type Deed = Action | 'again' | 'limit';

export interface Question {
  title: string;
  body: string;
  /** The label of the button that goes on. */
  accept: string;
}

/** The most characters of a name in a question. */
const LONGEST = 80;

/** Verbs that delete what they have fetched when they are cancelled. */
const DELETE_AT_CANCEL = ['cache_stream'];

/**
 * Return what to ask before acting on a job; null if nothing.
 *
 * A job from elsewhere may be waited for by somebody else. Other jobs are asked about only where a cancel deletes: most
 * keep what they have transferred, and resume.
 */
export function questionOf(job: Job, deed: Deed): Question | null {
  const told = shortened(title(job), LONGEST);
  const reasons: string[] = [];
  if (!job.here) {
    reasons.push(
      job.owner
        ? trans.__('It was not begun on this server, but by %1.', shortened(job.owner, LONGEST))
        : trans.__('It was not begun on this server.')
    );
  }
  if (deed === 'cancel' && DELETE_AT_CANCEL.includes(job.verb)) {
    reasons.push(
      trans.__('The files in its cache will be deleted, and the loop that reads them ends.')
    );
  }
  const accept = labelOf(job, deed);
  return reasons.length
    ? { title: trans.__('%1: %2?', accept, told), body: reasons.join(' '), accept }
    : null;
}

function labelOf(job: Job, deed: Deed): string {
  switch (deed) {
    case 'again':
      return again(job);
    case 'limit':
      return trans.__('Limit rate');
    default:
      return button(deed);
  }
}
