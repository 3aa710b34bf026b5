/** A tree of folders in a store, of which any number of entries may be loaded; and a window of its rows. Pure. */

/** An object, or a folder, whose name ends in a slash. */
export interface Entry {
  /** As it came; show it as `printable`. */
  name: string;
  size: number | null;
  /** In seconds. */
  modified: number | null;
  version: string;
  /** The storage class, where the store tells one that is not its usual one. */
  storageClass: string;
  /** Where it is not the URL of the folder and the name; else empty. */
  url: string;
}

/** A page as the server sends it. */
export interface Listed {
  base: string;
  entries: Entry[];
  token: string;
}

/** A page of a folder; `entries` is null while they are forgotten, until the page is fetched again. */
interface Page {
  token: string;
  count: number;
  entries: readonly Entry[] | null;
}

/** Names an entry of a folder by its place in the pages. */
export interface Place {
  base: string;
  page: number;
  at: number;
}

/** An open folder. */
export interface Level {
  /** Its URL, by which the tree knows it, and as the server spells it. */
  base: string;
  url: string;
  /** All names begin with this. */
  begin: string;
  pages: readonly Page[];
  /** The token of the page behind the loaded ones; null if there is none. */
  next: string | null;
  /** The number of the page that is fetched; null if none is. */
  asked: number | null;
  problem: string;
  /** The open folders in it. */
  opened: readonly { page: number; at: number; base: string }[];
}

/** The open folders by URL, in the order in which they were opened. */
export interface Tree {
  root: string;
  levels: ReadonlyMap<string, Level>;
}

export type Sorting = 'store' | 'size' | 'time';

/** How the loaded entries are shown. */
export interface View {
  filter: string;
  sorting: Sorting;
}

export type Change =
  | { type: 'open'; place: Place }
  | { type: 'close'; base: string }
  | { type: 'asked'; base: string; page: number }
  | { type: 'came'; base: string; page: number; listed: Listed }
  | { type: 'failed'; base: string; problem: string }
  | { type: 'forget'; kept: (base: string, page: number) => number };

export type Row =
  | {
      kind: 'entry';
      place: Place;
      depth: number;
      /** Null while its page is forgotten. */
      entry: Entry | null;
      isOpen: boolean;
      /** Its place among the rows of the folder, from 1, and how many there are; -1 if that is not known. */
      number: number;
      of: number;
    }
  | { kind: 'tail'; level: Level; depth: number; why: 'more' | 'problem' | 'nothing' | 'filtered' };

/** The most pages whose entries are kept, and the most open folders. */
export const MOST_PAGES = 100;
export const MOST_OPEN = 200;
/** More than the entries of a page. */
const LARGE = 1 << 20;

export function isFolder(entry: Entry): boolean {
  return entry.name.endsWith('/');
}

/** The tree of one folder, of which nothing is loaded. */
export function planted(root: string, begin = ''): Tree {
  return { root, levels: new Map([[root, level(root, begin)]]) };
}

function level(base: string, begin = ''): Level {
  return {
    base,
    url: base,
    begin,
    pages: [],
    next: '',
    asked: null,
    problem: '',
    opened: []
  };
}

export function entryAt(tree: Tree, place: Place): Entry | null {
  return tree.levels.get(place.base)?.pages[place.page]?.entries?.[place.at] ?? null;
}

/** The URL of an entry; null if it is not known any more. */
export function urlAt(tree: Tree, place: Place): string | null {
  const [at, entry] = [tree.levels.get(place.base), entryAt(tree, place)];
  return at && entry ? entry.url || at.url + entry.name : null;
}

/** Return the tree after a change; what concerns a folder that is no longer open changes nothing. */
export function grown(tree: Tree, change: Change): Tree {
  switch (change.type) {
    case 'open':
      return opened(tree, change.place);
    case 'close':
      return closed(tree, change.base);
    case 'asked':
      return changed(tree, change.base, () => ({ asked: change.page, problem: '' }));
    case 'failed':
      return changed(tree, change.base, () => ({ asked: null, problem: change.problem }));
    case 'came':
      return came(tree, change);
    case 'forget':
      return forgotten(tree, change.kept);
  }
}

