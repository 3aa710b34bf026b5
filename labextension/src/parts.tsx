/** Components that several sections of the panel share. */

import { Clipboard } from '@jupyterlab/apputils';
import { checkIcon, copyIcon, LabIcon } from '@jupyterlab/ui-components';
import { ISignal } from '@lumino/signaling';
import * as React from 'react';

import { trans } from './text.js';

/** A button with an icon, plus its label if `text` is set; `of` names its object for screen readers. */
export function Button(props: {
  label: string;
  of: string;
  icon: LabIcon;
  disabled?: boolean;
  text?: boolean;
  /** Of a button that opens something: whether it is open. */
  expanded?: boolean;
  onClick: () => void;
}): React.JSX.Element {
  return (
    <button
      type="button"
      className={props.text ? 'nbd-Button nbd-mod-text' : 'nbd-Button'}
      title={props.label}
      aria-label={`${props.label}: ${props.of}`}
      // Not `disabled`, because a keyboard user would lose the focus.
      aria-disabled={props.disabled ?? false}
      aria-expanded={props.expanded}
      onClick={() => !props.disabled && props.onClick()}
    >
      <props.icon.react tag="span" className="nbd-Icon" aria-hidden="true" />
      {props.text && props.label}
    </button>
  );
}

/** Runs one action at a time; `busy` while it runs, `problem` is the last one's error if it failed. */
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

/** Draws a component anew after each signal. */
export function useChanges(of: ISignal<unknown, unknown>): void {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    of.connect(draw);
    return () => void of.disconnect(draw);
  }, [of]);
}

/** A source or target of a job. */
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

/** The error of an attempt, if there is one. */
export function Problem({ text }: { text: string }): React.JSX.Element | null {
  return text ? (
    <div className="nbd-Problem" role="alert">
      {text}
    </div>
  ) : null;
}

/** Short facts in one line, which wraps only between them. */
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

/** Puts a line into a new cell of the notebook in front; without one, copies it and returns false. */
export type Insert = (line: string) => Promise<boolean>;

/** A line for a cell, with *Copy line* and *Insert as cell*. */
export function CellLine({ line, insert }: { line: string; insert: Insert }): React.JSX.Element {
  const { problem, attempt } = useAttempt();
  const [copied, setCopied] = React.useState('');
  const [without, setWithout] = React.useState('');
  const isCopied = copied === line;
  const label = trans.__('Insert as cell');
  return (
    <>
      <div className="nbd-Line">
        <Line text={line} />
        <div className="nbd-Line-acts">
          <button
            type="button"
            className="nbd-Link nbd-Small"
            onClick={() =>
              void attempt(label, async () => setWithout((await insert(line)) ? '' : line))
            }
          >
            {label}
          </button>
          <Button
            label={isCopied ? trans.__('Copied') : trans.__('Copy line')}
            of={line}
            icon={isCopied ? checkIcon : copyIcon}
            onClick={() => {
              Clipboard.copyToSystem(line);
              setCopied(line);
            }}
          />
        </div>
      </div>
      <OnlyCopied is={without === line} />
      <Problem text={problem} />
    </>
  );
}

/** Says why a line was not inserted. */
export function OnlyCopied({ is }: { is: boolean }): React.JSX.Element {
  return (
    <div className="nbd-Small" role="status">
      {is && trans.__('Its line is copied, because no Python notebook is in front.')}
    </div>
  );
}

/** A line for a cell; it wraps only between its words. */
export function Line({ text }: { text: string }): React.JSX.Element {
  return (
    <code>
      {text.split(' ').map((word, n) => (
        <React.Fragment key={n}>
          {n > 0 && ' '}
          <span className="nbd-Fact">{word}</span>
        </React.Fragment>
      ))}
    </code>
  );
}
