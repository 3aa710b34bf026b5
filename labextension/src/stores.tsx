/** The section *Stores*: what is in a bucket or on a server, as a tree, and what can be done with it. */

import { closeIcon, refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Browse } from './browse.js';
import { Chosen, Shared } from './chosen.js';
import { Drop, useDrop } from './drops.js';
import { upIcon } from './icons.js';
import { Button, Problem, useChanges } from './parts.js';
import { above, pullLine, short, typed } from './places.js';
import { Several } from './several.js';
import { printable, trans } from './text.js';
import { Act } from './trays.js';
import { ROW, TreeRow } from './treerow.js';
import {
  between,
  entryAt,
  height,
  isFolder,
  Level,
  loaded,
  parentOf,
  Place,
  rowOf,
  rows,
  shownOf,
  Sorting,
  Tree,
  urlAt,
  View,
  windowOf
} from './tree.js';
import { MOST_CHOSEN } from './verbs.js';

const TALLEST_BOX = 14 * ROW;

function areSame(one: Place | undefined, other: Place): boolean {
  return one?.base === other.base && one.page === other.page && one.at === other.at;
}

function number(count: number): string {
  return count.toLocaleString('en');
}

/** The rows that are in view; the focus stays on the tree, and the keys move the active row. */
function Rows(props: {
  browse: Browse;
  tree: Tree;
  view: View;
  /** The rows that are chosen, in one folder; the last one is active. */
  chosen: readonly Place[];
  choose: (places: readonly Place[]) => void;
  drop: Drop;
}): React.JSX.Element {
  const { browse, tree, view, chosen, choose, drop } = props;
  const active = chosen.at(-1) ?? null;
  const box = React.useRef<HTMLDivElement>(null);
  const isPressed = React.useRef(false);
  const [scrolled, setScrolled] = React.useState(0);
  const id = React.useId();
  const count = height(tree, view);
  const boxHeight = Math.min(TALLEST_BOX, Math.max(1, count) * ROW);
  const window_ = windowOf(count, ROW, boxHeight, scrolled);
  const shown = rows(tree, view, window_.first, window_.last);
  const isPlain = !view.filter && view.sorting === 'store';
  const at = active ? rowOf(tree, view, active) : -1;
  const idOf = (place: Place): string => `${id}-${place.base}-${place.page}-${place.at}`;
  React.useEffect(() => {
    browse.look(shown.flatMap(row => (row.kind === 'entry' ? [row.place] : [])));
    if (isPlain) {
      // Where only a part of what is loaded is shown, the user says whether more is loaded.
      shown.forEach(
        row => row.kind === 'tail' && row.why === 'more' && browse.more(row.level.base)
      );
    }
  });
  const toggle = (place: Place): void => {
    const url = urlAt(tree, place);
    if (url !== null && tree.levels.has(url)) {
      browse.close(url);
    } else {
      browse.open(place);
    }
  };
  const isOne = (place: Place): boolean => chosen.some(one => areSame(one, place));
  /** Choose a row: beside those that are chosen, or all rows up to it. */
  const press = (place: Place, how: { isBeside: boolean; isUpTo: boolean }): void => {
    if (!active || active.base !== place.base || !(how.isBeside || how.isUpTo)) {
      choose([place]);
    } else if (how.isUpTo) {
      const anchor = chosen[0] ?? place;
      const places = between(tree, view, anchor, place, MOST_CHOSEN + 1);
      choose(areSame(places[0], anchor) ? places : [...places].reverse());
    } else {
      const others = chosen.filter(one => !areSame(one, place));
      choose(others.length < chosen.length && others.length > 0 ? others : [...others, place]);
    }
  };
  const go = (row: number, by: 1 | -1 = 1, isUpTo = false): void => {
    const wanted = Math.max(0, Math.min(count - 1, row));
    let [found] = rows(tree, view, wanted, wanted + 1);
    let number = wanted;
    while (found?.kind === 'tail' && number + by >= 0 && number + by < count) {
      number += by;
      [found] = rows(tree, view, number, number + 1);
    }
    if (found?.kind === 'entry') {
      press(found.place, { isBeside: false, isUpTo });
    }
    if (box.current) {
      box.current.scrollTop = window_.scrollTo(wanted);
    }
  };
  const goTo = (place: Place | null): void => {
    const row = place ? rowOf(tree, view, place) : -1;
    if (row >= 0) {
      go(row);
    }
  };
  const onKey = (event: React.KeyboardEvent): void => {
    if (event.ctrlKey || event.altKey || event.metaKey) {
      return;
    }
    const entry = active && entryAt(tree, active);
    const url = active && urlAt(tree, active);
    const folds = entry !== null && isFolder(entry);
    const isOpen = url !== null && tree.levels.has(url);
    const page = Math.floor(boxHeight / ROW) - 1;
    const deeds: Record<string, () => void> = {
      ArrowDown: () => go(at + 1, 1, event.shiftKey),
      ArrowUp: () => go(Math.max(0, at - 1), -1, event.shiftKey),
      PageDown: () => go(at + page),
      PageUp: () => go(at - page, -1),
      Home: () => go(0),
      End: () => go(count - 1, -1),
      ArrowRight: () => active && folds && (isOpen ? go(at + 1) : browse.open(active)),
      ArrowLeft: () =>
        folds && isOpen ? browse.close(url) : active && goTo(parentOf(tree, active.base)),
      Enter: () => active && folds && toggle(active),
      ' ': () => active && folds && toggle(active)
    };
    const deed = deeds[event.key];
    if (deed) {
      event.preventDefault();
      event.stopPropagation();
      deed();
    }
  };
  const over = useDrop(box, drop, (n): string => {
    const [row] = n === null ? [] : rows(tree, view, n, n + 1);
    if (row?.kind === 'tail') {
      return row.level.url;
    }
    const isInto = row?.entry && isFolder(row.entry);
    const base = tree.levels.get(row?.place.base ?? tree.root)?.url ?? tree.root;
    return (isInto && urlAt(tree, row.place)) || base;
  });
  const firstInView = shown.findIndex((_, n) => window_.top(window_.first + n) >= scrolled);
  const isInView = at >= window_.first && at < window_.last;
  return (
    <div
      ref={box}
      className={`nbd-Tree${over === null ? '' : ' nbd-mod-over'}`}
      style={{ height: boxHeight }}
      role="tree"
      tabIndex={0}
      aria-multiselectable={true}
      aria-label={printable(tree.root)}
      aria-busy={[...tree.levels.values()].some(level => level.asked !== null)}
      aria-activedescendant={active && isInView ? idOf(active) : undefined}
      onScroll={event => setScrolled(event.currentTarget.scrollTop)}
      onKeyDown={onKey}
      onPointerDown={() => (isPressed.current = true)}
      onPointerUp={() => (isPressed.current = false)}
      onFocus={event => {
        // By the mouse, the row below it becomes active; nothing may move under the mouse before.
        if (event.target === event.currentTarget && !isPressed.current && at < 0 && count > 0) {
          go(window_.first + Math.max(0, firstInView));
        }
      }}
    >
      <div className="nbd-TreeRows" style={{ height: window_.tall }} role="presentation">
        {shown.map((row, n) =>
          row.kind === 'tail' ? (
            <TreeRow
              key={`tail ${row.level.base}`}
              row={row}
              id=""
              number={window_.first + n}
              top={window_.top(window_.first + n)}
              isActive={false}
              press={() => browse.more(row.level.base)}
              toggle={() => undefined}
            />
          ) : (
            <TreeRow
              key={idOf(row.place)}
              row={row}
              id={idOf(row.place)}
              top={window_.top(window_.first + n)}
              number={window_.first + n}
              isActive={window_.first + n === at}
              isChosen={isOne(row.place)}
              isTarget={over !== null && urlAt(tree, row.place) === over}
              carried={() => pullLine(urlAt(tree, row.place) ?? '', browse.connection)}
              press={event =>
                press(row.place, {
                  isBeside: Boolean(event && (event.ctrlKey || event.metaKey)),
                  isUpTo: Boolean(event?.shiftKey)
                })
              }
              toggle={() => toggle(row.place)}
            />
          )
        )}
      </div>
    </div>
  );
}

