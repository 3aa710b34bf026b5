/** The tray *Free…*: what is to be deleted, a plan that says what that frees, and only then the deletion. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { found, freed, freeingWords } from './diskwords.js';
import { size } from './format.js';
import { Insert, Place } from './parts.js';
import { Freeing, freeing, isOver, Operation, Result } from './results.js';
import { Runs } from './runs.js';
import { printable, shortened, trans } from './text.js';
import { Act, Busy, Ended, isRunning, Line, useLine } from './trays.js';

/** The most files that are named before they are lost. */
const NAMED = 5;
/** The most characters of such a name. */
const LONGEST = 120;

function Choice(props: {
  label: string;
  help: string;
  checked: boolean;
  disabled?: boolean;
  choose: (on: boolean) => void;
}): React.JSX.Element {
  return (
    <label className={`nbd-Choice${props.disabled ? ' nbd-mod-disabled' : ''}`}>
      <input
        type="checkbox"
        checked={props.checked}
        disabled={props.disabled}
        onChange={event => props.choose(event.target.checked)}
      />
      <span>
        {props.label}
        <span className="nbd-Small nbd-Help">{props.help}</span>
      </span>
    </label>
  );
}

/** The first files that a plan loses: the rows of such a plan are these. */
function lostFiles(plan: Result): string[] {
  const names = plan.rows.slice(0, NAMED).map(row => shortened(printable(row.path), LONGEST));
  return plan.rows.length > NAMED ? [...names, '…'] : names;
}

/** The first question before files are deleted that are nowhere else. */
function Lost(props: {
  plan: Result;
  what: Freeing;
  keep: () => void;
  lose: () => void;
}): React.JSX.Element {
  const { plan, what, keep, lose } = props;
  const first = React.useRef<HTMLParagraphElement>(null);
  React.useEffect(() => first.current?.focus(), []);
  return (
    <div
      className="nbd-Notice"
      role="alertdialog"
      aria-label={trans.__('Files that are only here')}
    >
      <p tabIndex={-1} ref={first}>
        {trans.__('%1 are only here. Nothing can bring them back:', size(what.lost))}
      </p>
      <ul className="nbd-Names">
        {lostFiles(plan).map(name => (
          <li key={name}>{name}</li>
        ))}
      </ul>
      <div className="nbd-Acts">
        <Act label={trans.__('Keep them')} onClick={keep} />
        <Act label={trans.__('Delete them too…')} warn onClick={lose} />
      </div>
    </div>
  );
}

/** The second one. */
async function isSure(what: Freeing, folder: string): Promise<boolean> {
  const asked = await showDialog({
    title: trans.__('Delete what is only here?'),
    body: trans.__(
      '%1 in %2 will be lost for good, and %3 in all will be deleted.',
      size(what.lost),
      printable(folder),
      size(what.all)
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Delete for good') })
    ],
    defaultButton: 0
  });
  return asked.button.accept;
}

/** What the plan frees, and the button that does it. */
function Planned(props: { plan: Result; folder: string; begin: () => void }): React.JSX.Element {
  const { plan, folder, begin } = props;
  const [isAsking, ask] = React.useState(false);
  const what = freeing(plan);
  const notes = plan.notes.slice(plan.frees.size ? 1 : 0); // the first one says the same in a sentence
  const button = React.useRef<HTMLDivElement>(null);
  const back = (): void => {
    ask(false);
    button.current?.querySelector('button')?.focus();
  };
  return (
    <>
      <div role="status">
        <ul className="nbd-Plan" aria-label={trans.__('The plan')}>
          {freeingWords(what).map(fact => (
            <li key={fact}>{fact}</li>
          ))}
        </ul>
      </div>
      {notes.map(note => (
        <p key={note} className="nbd-Small nbd-Wrapped">
          {note}
        </p>
      ))}
      <div className="nbd-Acts" ref={button}>
        <Act
          label={trans.__('Free %1', size(what.all))}
          disabled={what.all === 0 || isAsking}
          warn
          onClick={() => (what.lost ? ask(true) : begin())}
        />
      </div>
      {isAsking && (
        <Lost
          plan={plan}
          what={what}
          keep={back}
          lose={() =>
            void isSure(what, folder).then(sure => {
              if (sure) {
                begin();
              } else {
                back();
              }
            })
          }
        />
      )}
    </>
  );
}

/** The content of the tray. */
export function Free(props: { folder: string; runs: Runs; insert: Insert }): React.JSX.Element {
  const { folder, runs, insert } = props;
  const [caches, setCaches] = React.useState(false);
  const [stored, setStored] = React.useState(true);
  const [onlyHere, setOnlyHere] = React.useState(false);
  const operation: Operation = {
    verb: 'cleanup',
    source: folder,
    ...(caches && { caches }),
    ...(stored && { stored }),
    ...(stored && onlyHere && { only_here: true as const })
  };
  const asPlan: Operation = { ...operation, dry_run: true };
  const line = useLine(operation);
  const [planned, done] = [runs.get(asPlan), runs.get(operation)];
  const plan = planned?.result?.state === 'DONE' ? planned.result : null;
  const begin = (): void => {
    runs.forget(asPlan); // it is true no more
    void runs.start(operation);
  };
  const key = JSON.stringify(operation);
  React.useEffect(() => {
    const chosen = JSON.parse(key) as Operation & { verb: 'cleanup' };
    return () => {
      runs.forget({ ...chosen, dry_run: true }); // nobody sees it any more
      if (!isRunning(runs.get(chosen))) {
        runs.forget(chosen);
      }
    };
  }, [runs, key]);
  return (
    <>
      <Place name={trans.__('in')} place={printable(folder)} />
      <fieldset className="nbd-Choices">
        <legend className="nbd-Small">{trans.__('Delete')}</legend>
        <Choice
          label={trans.__('What interrupted transfers left')}
          help={trans.__('unfinished files that no job needs')}
          checked
          disabled
          choose={() => undefined}
        />
        <Choice
          label={trans.__('Caches of samples')}
          help={trans.__('those that no process uses')}
          checked={caches}
          choose={setCaches}
        />
        <Choice
          label={trans.__('What a store still has')}
          help={trans.__('unchanged since it was pulled or pushed; the store is asked')}
          checked={stored}
          choose={setStored}
        />
        <Choice
          label={trans.__('What is only here')}
          help={trans.__('all other files: they are lost')}
          checked={stored && onlyHere}
          disabled={!stored}
          choose={setOnlyHere}
        />
      </fieldset>
      <Line {...line} insert={insert} />
      <Ended run={done} />
      {!planned && done?.result && isOver(done.result) && done.result.state === 'DONE' && (
        <p role="status">{freed(done.result)}</p>
      )}
      {!plan && !isRunning(planned) && !isRunning(done) && (
        <div className="nbd-Acts">
          <Act
            label={trans.__('Show the plan')}
            disabled={line.said === null}
            onClick={() => void runs.start(asPlan)}
          />
        </div>
      )}
      {isRunning(planned) && (
        <Busy
          text={trans.__('Looking what can be deleted')}
          cancel={() => void runs.cancel(asPlan)}
        />
      )}
      <Ended run={planned} />
      {plan && <Planned plan={plan} folder={folder} begin={begin} />}
      {isRunning(done) && (
        <Busy
          text={trans.__('Freeing: %1', found(done?.result?.files ?? 0))}
          cancel={() => void runs.cancel(operation)}
        />
      )}
    </>
  );
}
