/** Files of Lab's file browser that are dropped into a folder of a store. */

import * as React from 'react';

/** Begins what is done with files, named as Lab names them, that are dropped into a folder of a store. */
export type Drop = (paths: readonly string[], into: string) => Promise<void>;

/** The type under which Lab's file browser carries the paths of what is dragged out of it. */
const PATHS = 'application/x-jupyter-icontents';

/** What the panel needs of an event of Lumino's `Drag`. */
interface DragEvent extends Event {
  readonly mimeData: { hasData(type: string): boolean; getData(type: string): unknown };
  readonly proposedAction: string;
  dropAction: string;
}

/**
 * Take what is dropped into a tree; return the folder that it would go into now, or null.
 *
 * `folderOf` names the folder of the row with a number, or of a place without a row.
 */
export function useDrop(
  box: React.RefObject<HTMLElement | null>,
  drop: Drop,
  folderOf: (row: number | null) => string
): string | null {
  const [over, setOver] = React.useState<string | null>(null);
  const now = React.useRef({ drop, folderOf });
  React.useEffect(() => {
    now.current = { drop, folderOf };
  });
  React.useEffect(() => {
    const element = box.current;
    if (!element) {
      return undefined;
    }
    const handle = (event: Event): void => {
      const drag = event as DragEvent;
      if (!drag.mimeData.hasData(PATHS)) {
        return;
      }
      drag.preventDefault();
      drag.stopPropagation();
      if (drag.type === 'lm-dragleave') {
        setOver(null);
        return;
      }
      const row = (drag.target as Element).closest('[data-row]')?.getAttribute('data-row');
      const into = now.current.folderOf(row ? Number(row) : null);
      drag.dropAction = drag.proposedAction;
      if (drag.type !== 'lm-drop') {
        setOver(into);
        return;
      }
      setOver(null);
      const paths = drag.mimeData.getData(PATHS);
      if (Array.isArray(paths)) {
        void now.current.drop(paths.map(String), into);
      }
    };
    const types = ['lm-dragenter', 'lm-dragover', 'lm-dragleave', 'lm-drop'];
    types.forEach(type => element.addEventListener(type, handle));
    return () => types.forEach(type => element.removeEventListener(type, handle));
  }, [box]);
  return over;
}
