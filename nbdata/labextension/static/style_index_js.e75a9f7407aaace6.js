"use strict";(self.rspackChunknbdata=self.rspackChunknbdata||[]).push([["style_index_js"],{"./node_modules/css-loader/dist/cjs.js!./style/base.css"(e,n,o){var r=o("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=o.n(r),a=o("./node_modules/css-loader/dist/runtime/api.js"),d=(o.n(a))()(t());d.push([e.id,`/* Only JupyterLab's variables, so that every theme fits. */

/* Colours with enough contrast to the panel: 3:1 for bars and icons, 4.5:1 for text. Lab's own have less in places. */
.nbd-Panel,
.nbd-Status {
  --nbd-good: var(--jp-success-color0);
  --nbd-bad: var(--jp-error-color1);
  --nbd-warn: var(--jp-warn-color0);
}

[data-jp-theme-light='false'] .nbd-Panel,
[data-jp-theme-light='false'] .nbd-Status {
  --nbd-good: var(--jp-success-color2);
  --nbd-bad: var(--jp-error-color2);
  --nbd-warn: var(--jp-warn-color2);
}

.nbd-Panel {
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  container-type: inline-size;
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.4;
  outline: none;
  overflow: hidden auto;
}

.nbd-Section {
  padding: 4px 12px 12px;
}

.nbd-Section + .nbd-Section {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.nbd-Heading {
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
  letter-spacing: 0;
  margin: 8px 0;
}

.nbd-Subheading {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-weight: 600;
  margin: 12px 0 4px;
}

.nbd-Day {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-weight: 400;
  margin: 8px 0 4px;
}

.nbd-List {
  display: flex;
  flex-direction: column;
  gap: 8px;
  list-style: none;
  margin: 0;
  padding: 0;
}

.nbd-Empty,
.nbd-Small,
.nbd-Numbers {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
}

.nbd-Empty {
  font-size: var(--jp-ui-font-size1);
  margin: 0 0 4px;
  overflow-wrap: anywhere;
}

.nbd-Empty code {
  display: block;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  margin-top: 4px;
}

.nbd-Row {
  align-items: baseline;
}

/* A name that needs the whole line has it. */
.nbd-Summary {
  align-items: center;
  flex-wrap: wrap;
}

.nbd-Row,
.nbd-Summary {
  display: flex;
  gap: 0 8px;
  justify-content: space-between;
  min-width: 0;
}

.nbd-Row.nbd-mod-wrap {
  flex-wrap: wrap;
  gap: 0 8px;
}

/* A fact stays in one line, unless it is longer than the line. */
.nbd-Fact {
  display: inline-block;
  max-width: 100%;
  overflow-wrap: anywhere;
}

.nbd-Service-consumers {
  list-style: none;
  margin: 2px 0 0;
  padding: 0 0 0 8px;
}

.nbd-Strong {
  flex: none;
  font-weight: 600;
}

.nbd-State {
  align-items: center;
  display: flex;
  flex: none;
  gap: 2px;
  margin-left: auto;
}

.nbd-State svg {
  height: 14px;
  width: 14px;
}

.nbd-Ending {
  align-items: center;
  display: flex;
  flex: none;
  gap: 8px;
  margin-left: auto;
}

.nbd-Wrapped {
  overflow-wrap: anywhere;
}

.nbd-Pace {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  gap: 0 8px;
  justify-content: space-between;
}

.nbd-Sparkline {
  border-bottom: var(--jp-border-width) solid var(--jp-border-color1);
  flex: none;
  height: 16px;
  margin-left: auto;
  overflow: hidden;
  width: 72px;
}

.nbd-Sparkline polyline {
  fill: none;
  stroke: var(--jp-brand-color1);
  stroke-width: 1.5px;
  vector-effect: non-scaling-stroke;
}

/* -- the filter ----------------------------------------------------------------------------- */

.nbd-Filter {
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 3px;
  display: flex;
  margin-bottom: 8px;
  overflow: hidden;
}

.nbd-Filter > button {
  background: transparent;
  border: 0;
  color: var(--jp-ui-font-color1);
  cursor: pointer;
  font: inherit;
  font-size: var(--jp-ui-font-size0);
  padding: 1px 8px;
}

.nbd-Filter > button[aria-pressed='true'] {
  background: var(--jp-layout-color2);
  box-shadow: inset 0 -2px var(--jp-brand-color1);
  font-weight: 600;
}

/* The end of a path says more than its beginning. */
.nbd-Path {
  direction: rtl;
  flex: 1 1 auto;
  min-width: 0;
  overflow: hidden;
  text-align: left;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.nbd-Place {
  display: flex;
  font-size: var(--jp-ui-font-size0);
  gap: 6px;
}

.nbd-Place-name {
  color: var(--jp-ui-font-color2);
  flex: none;
  min-width: 2.4em;
}

/* -- bars ---------------------------------------------------------------------------------- */

.nbd-Bar {
  --nbd-fill: var(--jp-brand-color1);

  background: var(--jp-layout-color1);
  border: var(--jp-border-width) solid var(--jp-ui-font-color2);
  border-radius: 4px;
  box-sizing: border-box;
  display: flex;
  height: 10px;
  margin: 4px 0;
  overflow: hidden;
}

.nbd-Bar-used {
  background: var(--nbd-fill);
}

.nbd-Bar-reserved {
  background: repeating-linear-gradient(
    135deg,
    var(--nbd-fill) 0 3px,
    var(--jp-layout-color1) 3px 6px
  );
}

.nbd-mod-warn .nbd-Bar {
  --nbd-fill: var(--nbd-warn);
}

.nbd-mod-full .nbd-Bar {
  --nbd-fill: var(--nbd-bad);
}

.nbd-mod-paused .nbd-Bar,
.nbd-mod-cancelling .nbd-Bar,
.nbd-mod-queued .nbd-Bar,
.nbd-mod-waiting .nbd-Bar {
  --nbd-fill: var(--jp-ui-font-color2);
}

/* High contrast of the operating system: it would take the colours of bars away. */
@media (forced-colors: active) {
  .nbd-Bar-used,
  .nbd-Bar-reserved {
    --nbd-fill: Highlight;

    forced-color-adjust: none;
  }

  .nbd-Fill,
  .nbd-Key {
    --nbd-fill: Highlight;

    forced-color-adjust: none;
  }

  .nbd-Sparkline polyline {
    stroke: CanvasText;
  }

  .nbd-Bar-reserved {
    background: repeating-linear-gradient(135deg, Highlight 0 3px, Canvas 3px 6px);
  }

  .nbd-Filter > button[aria-pressed='true'] {
    background: Highlight;
    color: HighlightText;
    forced-color-adjust: none;
  }

  .nbd-Filter > button[aria-pressed='true']:focus-visible {
    outline-color: HighlightText;
  }

  /* Lab's theme may be light while these colours are dark. */
  .nbd-Panel .nbd-Icon svg [fill]:not([fill='none']) {
    fill: CanvasText !important;
  }

  .nbd-mod-revealed {
    border: 2px solid Highlight;
  }

  .nbd-TreeRow.nbd-mod-active {
    border: 2px solid Highlight;
  }
}

/* -- jobs ---------------------------------------------------------------------------------- */

.nbd-Job {
  border: var(--jp-border-width) solid var(--jp-border-color2);
  border-radius: 4px;
  min-width: 0;
  padding: 6px 8px;
}

.nbd-mod-revealed {
  border-color: var(--jp-brand-color1);
  box-shadow: inset 3px 0 var(--jp-brand-color1);
}

.nbd-Verb {
  display: inline-block;
  margin-right: 4px;
  vertical-align: -3px;
}

.nbd-Earlier {
  margin-top: 4px;
}

.nbd-Earlier > summary {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.nbd-Earlier > .nbd-List {
  gap: 4px;
  margin-top: 4px;
}

/* What became of a job that is over. */
.nbd-Outcome {
  padding-left: 15px;
}

.nbd-Again {
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
  margin-top: 4px;
}

.nbd-Outcome > .nbd-Reason {
  display: -webkit-box;
  -webkit-box-orient: vertical;
  -webkit-line-clamp: 3;
  overflow: hidden;
}

.nbd-Fold[open] ~ .nbd-Outcome > .nbd-Numbers {
  display: none; /* the details say it */
}

.nbd-Fold[open] ~ .nbd-Outcome > .nbd-Reason {
  -webkit-line-clamp: none;
}

.nbd-Reason,
.nbd-Problem {
  font-size: var(--jp-ui-font-size0);
  overflow-wrap: anywhere;
}

.nbd-mod-failed > .nbd-Fold .nbd-State,
.nbd-mod-interrupted > .nbd-Fold .nbd-State,
.nbd-Problem {
  color: var(--nbd-bad);
}

.nbd-mod-failed > .nbd-Fold .nbd-State svg [fill],
.nbd-mod-interrupted > .nbd-Fold .nbd-State svg [fill] {
  fill: var(--nbd-bad);
}

.nbd-mod-done > .nbd-Fold .nbd-State {
  color: var(--nbd-good);
}

.nbd-mod-done > .nbd-Fold .nbd-State svg [fill] {
  fill: var(--nbd-good);
}

.nbd-Foot {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
  justify-content: space-between;
  margin-top: 4px;
}

.nbd-Owner {
  flex: 1 1 0;
  min-width: 8em;
  overflow-wrap: anywhere;
}

.nbd-Buttons {
  display: flex;
  gap: 2px;
  margin-left: auto;
}

.nbd-Button {
  align-items: center;
  background: transparent;
  border: 0;
  border-radius: 2px;
  cursor: pointer;
  display: flex;
  height: 24px;
  justify-content: center;
  padding: 0;
  width: 24px;
}

.nbd-Button.nbd-mod-text {
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 3px;
  color: inherit;
  font: inherit;
  font-size: var(--jp-ui-font-size0);
  gap: 4px;
  padding: 0 6px 0 4px;
  width: auto;
}

.nbd-Button:hover {
  background: var(--jp-layout-color2);
}

.nbd-Filter > button[aria-disabled='true'] {
  color: var(--jp-ui-font-color2);
  cursor: default;
}

.nbd-Button[aria-disabled='true'] {
  cursor: default;
  opacity: 0.5;
}

.nbd-Icon {
  display: flex;
}

.nbd-Icon svg {
  height: 16px;
  width: 16px;
}

.nbd-Link {
  background: none;
  border: 0;
  color: var(--jp-content-link-color, var(--jp-brand-color1));
  cursor: pointer;
  font: inherit;
  padding: 2px 0;
  text-decoration: underline;
}

.nbd-Link.nbd-Small {
  flex: none;
  font-size: var(--jp-ui-font-size0);
}

.nbd-More {
  margin-top: 8px;
}

/* -- what ⋯ opens ---------------------------------------------------------------------------- */

.nbd-More-of {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
  flex: 1 0 100%;
  min-width: 0;
  padding-top: 4px;
}

.nbd-Item {
  align-items: center;
  background: transparent;
  border: 0;
  border-radius: 2px;
  color: inherit;
  cursor: pointer;
  display: flex;
  font: inherit;
  font-size: var(--jp-ui-font-size0);
  gap: 6px;
  min-height: 24px;
  padding: 0 4px;
  text-align: left;
  width: 100%;
}

.nbd-Item:hover {
  background: var(--jp-layout-color2);
}

.nbd-Limit {
  display: flex;
  flex-direction: column;
  gap: 4px;
}

.nbd-Ask {
  align-items: center;
}

.nbd-Ask > .nbd-Field {
  flex: 1 1 auto;
  min-width: 0;
}

.nbd-Notice {
  border-left: 3px solid var(--nbd-warn);
  margin: 0 0 8px;
  overflow-wrap: anywhere;
  padding: 2px 8px;
}

.nbd-Button:focus-visible,
.nbd-Item:focus-visible,
.nbd-Filter > button:focus-visible,
.nbd-Status-button:focus-visible,
.nbd-Link:focus-visible,
.nbd-Table:focus-visible,
.nbd-Choice > input:focus-visible,
.nbd-Field > input:focus-visible,
.nbd-Field > select:focus-visible,
.nbd-Preview:focus-visible,
.nbd-Table:focus-visible,
.nbd-Seek > input:focus-visible,
.nbd-Seek > select:focus-visible,
.nbd-Tree:focus-visible,
.nbd-Fold > summary:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 1px;
}

/* Inside, because the frame of the filter would cut it off. */
.nbd-Filter > button:focus-visible {
  outline-offset: -3px;
}

/* -- what is folded ------------------------------------------------------------------------ */

.nbd-Fold > summary {
  align-items: baseline;
  cursor: pointer;
  display: flex;
  gap: 6px;
  list-style: none;
}

.nbd-Fold > summary::-webkit-details-marker {
  display: none;
}

.nbd-Fold > summary::before {
  color: var(--jp-ui-font-color2);
  content: '▸';
  flex: none;
  width: 0.8em;
}

.nbd-Fold[open] > summary::before {
  content: '▾';
}

.nbd-Summary {
  flex: 1 1 auto;
}

.nbd-Title {
  flex: 0 1 auto;
  font-weight: 600;
  max-width: 100%;
  min-width: 0;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.nbd-Section > .nbd-Fold > summary {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  margin: 10px 0 6px;
}

/* -- trays below a gauge --------------------------------------------------------------------- */

.nbd-Tools,
.nbd-Acts {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  gap: 2px 12px;
  margin-top: 4px;
}

.nbd-Tools > .nbd-Link[aria-expanded='true'] {
  font-weight: 600;
}

.nbd-Tray {
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 4px;
  margin-top: 6px;
  padding: 2px 8px 8px;
}

.nbd-Tray p {
  margin: 4px 0;
}

.nbd-Tray .nbd-Subheading {
  margin: 4px 0;
  outline: none;
}

.nbd-At {
  align-items: center;
}

.nbd-Line {
  align-items: center;
  background: var(--jp-layout-color2);
  border-radius: 3px;
  display: flex;
  flex-wrap: wrap;
  gap: 2px 4px;
  justify-content: space-between;
  margin: 6px 0;
  min-width: 0;
  padding: 2px 2px 2px 6px;
}

.nbd-Line-acts {
  align-items: center;
  display: flex;
  flex: none;
  gap: 4px;
  margin-left: auto;
}

.nbd-Line > code {
  background: transparent;
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  min-width: 0;
  overflow-wrap: anywhere;
}

.nbd-Line > .nbd-Button {
  flex: none;
}

.nbd-Button.nbd-Act {
  padding: 0 8px;
}

.nbd-Act.nbd-mod-danger {
  border-color: var(--nbd-bad);
}

.nbd-Busy {
  align-items: center;
  margin: 6px 0;
}

.nbd-Far {
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
}

.nbd-Choices {
  border: 0;
  margin: 6px 0;
  min-width: 0;
  padding: 0;
}

.nbd-Choice {
  align-items: baseline;
  display: flex;
  gap: 6px;
  margin: 4px 0;
}

.nbd-Choice > input {
  flex: none;
  margin: 0;
  transform: translateY(2px);
}

.nbd-Help {
  display: block;
}

.nbd-Field {
  align-items: baseline;
  display: flex;
  gap: 8px;
  margin: 6px 0;
  white-space: nowrap;
}

.nbd-Field > input {
  background: var(--jp-layout-color1);
  border: var(--jp-border-width) solid var(--jp-ui-font-color2);
  border-radius: 2px;
  color: var(--jp-ui-font-color1);
  font: inherit;
  flex: 0 1 8em;
  min-width: 0;
  padding: 1px 4px;
}

.nbd-Plan {
  list-style: none;
  margin: 6px 0;
  padding: 0;
}

.nbd-Plan > li:first-child {
  font-weight: 600;
}

.nbd-Names {
  margin: 4px 0;
  overflow-wrap: anywhere;
  padding-left: 16px;
}

.nbd-Folders {
  gap: 4px;
  margin-top: 6px;
}

.nbd-Folder-name {
  min-width: 0;
  overflow: hidden;
  text-align: left;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.nbd-Link.nbd-Folder-name {
  padding: 0;
}

.nbd-Folder .nbd-Small {
  flex: none;
}

.nbd-Fills {
  display: flex;
  height: 6px;
}

.nbd-Legend {
  color: var(--jp-ui-font-color2);
  display: flex;
  flex-wrap: wrap;
  font-size: var(--jp-ui-font-size0);
  gap: 0 10px;
  list-style: none;
  margin: 4px 0;
  padding: 0;
}

.nbd-Key {
  display: inline-block;
  height: 8px;
  margin-right: 4px;
  width: 8px;
}

/* Told apart by pattern and lightness, too: not everybody sees the colours. */
.nbd-Fill,
.nbd-Key {
  --nbd-fill: var(--jp-brand-color1);

  box-sizing: border-box;
  flex: none;
}

.nbd-Fill.nbd-mod-known,
.nbd-Key.nbd-mod-known {
  background: var(--nbd-fill);
}

.nbd-Fill.nbd-mod-caches,
.nbd-Key.nbd-mod-caches {
  background: repeating-linear-gradient(
    135deg,
    var(--nbd-fill) 0 2px,
    var(--jp-layout-color1) 2px 4px
  );
  border: 1px solid var(--nbd-fill);
}

.nbd-Fill.nbd-mod-partial,
.nbd-Key.nbd-mod-partial {
  background: var(--jp-layout-color1);
  border: 1px solid var(--nbd-fill);
}

.nbd-Fill.nbd-mod-only_here,
.nbd-Key.nbd-mod-only_here {
  background: var(--jp-ui-font-color2);
}

/* -- stores ---------------------------------------------------------------------------------- */

.nbd-Section > .nbd-Stores > summary {
  color: inherit;
  margin: 0;
}

.nbd-Seek {
  flex-wrap: nowrap;
  gap: 4px;
  margin: 4px 0;
}

.nbd-Seek > input {
  flex: 1 1 6em;
}

.nbd-Seek > input,
.nbd-Seek > select {
  background: var(--jp-layout-color1);
  border: var(--jp-border-width) solid var(--jp-ui-font-color2);
  border-radius: 2px;
  box-sizing: border-box;
  color: var(--jp-ui-font-color1);
  font: inherit;
  height: 24px;
  min-width: 0;
  padding: 1px 4px;
}

.nbd-Seek > select {
  flex: 0 1 auto;
}

.nbd-Field.nbd-mod-wide > input {
  flex: 1 1 auto;
}

.nbd-Field.nbd-mod-stacked {
  align-items: stretch;
  flex-direction: column;
  gap: 1px;
}

.nbd-Field.nbd-mod-stacked > input {
  flex: none;
}

.nbd-Field > select {
  background: var(--jp-layout-color1);
  border: var(--jp-border-width) solid var(--jp-ui-font-color2);
  border-radius: 2px;
  color: var(--jp-ui-font-color1);
  font: inherit;
  height: 24px;
  min-width: 0;
}

.nbd-Filters {
  margin: 6px 0;
}

.nbd-Check {
  align-items: center;
  display: flex;
  gap: 6px;
  margin: 6px 0;
}

.nbd-Grow {
  flex: 1 1 auto;
  min-width: 0;
}

.nbd-Starts {
  gap: 2px;
}

.nbd-Starts .nbd-Link {
  text-align: left;
}

.nbd-Tree {
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 2px;
  contain: strict;
  overflow: hidden auto;
}

.nbd-TreeRows {
  overflow: hidden;
  position: relative;
}

.nbd-TreeRow {
  align-items: center;
  box-sizing: border-box;
  cursor: default;
  display: flex;
  gap: 8px;
  left: 0;
  padding-right: 6px;
  position: absolute;
  right: 0;
  white-space: nowrap;
}

.nbd-TreeRow:hover {
  background: var(--jp-layout-color2);
}

.nbd-TreeRow.nbd-mod-active {
  background: var(--jp-layout-color2);
  box-shadow: inset 2px 0 var(--jp-brand-color1);
}

/* Where what is dragged would go. */
.nbd-Tree.nbd-mod-over {
  border-color: var(--jp-brand-color1);
}

.nbd-TreeRow.nbd-mod-target {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.nbd-Tree:focus-visible .nbd-mod-active {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.nbd-Twist {
  color: var(--jp-ui-font-color2);
  flex: none;
  margin-right: -6px;
  text-align: center;
  width: 14px;
}

.nbd-TreeName {
  flex: 1 1 auto;
  min-width: 0;
  overflow: hidden;
  text-overflow: ellipsis;
}

.nbd-TreeRow > .nbd-Small {
  flex: none;
}

.nbd-TreeRow:hover > span,
.nbd-TreeRow.nbd-mod-active > span {
  color: var(--jp-ui-font-color1);
}

@container (max-width: 360px) {
  .nbd-When,
  .nbd-Class {
    display: none;
  }
}

.nbd-Chosen {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
  margin-top: 6px;
  padding-top: 4px;
}

.nbd-Preview {
  background: var(--jp-layout-color0);
  border: var(--jp-border-width) solid var(--jp-border-color2);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  line-height: 1.4;
  margin: 4px 0;
  max-height: 360px;
  overflow: auto;
  overflow-wrap: anywhere;
  padding: 4px 6px;
  tab-size: 4;
  white-space: pre-wrap;
}

.nbd-Picture {
  background: repeating-conic-gradient(var(--jp-layout-color2) 0 25%, var(--jp-layout-color0) 0 50%)
    0 0 / 16px 16px;
  display: block;
  margin: 4px 0;
  max-height: 360px;
  max-width: 100%;
}

.nbd-Player {
  display: block;
  margin: 4px 0;
  max-height: 360px;
  width: 100%;
}

.nbd-Thumb {
  display: block;
  max-height: 64px;
  max-width: 128px;
}

/* -- failed files ---------------------------------------------------------------------------- */

.nbd-Table {
  border: var(--jp-border-width) solid var(--jp-border-color2);
  margin: 4px 0;
  max-height: 240px;
  overflow: auto;
}

.nbd-Table > table {
  border-collapse: collapse;
  font-size: var(--jp-ui-font-size0);
  table-layout: fixed;
  width: 100%;
}

.nbd-Table th {
  background: var(--jp-layout-color2);
  position: sticky;
  text-align: left;
  top: 0;
}

.nbd-Table th,
.nbd-Table td {
  overflow-wrap: anywhere;
  padding: 2px 6px;
  vertical-align: top;
}

.nbd-Table tbody tr + tr {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.nbd-Preview-table > table {
  table-layout: auto;
  width: auto;
}

.nbd-Preview-table th,
.nbd-Preview-table td {
  max-width: 18em;
  overflow-wrap: break-word;
}

.nbd-Table td.nbd-mod-number {
  font-variant-numeric: tabular-nums;
  text-align: right;
  white-space: nowrap;
}

/* -- the status bar ------------------------------------------------------------------------- */

.nbd-Status-button {
  align-items: center;
  background: transparent;
  border: 0;
  color: var(--jp-ui-font-color1);
  cursor: pointer;
  display: flex;
  font: inherit;
  font-size: var(--jp-ui-font-size1);
  font-variant-numeric: tabular-nums;
  gap: 10px;
  height: 100%;
  padding: 0 8px;
  white-space: nowrap;
}

.nbd-Status-button:hover {
  background: var(--jp-layout-color3);
}

.nbd-Status-fact.nbd-mod-warn {
  box-shadow: 0 2px var(--nbd-warn);
}

.nbd-Status-fact.nbd-mod-full {
  box-shadow: 0 2px var(--nbd-bad);
  font-weight: 600;
}
`,""]),o.d(n,{},{A:d})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var n=[];return n.toString=function(){return this.map(function(n){var o="",r=void 0!==n[5];return n[4]&&(o+="@supports (".concat(n[4],") {")),n[2]&&(o+="@media ".concat(n[2]," {")),r&&(o+="@layer".concat(n[5].length>0?" ".concat(n[5]):""," {")),o+=e(n),r&&(o+="}"),n[2]&&(o+="}"),n[4]&&(o+="}"),o}).join("")},n.i=function(e,o,r,t,a){"string"==typeof e&&(e=[[null,e,void 0]]);var d={};if(r)for(var i=0;i<this.length;i++){var l=this[i][0];null!=l&&(d[l]=!0)}for(var s=0;s<e.length;s++){var p=[].concat(e[s]);r&&d[p[0]]||(void 0!==a&&(void 0===p[5]||(p[1]="@layer".concat(p[5].length>0?" ".concat(p[5]):""," {").concat(p[1],"}")),p[5]=a),o&&(p[2]&&(p[1]="@media ".concat(p[2]," {").concat(p[1],"}")),p[2]=o),t&&(p[4]?(p[1]="@supports (".concat(p[4],") {").concat(p[1],"}"),p[4]=t):p[4]="".concat(t)),n.push(p))}},n}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var n=[];function o(e){for(var o=-1,r=0;r<n.length;r++)if(n[r].identifier===e){o=r;break}return o}function r(e,r){for(var t={},a=[],d=0;d<e.length;d++){var i=e[d],l=r.base?i[0]+r.base:i[0],s=t[l]||0,p="".concat(l," ").concat(s);t[l]=s+1;var b=o(p),c={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==b)n[b].references++,n[b].updater(c);else{var u=function(e,n){var o=n.domAPI(n);return o.update(e),function(n){n?(n.css!==e.css||n.media!==e.media||n.sourceMap!==e.sourceMap||n.supports!==e.supports||n.layer!==e.layer)&&o.update(e=n):o.remove()}}(c,r);r.byIndex=d,n.splice(d,0,{identifier:p,updater:u,references:1})}a.push(p)}return a}e.exports=function(e,t){var a=r(e=e||[],t=t||{});return function(e){e=e||[];for(var d=0;d<a.length;d++){var i=o(a[d]);n[i].references--}for(var l=r(e,t),s=0;s<a.length;s++){var p=o(a[s]);0===n[p].references&&(n[p].updater(),n.splice(p,1))}a=l}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var n={};e.exports=function(e,o){var r=function(e){if(void 0===n[e]){var o=document.querySelector(e);if(window.HTMLIFrameElement&&o instanceof window.HTMLIFrameElement)try{o=o.contentDocument.head}catch(e){o=null}n[e]=o}return n[e]}(e);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(o)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var n=document.createElement("style");return e.setAttributes(n,e.attributes),e.insert(n,e.options),n}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,n,o){e.exports=function(e){var n=o.nc;n&&e.setAttribute("nonce",n)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var n=e.insertStyleElement(e);return{update:function(o){var r,t,a;r="",o.supports&&(r+="@supports (".concat(o.supports,") {")),o.media&&(r+="@media ".concat(o.media," {")),(t=void 0!==o.layer)&&(r+="@layer".concat(o.layer.length>0?" ".concat(o.layer):""," {")),r+=o.css,t&&(r+="}"),o.media&&(r+="}"),o.supports&&(r+="}"),(a=o.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(r,n,e.options)},remove:function(){var e;null===(e=n).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,n){if(n.styleSheet)n.styleSheet.cssText=e;else{for(;n.firstChild;)n.removeChild(n.firstChild);n.appendChild(document.createTextNode(e))}}},"./style/index.js"(e,n,o){var r=o("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),t=o.n(r),a=o("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),d=o.n(a),i=o("./node_modules/style-loader/dist/runtime/insertBySelector.js"),l=o.n(i),s=o("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),p=o.n(s),b=o("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),c=o.n(b),u=o("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),f=o.n(u),m=o("./node_modules/css-loader/dist/cjs.js!./style/base.css"),x={};x.styleTagTransform=f(),x.setAttributes=p(),x.insert=l().bind(null,"head"),x.domAPI=d(),x.insertStyleElement=c(),t()(m.A,x),m.A&&m.A.locals&&m.A.locals}}]);