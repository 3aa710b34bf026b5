/** A row of the tree of a store. */

import * as React from 'react';

import { moment, size } from './format.js';
import { short } from './places.js';
import { printable, trans } from './text.js';
import { isFolder, Row } from './tree.js';

/** The height of a row in pixels. */
export const ROW = 24;

/** A row of the tree: an entry, or what is behind the last one. */
export function TreeRow(props: {
  row: Row;
  id: string;
  top: number;
  /** Its number in the tree. */
  number: number;
  isActive: boolean;
  /** Whether it is one of those that are chosen. */
  isChosen?: boolean;
  /** Whether what is dragged would be dropped into it. */
  isTarget?: boolean;
  /** The text that a drag of it carries. */
  carried?: () => string;
  press: (event?: React.MouseEvent) => void;
  toggle: () => void;
}): React.JSX.Element {
  const { row, id, top, isActive, isChosen = false, isTarget = false } = props;
  const { carried, press, toggle } = props;
  const style = { top, height: ROW, paddingLeft: 4 + 14 * row.depth };
  if (row.kind === 'tail') {
    const { level, why } = row;
    const texts = {
      more: level.asked === null ? trans.__('Load more') : trans.__('Loading…'),
      problem: trans.__('Could not be listed. Try again'),
      nothing: level.begin
        ? trans.__('No name begins with “%1”.', short(printable(level.begin)))
        : trans.__('Nothing is here.'),
      filtered: trans.__('Nothing matches.')
    };
    const isButton = why === 'problem' || why === 'more';
    return (
      <div className="nbd-TreeRow" role="presentation" style={style} data-row={props.number}>
        {isButton ? (
          <button
            type="button"
            className="nbd-Link nbd-Small"
            tabIndex={-1}
            onClick={() => press()}
          >
            {texts[why]}
          </button>
        ) : (
          <span className="nbd-Small">{texts[why]}</span>
        )}
      </div>
    );
  }
  const { entry, isOpen } = row;
  const name = entry ? printable(entry.name) : '…';
  const folds = entry !== null && isFolder(entry);
  return (
    <div
      id={id}
      className={`nbd-TreeRow${isActive || isChosen ? ' nbd-mod-active' : ''}${isTarget ? ' nbd-mod-target' : ''}`}
      style={style}
      role="treeitem"
      data-row={props.number}
      aria-level={row.depth + 1}
      aria-posinset={row.number}
      aria-setsize={row.of}
      aria-selected={isActive || isChosen}
      aria-expanded={folds ? isOpen : undefined}
      title={name}
      draggable={carried !== undefined}
      onDragStart={event => {
        event.dataTransfer.effectAllowed = 'copy';
        event.dataTransfer.setData('text/plain', carried?.() ?? '');
      }}
      onClick={press}
      onDoubleClick={folds ? toggle : undefined}
    >
      <span
        className="nbd-Twist"
        aria-hidden="true"
        onClick={event => {
          event.stopPropagation();
          press();
          toggle();
        }}
      >
        {folds ? (isOpen ? '▾' : '▸') : ''}
      </span>
      <span className="nbd-TreeName">{name}</span>
      {entry?.storageClass && <span className="nbd-Small nbd-Class">{entry.storageClass}</span>}
      {entry?.size != null && <span className="nbd-Small">{size(entry.size)}</span>}
      {entry?.modified != null && (
        <span className="nbd-Small nbd-When">{moment(entry.modified)}</span>
      )}
    </div>
  );
}