/** How much is loaded, what the filter shows of it, and how to get at the rest. */
function Loaded(props: { browse: Browse; tree: Tree; root: Level; view: View }): React.JSX.Element {
  const { browse, tree, root, view } = props;
  const { count, areFirst, areAll } = loaded(tree);
  const [shown, all] = [number(shownOf(tree, view)), number(count)];
  const said = view.filter
    ? areAll
      ? trans.__('%1 of all %2 loaded', shown, all)
      : areFirst
        ? trans.__('%1 of the first %2 loaded', shown, all)
        : trans.__('%1 of %2 loaded', shown, all)
    : areAll
      ? trans.__('All %1 loaded', all)
      : areFirst
        ? trans.__('The first %1 loaded', all)
        : trans.__('%1 loaded', all);
  return (
    <div className="nbd-Row nbd-mod-wrap nbd-Small">
      <span role="status">
        {root.pages.length > 0 ? said : root.problem ? '' : trans.__('Loading…')}
      </span>
      {view.filter && !areAll && (
        <button
          type="button"
          className="nbd-Link nbd-Small"
          onClick={() => browse.show(root.base, view.filter)}
        >
          {trans.__('Jump to names that begin with “%1”', short(printable(view.filter)))}
        </button>
      )}
    </div>
  );
}

