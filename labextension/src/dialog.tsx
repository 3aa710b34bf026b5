/** The dialog of a verb: source, target, filters, the line, a plan that follows them, and the start. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { Browse } from './browse.js';
import { soFar } from './format.js';
import { isCut, isTooLarge, planned } from './moves.js';
import { Insert, Place, Problem, useAttempt, useChanges } from './parts.js';
import { isUrl, lastName } from './places.js';
import { Planned, usePlan } from './plans.js';
import { Moving, MovingVerb, Result } from './results.js';
import { Runs } from './runs.js';
import { printable, shortened, trans } from './text.js';
import { Act, Busy, Ended, isRunning, Line, useLine } from './trays.js';
import {
  describe,
  Fields,
  hasConnectionOfItsOwn,
  isComplete,
  operationOf,
  suggested,
  unpackedName,
  verifying
} from './verbs.js';

/** The most URLs that are suggested as target. */
const SUGGESTED = 20;
/** The most names of objects in a question, and the most characters of one. */
const [NAMED, LONGEST] = [5, 120];

const NONE: readonly string[] = [];

/** What all dialogs use. */
export interface Tools {
  browse: Browse;
  runs: Runs;
  insert: Insert;
  /** Opens the tray *Free…* of the disk, or of the limited folder, that a folder is in. */
  free: (folder: string) => Promise<void>;
  /** The folder of Lab's file browser on the disk; empty if the server does not say it. */
  folder: () => Promise<string>;
  /** Asks for a folder on the disk with Lab's dialog; null if the user has chosen none. */
  choose: (() => Promise<string | null>) | null;
}

/** The content of the dialog. */
export function MovingDialog(
  props: Tools & {
    verb: MovingVerb;
    source: string;
    isFile?: boolean;
    connection: string;
    /** The names of the entries of the source that are taken; all of it without them. */
    chosen?: readonly string[];
    /** The folder of a store into which something was dropped. */
    into?: string;
  }
): React.JSX.Element {
  const { verb, source, isFile = false, connection, browse, runs, insert, folder } = props;
  const { chosen = NONE, into } = props;
  const about = describe(verb);
  const [fields, setFields] = React.useState<Fields>(() => ({
    target: '',
    only: '',
    without: '',
    verify: about.verify[0] ?? '',
    through: isUrl(source) ? '' : browse.connection
  }));
  const [begun, setBegun] = React.useState<Moving | null>(null);
  const form = React.useRef<HTMLFormElement>(null);
  const { problem, attempt } = useAttempt();
  const freeLabel = trans.__('Free…');
  useChanges(runs.changed);
  React.useEffect(() => {
    const stored = into ?? browse.tree?.root ?? null;
    void folder().then(here => {
      const target = suggested(verb, source, here, stored, isFile, chosen.length > 0);
      setFields(before => (before.target ? before : { ...before, target }));
    });
  }, [browse, chosen, folder, into, isFile, source, verb]);
  const operation = operationOf(verb, source, fields, connection, chosen);
  const key = JSON.stringify(operation);
  const line = useLine(isComplete(verb, fields.target) ? operation : null);
  const started = begun && runs.get(begun);
  const isOver = started?.result?.state === 'DONE';
  const isSame = begun !== null && JSON.stringify(begun) === key;
  const plans = usePlan(
    line.said && !(isSame && (isRunning(started) || isOver)) ? operation : null
  );
  const isReady =
    line.said !== null && !isRunning(started) && (verb !== 'delete' || plans.plan !== null);
  const set = (changed: Partial<Fields>): void => setFields(before => ({ ...before, ...changed }));
  const begin = async (): Promise<void> => {
    if (verb === 'delete' && plans.plan && !(await isSure(source, plans.plan))) {
      return;
    }
    setBegun(operation);
    void runs.start(operation);
  };
  const focus = (name: string): void => {
    const field = form.current?.querySelector<HTMLInputElement>(`[name="${name}"]`);
    field?.closest('details')?.setAttribute('open', '');
    field?.focus();
  };
  return (
    <form
      ref={form}
      onSubmit={event => {
        event.preventDefault();
        if (isReady) {
          void begin();
        }
      }}
    >
      <Place
        name={
          about.target === 'checksums' || verb === 'delete' ? trans.__('what') : trans.__('from')
        }
        place={printable(source)}
      />
      {chosen.length > 0 && (
        <Place name={trans.__('only')} place={chosen.map(printable).join(', ')} />
      )}
      {about.target && <Target {...props} fields={fields} set={set} />}
      {about.help && <p className="nbd-Small nbd-Wrapped">{about.help}</p>}
      <Filters verb={verb} fields={fields} set={set} areChosen={chosen.length > 0} />
      {isComplete(verb, fields.target) && <Line {...line} insert={insert} />}
      <Plan {...{ verb, plans }} />
      {plans.plan && isTooLarge(plans.plan) && (
        <div className="nbd-Acts" role="group" aria-label={trans.__('Ways that fit')}>
          {verb === 'untar_volumes' && isUrl(source) && (
            <Act
              label={trans.__('Unpack straight to the store')}
              onClick={() => {
                set({ target: beside(source) });
                focus('target');
              }}
            />
          )}
          {!isUrl(fields.target) && (
            <Act
              label={freeLabel}
              onClick={() => void attempt(freeLabel, () => props.free(fields.target.trim()))}
            />
          )}
          <Act label={trans.__('Another disk')} onClick={() => focus('target')} />
          <Act
            label={trans.__('Take less')}
            onClick={() => focus(chosen.length > 0 ? 'without' : 'only')}
          />
        </div>
      )}
      <Problem text={problem} />
      <div className="nbd-Acts">
        <button
          type="submit"
          className={`nbd-Button nbd-mod-text nbd-Act${verb === 'delete' ? ' nbd-mod-danger' : ''}`}
          aria-disabled={!isReady}
        >
          {about.start}
        </button>
        {plans.plan && isCut(verb, plans.plan) && (
          <Act label={trans.__('Count all')} onClick={() => plans.again(true)} />
        )}
        {(plans.isStopped || plans.problem) && (
          <Act label={trans.__('Show the plan')} onClick={() => plans.again()} />
        )}
      </div>
      {isRunning(started) && begun && (
        <Busy text={about.running} cancel={() => void runs.cancel(begun)} />
      )}
      <Ended run={started} />
      {isOver && (
        <p role="status" className="nbd-Wrapped">
          {`${about.done} ${started.result?.outcome ?? ''}`}
        </p>
      )}
    </form>
  );
}

