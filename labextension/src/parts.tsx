/** What several parts of the panel are made of. */

import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

/** A button with an icon, and with its label as text if `text` is set; `of` says of what, for screen readers. */
export function Button(props: {
  label: string;
  of: string;
  icon: LabIcon;
  disabled?: boolean;
  text?: boolean;
  onClick: () => void;
}): React.JSX.Element {
  return (
    <button
      type="button"
      className={props.text ? 'nbd-Button nbd-mod-text' : 'nbd-Button'}
      title={props.label}
      aria-label={`${props.label}: ${props.of}`}
      // Not `disabled`, which would take the focus away from who uses the keyboard.
      aria-disabled={props.disabled ?? false}
      onClick={() => !props.disabled && props.onClick()}
    >
      <props.icon.react tag="span" className="nbd-Icon" aria-hidden="true" />
      {props.text && props.label}
    </button>
  );
}

/** One attempt at a time: whether it is under way, and what came of the last one if it failed. */
export function useAttempt(): {
  busy: boolean;
  problem: string;
  attempt: (what: string, work: () => Promise<void>) => Promise<void>;
} {
  const [busy, setBusy] = React.useState(false);
  const [problem, setProblem] = React.useState('');
  const attempt = async (what: string, work: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setProblem('');
    try {
      await work();
    } catch (error) {
      setProblem(`${what}: ${error instanceof Error ? error.message : String(error)}`);
    } finally {
      setBusy(false);
    }
  };
  return { busy, problem, attempt };
}

/** Where bytes come from or go to. */
export function Place({ name, place }: { name: string; place: string }): React.JSX.Element | null {
  return place ? (
    <div className="nbd-Place" title={place}>
      <span className="nbd-Place-name">{name}</span>
      <span className="nbd-Path">
        <bdi>{place}</bdi>
      </span>
    </div>
  ) : null;
}

/** Facts in one line, which breaks between them only. */
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