/** A folder that is browsed. */
function Opened(props: Shared & { tree: Tree }): React.JSX.Element | null {
  const { browse, tree } = props;
  const [filter, setFilter] = React.useState('');
  const [sorting, setSorting] = React.useState<Sorting>('store');
  const [chosen, choose] = React.useState<readonly Place[]>([]);
  const active = chosen.at(-1) ?? null;
  const view = { filter, sorting };
  const root = tree.levels.get(tree.root);
  const failed = [...tree.levels.values()].find(level => level.problem);
  if (!root) {
    return null;
  }
  const sortings: [Sorting, string][] = [
    ['store', trans.__('by name')],
    ['size', trans.__('largest first')],
    ['time', trans.__('newest first')]
  ];
  return (
    <>
      {root.begin && (
        <div className="nbd-Row nbd-At">
          <span className="nbd-Small nbd-Wrapped">
            {trans.__('Names that begin with “%1”', short(printable(root.begin)))}
          </span>
          <Button
            label={trans.__('Show all names')}
            of={printable(tree.root)}
            icon={closeIcon}
            onClick={() => browse.show(tree.root)}
          />
        </div>
      )}
      <div className="nbd-Row nbd-Ask nbd-Seek">
        <input
          type="search"
          value={filter}
          placeholder={trans.__('Filter')}
          aria-label={trans.__('Filter what is loaded')}
          spellCheck={false}
          onChange={event => setFilter(event.target.value)}
        />
        <select
          value={sorting}
          aria-label={trans.__('Sort what is loaded')}
          onChange={event => setSorting(event.target.value as Sorting)}
        >
          {sortings.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </div>
      <Rows {...{ browse, tree, view, chosen, choose }} drop={props.drop} />
      <Loaded {...{ browse, tree, root, view }} />
      {failed && (
        <div className="nbd-Row nbd-mod-wrap">
          <Problem text={failed.problem} />
          <Act
            label={trans.__('Try again')}
            of={printable(failed.base)}
            onClick={() => browse.forgive(failed.base)}
          />
        </div>
      )}
      {chosen.length > 1 ? (
        <Several key={JSON.stringify(chosen)} {...props} places={chosen} />
      ) : (
        active && <Chosen key={JSON.stringify(active)} {...props} place={active} />
      )}
    </>
  );
}

/** Where people may begin. */
function Beginnings({ browse }: { browse: Browse }): React.JSX.Element {
  const { starts } = browse;
  return (
    <>
      <ul className="nbd-List nbd-Starts" aria-label={trans.__('Where to begin')}>
        <li>
          <button type="button" className="nbd-Link" onClick={() => browse.show('s3://')}>
            {trans.__('Buckets of this account')}
          </button>
        </li>
        {starts?.connections.map(({ name, place }) => (
          <li key={name}>
            <button
              type="button"
              className="nbd-Link nbd-Wrapped"
              onClick={() => browse.through(name, place)}
            >
              {trans.__('%1: %2', name, place)}
            </button>
          </li>
        ))}
        {starts?.recent.map(url => (
          <li key={url}>
            <button type="button" className="nbd-Link nbd-Wrapped" onClick={() => browse.show(url)}>
              {printable(url)}
            </button>
          </li>
        ))}
      </ul>
      {starts && (
        <p className="nbd-Small nbd-Wrapped">
          {starts.configured.length
            ? trans.__('Configured on this server: %1', starts.configured.join(', '))
            : trans.__('No credentials are configured on this server; public data can be browsed.')}
        </p>
      )}
      <Problem text={browse.problem} />
    </>
  );
}

function Content(props: Shared): React.JSX.Element {
  const { browse } = props;
  useChanges(browse.changed);
  const { tree } = browse;
  const root = tree?.root ?? '';
  const [text, setText] = React.useState(root);
  React.useEffect(() => setText(root), [root]);
  const up = tree ? above(root) : null;
  React.useEffect(() => {
    if (!browse.tree && !browse.starts) {
      void browse.begin();
    }
  }, [browse]);
  return (
    <>
      <form
        className="nbd-Row nbd-Ask nbd-Seek"
        onSubmit={event => {
          event.preventDefault();
          const { place, begin } = typed(text);
          browse.show(place || null, begin);
        }}
      >
        <Button
          label={trans.__('Back to the folder above')}
          of={printable(up ?? root)}
          icon={upIcon}
          disabled={!tree}
          onClick={() => browse.show(up)}
        />
        <input
          type="text"
          value={text}
          placeholder="s3://bucket/folder/"
          aria-label={trans.__('URL of a bucket or a folder')}
          spellCheck={false}
          onChange={event => setText(event.target.value)}
        />
        <button type="submit" className="nbd-Button nbd-mod-text nbd-Act">
          {trans.__('Open')}
        </button>
        {tree && (
          <Button
            label={trans.__('List again')}
            of={printable(root)}
            icon={refreshIcon}
            onClick={() => browse.show(root, tree.levels.get(root)?.begin)}
          />
        )}
      </form>
      {tree && browse.connection && (
        <div className="nbd-Row nbd-At">
          <span className="nbd-Small nbd-Wrapped">
            {trans.__('Through the connection %1', browse.connection)}
          </span>
          <Button
            label={trans.__('Leave it')}
            of={browse.connection}
            icon={closeIcon}
            onClick={() => browse.through('', null)}
          />
        </div>
      )}
      {tree ? (
        <Opened key={`${root} ${tree.levels.get(root)?.begin}`} {...props} tree={tree} />
      ) : (
        <Beginnings browse={browse} />
      )}
    </>
  );
}

/** The section. Nothing is asked for, and nothing of it drawn, before it is opened. */
export const Stores = React.memo(function Stores(props: Shared): React.JSX.Element {
  const [isOpen, open] = React.useState(false);
  const section = React.useRef<HTMLElement>(null);
  const { browse } = props;
  React.useEffect(() => {
    const reveal = (): void => {
      open(true);
      section.current?.scrollIntoView({ block: 'nearest' });
      section.current?.querySelector('summary')?.focus();
    };
    browse.revealed.connect(reveal);
    return () => void browse.revealed.disconnect(reveal);
  }, [browse]);
  return (
    <section className="nbd-Section" aria-label={trans.__('Stores')} ref={section}>
      <details
        className="nbd-Fold nbd-Stores"
        open={isOpen}
        onToggle={event => open(event.currentTarget.open)}
      >
        <summary>
          <h2 className="nbd-Heading">{trans.__('Stores')}</h2>
        </summary>
        {isOpen && <Content {...props} />}
      </details>
    </section>
  );
});
