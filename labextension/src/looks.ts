/** What the server says of an object that is previewed. Pure functions. */

/** How an object is shown. */
export type Look =
  | { kind: 'text'; size: number | null; isCut: boolean; text: string }
  | { kind: 'table'; size: number | null; isCut: boolean; rows: string[][] }
  | { kind: 'picture'; size: number | null; media: string; data: Uint8Array<ArrayBuffer> }
  | { kind: 'archive'; size: number | null }
  | { kind: 'nothing'; size: number | null; why: string };

/** The kinds of pictures that are shown. Each consists of pixels, so that no script is in it. */
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/bmp'];

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function items(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function decoded(base64: string): Uint8Array<ArrayBuffer> {
  const chars = atob(base64);
  const bytes = new Uint8Array(chars.length);
  for (let at = 0; at < chars.length; at++) {
    bytes[at] = chars.charCodeAt(at);
  }
  return bytes;
}

/** Parse the response of the route `stores/preview`. */
export function parseLook(value: unknown): Look {
  const said = (typeof value === 'object' && value !== null ? value : {}) as Record<
    string,
    unknown
  >;
  const size = typeof said.size === 'number' ? said.size : null;
  const isCut = said.is_cut === true;
  const media = text(said.media);
  switch (said.kind) {
    case 'text':
      return { kind: 'text', size, isCut, text: text(said.text) };
    case 'table':
      return {
        kind: 'table',
        size,
        isCut,
        rows: items(said.rows).map(row => items(row).map(text))
      };
    case 'picture':
      if (PICTURES.includes(media)) {
        return { kind: 'picture', size, media, data: decoded(text(said.data)) };
      }
      break;
    case 'archive':
      return { kind: 'archive', size };
  }
  return { kind: 'nothing', size, why: text(said.why) };
}
