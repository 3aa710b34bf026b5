/** Facts in one line, which breaks between them only. */

import * as React from 'react';

export function Parts({ of: facts }: { of: string[] }): React.JSX.Element {
  return (
    <div className="nbd-Numbers">
      {facts.map((fact, n) => (
        <React.Fragment key={n}>
          {n > 0 && ' '}
          <span className="nbd-Fact">
            {fact}
            {n < facts.length - 1 && ' ·'}
          </span>
        </React.Fragment>
      ))}
    </div>
  );
}
