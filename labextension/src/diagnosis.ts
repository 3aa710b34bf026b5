/** What is wrong with nbdata in the kernel of a notebook, as the section *This kernel* tells it; pure functions. */

/**
 * The question to a Python kernel: an expression, so that it names nothing; it imports neither nbdata nor anything large.
 *
 * Its value is `missing `, `installed VERSION`, `imported VERSION` or `loaded VERSION`. A folder named *nbdata* beside
 * the notebook can be imported as a package without code; that is not nbdata.
 */
export const QUESTION = `(lambda sys, lib, shell:
    ('loaded ' if 'nbdata' in shell.extension_manager.loaded else 'imported ')
    + getattr(sys.modules['nbdata'], '__version__', '') if sys.modules.get('nbdata')
    else 'missing ' if getattr(lib.util.find_spec('nbdata'), 'origin', None) is None
    else 'installed ' + next((one.version for one in lib.metadata.distributions(name='nbdata')), '')
)(__import__('sys'), [__import__('importlib.' + part) for part in ('util', 'metadata')][0], get_ipython())`;

/** What a kernel has answered; `version` is empty if it is not known. */
export interface Answer {
  state: 'missing' | 'installed' | 'imported' | 'loaded';
  version: string;
}

/** Return the answer to `QUESTION`, from the kernel's reply; null if it cannot be understood. */
export function parseAnswer(value: unknown): Answer | null {
  const { status, data } = (value ?? {}) as { status?: unknown; data?: Record<string, unknown> };
  const said = data?.['text/plain'];
  const found =
    status === 'ok' && typeof said === 'string'
      ? /^'(missing|installed|imported|loaded) ([\w.+!-]{0,40})'$/.exec(said)
      : null;
  return found && { state: found[1] as Answer['state'], version: found[2] ?? '' };
}

/** What the cells of a notebook say of nbdata. */
export interface Usage {
  /** No cell has any code yet. */
  isEmpty: boolean;
  /** A cell names nbdata, or uses a magic of it. */
  isUsed: boolean;
  hasMagics: boolean;
  /** A cell has the line that loads the magics. */
  loads: boolean;
}

const NAMED = /\bnbdata\b/;
const MAGIC =
  /^\s*%%?(?:pull|push|copy|md5check|untar_volumes|cache_stream|pack|shards|transfers|quota|cleanup|du)\b/m;
const LOADS = /\bload_ext\s+nbdata\b/;

/** Read the code of a notebook's cells. */
export function usageOf(code: readonly string[]): Usage {
  const says = (what: RegExp): boolean => code.some(cell => what.test(cell));
  const hasMagics = says(MAGIC);
  return {
    isEmpty: !says(/\S/),
    isUsed: hasMagics || says(NAMED),
    hasMagics,
    loads: says(LOADS)
  };
}

/** True if code that is run in a kernel can change the answer. */
export function canChange(code: string): boolean {
  return NAMED.test(code) || installs(code) || /^\s*%run\b/m.test(code);
}

/** True if code may install nbdata. */
export function installs(code: string): boolean {
  return /\binstall\b/.test(code);
}

/** Something that is wrong, and the line that mends it. */
export type Trouble =
  | { kind: 'missing'; line: string }
  | { kind: 'not loaded'; line: string }
  | { kind: 'version'; line: string; kernel: string; server: string };

/** Return what is wrong in the kernel of a notebook; null if nothing, or if the notebook does not need nbdata. */
export function troubleOf(answer: Answer, usage: Usage, server: string): Trouble | null {
  if (!usage.isUsed && !usage.isEmpty) {
    return null;
  }
  if (answer.state === 'missing') {
    return { kind: 'missing', line: '%pip install nbdata' };
  }
  if (answer.state !== 'loaded' && !usage.loads && (usage.hasMagics || usage.isEmpty)) {
    return { kind: 'not loaded', line: '%load_ext nbdata' };
  }
  return answer.version && server && answer.version !== server
    ? {
        kind: 'version',
        line: `%pip install nbdata==${server}`,
        kernel: answer.version,
        server
      }
    : null;
}