function changed(tree: Tree, base: string, change: (at: Level) => Partial<Level>): Tree {
  const at = tree.levels.get(base);
  return at ? { ...tree, levels: new Map(tree.levels).set(base, { ...at, ...change(at) }) } : tree;
}

function opened(tree: Tree, place: Place): Tree {
  const [url, entry] = [urlAt(tree, place), entryAt(tree, place)];
  if (url === null || !entry || !isFolder(entry) || tree.levels.has(url)) {
    return tree;
  }
  const with_ = changed(tree, place.base, at => ({
    opened: [...at.opened, { page: place.page, at: place.at, base: url }]
  }));
  const grownTree = { ...with_, levels: new Map(with_.levels).set(url, level(url)) };
  const spare = [...tree.levels.keys()].find(base => base !== tree.root && !url.startsWith(base));
  return grownTree.levels.size > MOST_OPEN && spare ? closed(grownTree, spare) : grownTree;
}

function closed(tree: Tree, base: string): Tree {
  if (base === tree.root) {
    return tree;
  }
  const levels = new Map(tree.levels);
  const drop = (one: string): void => {
    levels.get(one)?.opened.forEach(child => drop(child.base));
    levels.delete(one);
  };
  drop(base);
  for (const [name, at] of levels) {
    if (at.opened.some(child => child.base === base)) {
      levels.set(name, { ...at, opened: at.opened.filter(child => child.base !== base) });
    }
  }
  return { ...tree, levels };
}

function came(tree: Tree, { base, page, listed }: Change & { type: 'came' }): Tree {
  const at = tree.levels.get(base);
  if (!at || page > at.pages.length) {
    return tree;
  }
  const token = page < at.pages.length ? (at.pages[page]?.token ?? '') : (at.next ?? '');
  const pages = [...at.pages];
  pages[page] = { token, count: listed.entries.length, entries: listed.entries };
  const isLast = page === pages.length - 1;
  const grownTree = changed(tree, base, () => ({
    url: listed.base,
    pages,
    next: isLast ? listed.token || null : at.next,
    asked: null,
    problem: ''
  }));
  // The store may have changed meanwhile: an open folder stays with its name, or closes.
  const names = new Map(
    listed.entries.map((entry, n) => [entry.url || listed.base + entry.name, n])
  );
  const lost = at.opened.filter(child => child.page === page && !names.has(child.base));
  const moved = changed(grownTree, base, now => ({
    opened: now.opened.map(child =>
      child.page === page ? { ...child, at: names.get(child.base) ?? 0 } : child
    )
  }));
  return lost.reduce((left, child) => closed(left, child.base), moved);
}

/** Forget the entries of the pages that `kept` gives the lowest numbers, until few enough are left. */
function forgotten(tree: Tree, kept: (base: string, page: number) => number): Tree {
  const loaded = [...tree.levels.values()].flatMap(at =>
    at.pages.flatMap(({ entries }, page) =>
      entries ? [{ base: at.base, page, used: kept(at.base, page) }] : []
    )
  );
  const spare = loaded.sort((a, b) => a.used - b.used).slice(0, -MOST_PAGES);
  return spare.reduce(
    (left, { base, page }) =>
      changed(left, base, at => ({
        pages: at.pages.map((one, n) => (n === page ? { ...one, entries: null } : one))
      })),
    tree
  );
}

/** How many entries of the open folders are loaded now, whether they are the first ones, and whether they are all. */
export function loaded(tree: Tree): { count: number; areFirst: boolean; areAll: boolean } {
  const levels = [...tree.levels.values()];
  const pages = levels.flatMap(at => at.pages);
  const count = pages.reduce((all, page) => all + (page.entries ? page.count : 0), 0);
  const areKept = pages.every(page => page.entries !== null);
  return {
    count,
    areFirst: areKept && levels.length === 1,
    areAll: areKept && levels.every(at => at.next === null)
  };
}

// -- rows ---------------------------------------------------------------------------------------

const begins = new WeakMap<readonly Page[], number[]>();

