import assert from 'node:assert/strict';
import test from 'node:test';

import { parseJob } from '../model.js';
import { questionOf } from '../questions.js';

const job = (fields: object) =>
  parseJob({ key: 'a', verb: 'pull', source: 's3://b/vols/', state: 'RUNNING', ...fields });

test('a job from elsewhere is asked about, with its owner', () => {
  const far = job({ here: false, owner: 'other.ipynb' });
  for (const deed of ['pause', 'resume', 'cancel', 'limit'] as const) {
    assert.match(questionOf(far, deed)?.body ?? '', /other\.ipynb/);
  }
  assert.deepEqual(questionOf({ ...far, state: 'FAILED' }, 'again'), {
    title: 'Retry: pull vols?',
    body: 'It was not begun on this server, but by other.ipynb.',
    accept: 'Retry'
  });
  assert.match(
    questionOf(job({ here: false }), 'pause')?.body ?? '',
    /not begun on this server\.$/
  );
});

test('a job of this server is asked about only where a cancel deletes', () => {
  for (const deed of ['pause', 'resume', 'cancel', 'limit', 'again'] as const) {
    assert.equal(questionOf(job({ here: true }), deed), null);
  }
  const stream = job({ here: true, verb: 'cache_stream' });
  assert.match(questionOf(stream, 'cancel')?.body ?? '', /cache will be deleted/);
  assert.equal(questionOf(stream, 'pause'), null);
});

test('names of any length and kind keep a question short', () => {
  const name = `\u202e${'x'.repeat(10_000)}`;
  const question = questionOf(job({ here: false, owner: name, source: name }), 'cancel');
  assert.ok(question && question.title.length + question.body.length < 300);
  assert.ok(!`${question.title}${question.body}`.includes('\u202e'));
});