/** Where an archive of a store is unpacked in the store: beside it. */
function beside(source: string): string {
  const bare = source.replace(/\/+$/, '');
  return `${bare.slice(0, bare.lastIndexOf('/') + 1)}${unpackedName(source)}/`;
}

/** The field of the target, with what helps to fill it. */
function Target(
  props: Tools & {
    verb: MovingVerb;
    source: string;
    fields: Fields;
    set: (changed: Partial<Fields>) => void;
  }
): React.JSX.Element {
  const { verb, source, browse, fields, set, choose } = props;
  const { target: place, into } = describe(verb);
  const list = React.useId();
  const { problem, attempt } = useAttempt();
  const mayBeStored = place !== 'disk';
  useChanges(browse.changed);
  React.useEffect(() => {
    if (mayBeStored && !browse.starts) {
      void browse.begin();
    }
  }, [browse, mayBeStored]);
  const connections = browse.starts?.connections ?? [];
  const urls = new Set([
    ...(browse.tree?.levels.keys() ?? []),
    ...connections.map(one => one.place),
    ...(browse.starts?.recent ?? [])
  ]);
  const chooseLabel = trans.__('Choose a folder…');
  const isStored = mayBeStored && isUrl(fields.target.trim());
  return (
    <>
      <label className="nbd-Field nbd-mod-stacked">
        {into}
        <input
          name="target"
          type="text"
          value={fields.target}
          list={mayBeStored ? list : undefined}
          placeholder={place === 'disk' ? '/data/folder' : 's3://bucket/folder/'}
          spellCheck={false}
          autoComplete="off"
          onChange={event => set({ target: event.target.value })}
        />
      </label>
      {mayBeStored && (
        <datalist id={list}>
          {[...urls].slice(0, SUGGESTED).map(url => (
            <option key={url} value={url} />
          ))}
        </datalist>
      )}
      {place !== 'store' && choose && (
        <div className="nbd-Acts">
          <Act
            label={chooseLabel}
            onClick={() =>
              void attempt(chooseLabel, async () => {
                const folder = await choose();
                if (folder !== null) {
                  const name = verb === 'untar_volumes' ? unpackedName(source) : lastName(source);
                  const end = verb === 'pack' ? `${name}.tar.gz` : name;
                  set({
                    target: place === 'checksums' ? folder : `${folder.replace(/\/+$/, '')}/${end}`
                  });
                }
              })
            }
          />
        </div>
      )}
      <Problem text={problem} />
      {isStored && hasConnectionOfItsOwn(verb, source) && connections.length > 0 && (
        <label className="nbd-Field nbd-mod-stacked">
          {trans.__('Through')}
          <select value={fields.through} onChange={event => set({ through: event.target.value })}>
            <option value="">
              {isUrl(source) ? trans.__('as the source') : trans.__('what the server finds')}
            </option>
            {connections.map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

/** What is taken of the source, and how it is verified. */
function Filters(props: {
  verb: MovingVerb;
  fields: Fields;
  set: (changed: Partial<Fields>) => void;
  /** Whether the user has chosen what is taken, so that no pattern does. */
  areChosen: boolean;
}): React.JSX.Element {
  const { verb, fields, set, areChosen } = props;
  const { verify, only } = describe(verb);
  const hint = only === 'members' ? '**/*.jpg labels/*' : '*.jpg labels/**';
  return (
    <details className="nbd-Fold nbd-Filters">
      <summary>
        {verify.length ? trans.__('Filters and verification') : trans.__('Filters')}
      </summary>
      {!areChosen && (
        <label className="nbd-Field nbd-mod-stacked">
          {trans.__('Only')}
          <input
            name="only"
            type="text"
            value={fields.only}
            placeholder={hint}
            spellCheck={false}
            autoComplete="off"
            onChange={event => set({ only: event.target.value })}
          />
        </label>
      )}
      <label className="nbd-Field nbd-mod-stacked">
        {trans.__('Without')}
        <input
          name="without"
          type="text"
          value={fields.without}
          placeholder="*.tmp"
          spellCheck={false}
          autoComplete="off"
          onChange={event => set({ without: event.target.value })}
        />
      </label>
      <p className="nbd-Small nbd-Wrapped">
        {trans.__(
          'Patterns with spaces between them: * stays in a folder, ** crosses folders, ? is one character, also a space.'
        )}
      </p>
      {verify.length > 0 && (
        <label className="nbd-Field nbd-mod-stacked">
          {trans.__('Verify')}
          <select value={fields.verify} onChange={event => set({ verify: event.target.value })}>
            {verify.map(way => (
              <option key={way} value={way}>
                {verifying(way)}
              </option>
            ))}
          </select>
        </label>
      )}
    </details>
  );
}

/** The plan, or why there is none. */
function Plan({ verb, plans }: { verb: MovingVerb; plans: Planned }): React.JSX.Element {
  const { plan, problem, isRunning: isPlanning, stop } = plans;
  return (
    <>
      {plan && (
        <div role="status" aria-label={trans.__('The plan')}>
          <ul className="nbd-Plan">
            {planned(verb, plan).map(fact => (
              <li key={fact} className="nbd-Wrapped">
                {fact}
              </li>
            ))}
          </ul>
        </div>
      )}
      {isPlanning && (
        <Busy text={describe(verb).planning} far={soFar(plans.listed)} cancel={stop} />
      )}
      <Problem text={problem} />
    </>
  );
}

/** Ask whether objects of a store are to be deleted; the question names the first ones. */
async function isSure(source: string, plan: Result): Promise<boolean> {
  const names = plan.rows.slice(0, NAMED).map(row => shortened(printable(row.path), LONGEST));
  const named = names.join(', ') + (plan.count > NAMED ? ', …' : '');
  const asked = await showDialog({
    title: trans.__('Delete for good?'),
    body: trans.__(
      '%1 below %2: %3',
      planned('delete', plan)[0] ?? '',
      shortened(printable(source), LONGEST),
      named
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep them') }),
      Dialog.warnButton({ label: trans.__('Delete') })
    ],
    defaultButton: 0
  });
  return asked.button.accept;
}
