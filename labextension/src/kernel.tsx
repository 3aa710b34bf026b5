/** The section *This kernel*: what is wrong with nbdata in the kernel of the notebook in front, and the line that mends it. */

import { addIcon, copyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Trouble } from './diagnosis.js';
import { Button, Line, Problem, useAttempt } from './parts.js';
import { trans } from './text.js';
import { troubleText } from './words.js';

/** Shows one line and one button; nothing if nothing is wrong. */
export function ThisKernel(props: {
  trouble: Trouble | null;
  /** Puts the line into a new cell; without a notebook, copies it and returns false. */
  insert: (line: string) => Promise<boolean>;
  copy: (line: string) => Promise<void>;
}): React.JSX.Element | null {
  const { trouble, insert, copy } = props;
  const { busy, problem, attempt } = useAttempt();
  const [copied, setCopied] = React.useState('');
  if (!trouble) {
    return null;
  }
  const { line } = trouble;
  const inserts = trouble.kind === 'not loaded';
  const label = inserts ? trans.__('Insert') : trans.__('Copy');
  return (
    <section className="nbd-Section nbd-Kernel" aria-label={trans.__('This kernel')}>
      <h2 className="nbd-Heading">{trans.__('This kernel')}</h2>
      <p className="nbd-Empty">{troubleText(trouble)}</p>
      <div className="nbd-Line">
        <Line text={line} />
        <Button
          label={copied === line ? trans.__('Copied') : label}
          of={line}
          icon={inserts ? addIcon : copyIcon}
          disabled={busy}
          text
          onClick={() =>
            void attempt(label, async () => {
              if (inserts && (await insert(line))) {
                return;
              }
              await copy(line);
              setCopied(line);
            })
          }
        />
      </div>
      <Problem text={problem} />
    </section>
  );
}
