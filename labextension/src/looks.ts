/** What the server says of an object that is previewed. Pure functions. */

import { count, list, raw, text } from './json.js';

/** How an object is shown. */
export type Look =
  | { kind: 'text'; size: number | null; isCut: boolean; text: string }
  | { kind: 'table'; size: number | null; isCut: boolean; rows: string[][] }
  | { kind: 'picture'; size: number | null; media: string; data: Uint8Array<ArrayBuffer> }
  | { kind: 'media'; size: number | null; media: string; ticket: string }
  | { kind: 'samples'; size: number | null; count: number; samples: Sample[] }
  | { kind: 'archive'; size: number | null }
  | { kind: 'nothing'; size: number | null; why: string };

/** A sample of FFRecord: a picture, the beginning of a text, or only its size. */
export interface Sample {
  number: number;
  size: number;
  /** The media type of a picture; else empty. */
  media: string;
  data: Uint8Array<ArrayBuffer>;
  text: string;
  problem: string;
}

/** The kinds of pictures that are shown. Each consists of pixels, so that no script is in it. */
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/bmp'];

/** What the browser's own player is asked to play. */
const PLAYED = /^(audio\/(aac|flac|mp4|mpeg|ogg|wav|webm)|video\/(mp4|ogg|webm))$/;
/** The form of a ticket, which becomes a part of a URL. */
const TICKET = /^[0-9a-f]{32}$/;

function decoded(base64: string): Uint8Array<ArrayBuffer> {
  const chars = atob(base64);
  const bytes = new Uint8Array(chars.length);
  for (let at = 0; at < chars.length; at++) {
    bytes[at] = chars.charCodeAt(at);
  }
  return bytes;
}

function parseSample(value: unknown): Sample {
  const said = raw(value);
  const media = text(said.media);
  const isPicture = PICTURES.includes(media);
  return {
    number: count(said.number),
    size: count(said.size),
    media: isPicture ? media : '',
    data: decoded(isPicture ? text(said.data) : ''),
    text: text(said.text),
    problem: text(said.problem)
  };
}

/** Parse the response of the route `stores/preview`. */
export function parseLook(value: unknown): Look {
  const said = raw(value);
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
        rows: list(said.rows).map(row => list(row).map(text))
      };
    case 'picture':
      if (PICTURES.includes(media)) {
        return { kind: 'picture', size, media, data: decoded(text(said.data)) };
      }
      break;
    case 'media': {
      const ticket = text(said.ticket);
      if (PLAYED.test(media) && TICKET.test(ticket)) {
        return { kind: 'media', size, media, ticket };
      }
      break;
    }
    case 'samples':
      return {
        kind: 'samples',
        size,
        count: count(said.count),
        samples: list(said.samples).map(parseSample)
      };
    case 'archive':
      return { kind: 'archive', size };
  }
  return { kind: 'nothing', size, why: text(said.why) };
}