/** The number of the first entry of each page, and at the end how many there are. */
function beginsOf(pages: readonly Page[]): number[] {
  let known = begins.get(pages);
  if (!known) {
    known = [0];
    for (const page of pages) {
      known.push((known.at(-1) ?? 0) + page.count);
    }
    begins.set(pages, known);
  }
  return known;
}

const orders = new WeakMap<readonly Page[], { key: string; order: number[] }>();

/** The loaded entries that the view shows, in its order; null if it shows all in the order of the store. */
function orderOf(pages: readonly Page[], { filter, sorting }: View): number[] | null {
  if (!filter && sorting === 'store') {
    return null;
  }
  const key = `${sorting} ${filter}`;
  const known = orders.get(pages);
  if (known?.key === key) {
    return known.order;
  }
  const wanted = filter.toLowerCase();
  const order: number[] = [];
  pages.forEach(({ entries }, page) =>
    entries?.forEach((entry, at) => {
      if (!wanted || entry.name.toLowerCase().includes(wanted)) {
        order.push(page * LARGE + at);
      }
    })
  );
  if (sorting !== 'store') {
    const value = (code: number): number => {
      const entry = pages[Math.floor(code / LARGE)]?.entries?.[code % LARGE];
      return (sorting === 'size' ? entry?.size : entry?.modified) ?? -1;
    };
    order.sort((a, b) => value(b) - value(a) || a - b);
  }
  orders.set(pages, { key, order });
  return order;
}

/** How many of the entries of a folder are shown. */
export function countOf(at: Level, view: View): number {
  return orderOf(at.pages, view)?.length ?? beginsOf(at.pages).at(-1) ?? 0;
}

/** The number of an entry among those that are shown; -1 if it is not. */
function numberOf(at: Level, view: View, page: number, n: number): number {
  const order = orderOf(at.pages, view);
  return order ? order.indexOf(page * LARGE + n) : (beginsOf(at.pages)[page] ?? 0) + n;
}

