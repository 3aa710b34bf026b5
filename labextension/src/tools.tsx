/** The buttons of a gauge, and the tray that is open below them: what fills the disk, free it, limit it. */

import * as React from 'react';

import { firstFolder, isLimit, spelled } from './diskwords.js';
import { Fills } from './fills.js';
import { Free } from './free.js';
import { Limit } from './limit.js';
import { Disk, Seen } from './seen.js';
import { Insert } from './parts.js';
import { Runs } from './runs.js';
import { printable, trans } from './text.js';
import { Tray } from './trays.js';

type Name = 'fills' | 'free' | 'limit';

/** The source of a limit that the panel can lift; as in `nbdata/space/limits.py`. */
const BY_COMMAND = '%quota --limit';

/** A gauge whose tray *Free…* is to open, because there was no room for a job. */
export interface Wanted {
  key: string;
  /** Called once it is open. */
  taken: () => void;
}

/** The buttons, and the tray of the one that was pressed. */
export function Tools(props: {
  disk: Disk;
  seen: Seen;
  runs: Runs;
  insert: Insert;
  wanted: Wanted | null;
}): React.JSX.Element {
  const { disk, seen, runs, insert, wanted } = props;
  const [open, setOpen] = React.useState<Name | null>(null);
  const first = firstFolder(disk, seen);
  const top = isLimit(disk) ? disk.path : (first ?? disk.path);
  const [folder, setFolder] = React.useState(top);
  const buttons = React.useRef<HTMLDivElement>(null);
  const name = printable(disk.path);
  const titles: Record<Name, string> = {
    fills: trans.__('What fills it'),
    free: trans.__('Free…'),
    limit: isLimit(disk) ? trans.__('Change limit…') : trans.__('Set limit…')
  };
  const go = React.useCallback(
    (next: string): void => {
      setFolder(next);
      if (!runs.get({ verb: 'du', place: next })) {
        void runs.start({ verb: 'du', place: next });
      }
    },
    [runs]
  );
  React.useEffect(() => {
    const here = buttons.current;
    if (wanted && here) {
      wanted.taken();
      here.closest('details')?.setAttribute('open', '');
      setFolder(top);
      setOpen('free');
      // A tray that opens takes the focus; one that is open already keeps what was chosen in it.
      here.parentElement?.querySelector<HTMLElement>('.nbd-Tray .nbd-Subheading')?.focus();
    }
  }, [wanted, top]);
  const toggle = (tray: Name): void => {
    setOpen(open === tray ? null : tray);
    if (tray === 'fills' && open !== tray && first !== null) {
      go(folder);
    }
  };
  const close = (): void => {
    buttons.current?.querySelector<HTMLElement>('[aria-expanded="true"]')?.focus();
    setOpen(null);
  };
  return (
    <>
      <div className="nbd-Acts nbd-Tools" ref={buttons}>
        {(Object.keys(titles) as Name[]).map(tray => (
          <button
            key={tray}
            type="button"
            className="nbd-Link nbd-Small"
            aria-expanded={open === tray}
            aria-label={`${titles[tray]}: ${name}`}
            onClick={() => toggle(tray)}
          >
            {titles[tray]}
          </button>
        ))}
      </div>
      {open && (
        <Tray key={open} name={titles[open].replace('…', '')} of={name} close={close}>
          {open === 'fills' && (
            <Fills {...{ folder, top, runs, go, insert }} now={Date.now() / 1000} />
          )}
          {open === 'free' && <Free key={folder} {...{ folder, runs, insert }} />}
          {open === 'limit' && (
            <Limit
              folder={isLimit(disk) ? disk.path : folder}
              present={isLimit(disk) ? spelled(disk.limit) : ''}
              lifts={disk.source === BY_COMMAND}
              runs={runs}
              insert={insert}
            />
          )}
        </Tray>
      )}
    </>
  );
}
