/** Parts of what opens below a button: the tray itself, the line of an operation, and how far that is. */

import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Button, CellLine, Insert, Problem } from './parts.js';
import { isOver, Operation, Said } from './results.js';
import { Run, sayLine } from './runs.js';
import { trans } from './text.js';

/** Milliseconds for which the line waits until the user has typed on. */
const PAUSE = 150;

/** What opens below a button. It takes the focus, and keeps it when a button in it goes; Escape closes it. */
export function Tray(props: {
  name: string;
  of: string;
  close: () => void;
  children: React.ReactNode;
}): React.JSX.Element {
  const { name, of, close } = props;
  const heading = React.useRef<HTMLHeadingElement>(null);
  const section = React.useRef<HTMLElement>(null);
  const focused = React.useRef<Element | null>(null);
  React.useEffect(() => {
    heading.current?.focus();
    const observer = new MutationObserver(() => {
      if (focused.current?.isConnected === false && document.activeElement === document.body) {
        heading.current?.focus();
      }
    });
    if (section.current) {
      observer.observe(section.current, { childList: true, subtree: true });
    }
    return () => observer.disconnect();
  }, []);
  return (
    <section
      ref={section}
      className="nbd-Tray"
      aria-label={`${name}: ${of}`}
      onFocus={event => (focused.current = event.target)}
      onBlur={({ target }) => {
        // Later, because an element that goes is blurred, too.
        window.setTimeout(() => {
          if (target.isConnected && focused.current === target) {
            focused.current = null;
          }
        }, 0);
      }}
      onKeyDown={event => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          close();
        }
      }}
    >
      <div className="nbd-Row">
        <h3 className="nbd-Subheading" tabIndex={-1} ref={heading}>
          {name}
        </h3>
        <Button label={trans.__('Close')} of={name} icon={closeIcon} onClick={close} />
      </div>
      {props.children}
    </section>
  );
}

/** The line of an operation, while the user still chooses: null until the server has said it, or without one. */
export function useLine(operation: Operation | null): { said: Said | null; problem: string } {
  const key = operation ? JSON.stringify(operation) : '';
  const [known, setKnown] = React.useState<{ key: string; said: Said | null; problem: string }>();
  React.useEffect(() => {
    if (!key) {
      return undefined;
    }
    let isWanted = true;
    const tell = (said: Said | null, problem: string): void => {
      if (isWanted) {
        setKnown({ key, said, problem });
      }
    };
    const ask = (): void => {
      sayLine(JSON.parse(key) as Operation).then(
        said => tell(said, ''),
        (error: unknown) => tell(null, error instanceof Error ? error.message : String(error))
      );
    };
    const timer = window.setTimeout(ask, PAUSE);
    return () => {
      isWanted = false;
      window.clearTimeout(timer);
    };
  }, [key]);
  return key && known?.key === key ? known : { said: null, problem: '' };
}

/** The line of an operation, with *Copy line* and *Insert as cell*; or why there is none. */
export function Line(props: {
  said: Said | null;
  problem: string;
  insert: Insert;
}): React.JSX.Element {
  const { said, problem, insert } = props;
  const why = problem || (said?.whyNoLine ?? '');
  return (
    <>
      {said?.line ? (
        <CellLine line={said.line} insert={insert} />
      ) : (
        <div className="nbd-Line">
          <code>{why ? '–' : trans.__('Loading…')}</code>
        </div>
      )}
      <Problem text={why} />
    </>
  );
}

/** A button with a text, and no icon. */
export function Act(props: {
  label: string;
  of?: string;
  disabled?: boolean;
  warn?: boolean;
  onClick: () => void;
}): React.JSX.Element {
  return (
    <button
      type="button"
      className={`nbd-Button nbd-mod-text nbd-Act${props.warn ? ' nbd-mod-danger' : ''}`}
      aria-label={props.of ? `${props.label}: ${props.of}` : undefined}
      aria-disabled={props.disabled ?? false}
      onClick={() => !props.disabled && props.onClick()}
    >
      {props.label}
    </button>
  );
}

export function isRunning(run: Run | null): boolean {
  return run !== null && !run.problem && !(run.result && isOver(run.result));
}

/** Says why a run failed, or that it was cancelled; nothing for one that succeeded. */
export function Ended({ run }: { run: Run | null }): React.JSX.Element | null {
  const state = run?.result?.state;
  if (run?.problem || state === 'FAILED' || state === 'INTERRUPTED') {
    return <Problem text={run?.problem || run?.result?.error || trans.__('it failed')} />;
  }
  return state === 'CANCELLED' ? <p className="nbd-Empty">{trans.__('Cancelled')}</p> : null;
}

/** What runs, in words that are also read aloud, how far it is, and a button that cancels it. */
export function Busy(props: { text: string; far?: string; cancel: () => void }): React.JSX.Element {
  return (
    <div className="nbd-Row nbd-mod-wrap nbd-Busy">
      <span role="status">{props.text}</span>
      {props.far && <span className="nbd-Far">{props.far}</span>}
      <Act label={trans.__('Cancel')} of={props.text} onClick={props.cancel} />
    </div>
  );
}