function placeAt(at: Level, view: View, number: number): Place {
  const code = orderOf(at.pages, view)?.[number];
  if (code !== undefined) {
    return { base: at.base, page: Math.floor(code / LARGE), at: code % LARGE };
  }
  const all = beginsOf(at.pages);
  let [low, high] = [0, at.pages.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((all[middle] ?? 0) <= number) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return { base: at.base, page: low, at: number - (all[low] ?? 0) };
}

function tailOf(at: Level, view: View): (Row & { kind: 'tail' })['why'] | null {
  if (at.problem) {
    return 'problem';
  }
  if (at.next !== null) {
    return 'more';
  }
  return countOf(at, view) ? null : beginsOf(at.pages).at(-1) ? 'filtered' : 'nothing';
}

/** Rows of one folder that follow each other: `first` is the number of the first one in the tree. */
interface Stretch {
  at: Level;
  depth: number;
  first: number;
  /** The numbers of the entries in the folder; null for the row behind them. */
  entries: [number, number] | null;
}

/** Call `visit` with the stretches of the tree in order; return how many rows there are. */
function walk(tree: Tree, view: View, visit: (stretch: Stretch) => void): number {
  const go = (base: string, depth: number, begin: number): number => {
    const at = tree.levels.get(base);
    if (!at) {
      return begin;
    }
    let [row, from] = [begin, 0];
    const until = (to: number): void => {
      if (to > from) {
        visit({ at, depth, first: row, entries: [from, to] });
        row += to - from;
        from = to;
      }
    };
    const children = at.opened
      .map(child => ({ ...child, number: numberOf(at, view, child.page, child.at) }))
      .filter(child => child.number >= 0)
      .sort((a, b) => a.number - b.number);
    for (const child of children) {
      until(child.number + 1);
      row = go(child.base, depth + 1, row);
    }
    until(countOf(at, view));
    if (tailOf(at, view)) {
      visit({ at, depth, first: row, entries: null });
      row += 1;
    }
    return row;
  };
  return go(tree.root, 0, 0);
}

/** Return how many rows the tree has. */
export function height(tree: Tree, view: View): number {
  return walk(tree, view, () => undefined);
}

/** Return how many entries the tree shows. */
export function shownOf(tree: Tree, view: View): number {
  let count = 0;
  walk(tree, view, ({ entries }) => (count += entries ? entries[1] - entries[0] : 0));
  return count;
}

/** Return the rows from one number to another. */
export function rows(tree: Tree, view: View, from: number, to: number): Row[] {
  const found: Row[] = [];
  walk(tree, view, ({ at, depth, first, entries }) => {
    if (!entries) {
      const why = tailOf(at, view);
      if (why && from <= first && first < to) {
        found.push({ kind: 'tail', level: at, depth, why });
      }
      return;
    }
    const of = at.next === null ? countOf(at, view) : -1;
    const [begin, end] = entries;
    const last = Math.min(end, begin + to - first);
    for (let number = Math.max(begin, begin + from - first); number < last; number++) {
      const place = placeAt(at, view, number);
      const isOpen = at.opened.some(child => child.page === place.page && child.at === place.at);
      found.push({
        kind: 'entry',
        place,
        depth,
        entry: entryAt(tree, place),
        isOpen,
        number: number + 1,
        of
      });
    }
  });
  return found;
}

/** Return the number of the row of an entry; -1 if it is not shown. */
export function rowOf(tree: Tree, view: View, place: Place): number {
  let found = -1;
  const at = tree.levels.get(place.base);
  const number = at ? numberOf(at, view, place.page, place.at) : -1;
  walk(tree, view, stretch => {
    const entries = stretch.at === at ? stretch.entries : null;
    if (entries && entries[0] <= number && number < entries[1]) {
      found = stretch.first + number - entries[0];
    }
  });
  return found;
}

/** Return the entries of a folder from one to another, in the order of the view; `most` of them at most. */
export function between(tree: Tree, view: View, from: Place, to: Place, most: number): Place[] {
  const at = tree.levels.get(to.base);
  if (!at || from.base !== to.base) {
    return [to];
  }
  const [a, b] = [from, to].map(place => numberOf(at, view, place.page, place.at));
  const [first, last] = [Math.min(a ?? -1, b ?? -1), Math.max(a ?? -1, b ?? -1)];
  if (first < 0) {
    return [to];
  }
  const count = Math.min(last - first + 1, most);
  return Array.from({ length: count }, (_, n) => placeAt(at, view, first + n));
}

/** Return the entry whose folder this is; null for the root. */
export function parentOf(tree: Tree, base: string): Place | null {
  for (const at of tree.levels.values()) {
    const child = at.opened.find(one => one.base === base);
    if (child) {
      return { base: at.base, page: child.page, at: child.at };
    }
  }
  return null;
}

/** The parameters of a window of rows in a box that scrolls. */
export interface Window {
  first: number;
  last: number;
  /** The height of what scrolls: browsers allow no more than some tens of millions of pixels. */
  tall: number;
  /** Where a row is drawn. */
  top: (row: number) => number;
  /** Where the box scrolls to for a row to be at an edge of it, or inside. */
  scrollTo: (row: number) => number;
}

const TALLEST = 8_000_000;
/** Rows that are drawn beyond each edge. */
const BEYOND = 8;

/** Return the window of a box that has scrolled to `scrolled`, in pixels. */
export function windowOf(count: number, row: number, box: number, scrolled: number): Window {
  const full = count * row;
  const tall = Math.min(full, TALLEST);
  const scale = tall > box ? (full - box) / (tall - box) : 1;
  // A box whose rows become fewer is told only afterwards that it has scrolled back.
  const within = Math.min(scrolled, Math.max(0, tall - box));
  const offset = within * scale;
  return {
    first: Math.max(0, Math.floor(offset / row) - BEYOND),
    last: Math.min(count, Math.ceil((offset + box) / row) + BEYOND),
    tall,
    top: n => Math.round(n * row - offset + within),
    scrollTo: n => {
      const wanted = Math.min(Math.max(offset, (n + 1) * row - box), n * row);
      return wanted / scale;
    }
  };
}
