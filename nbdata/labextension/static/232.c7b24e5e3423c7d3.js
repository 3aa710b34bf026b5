"use strict";(self.rspackChunknbdata=self.rspackChunknbdata||[]).push([[232],{475(n,e,r){var o=r(601),t=r.n(o),a=r(314),i=(r.n(a))()(t());i.push([n.id,`/* Only JupyterLab's variables, so that every theme fits. */

.nbd-Panel {
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
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

.nbd-List {
  display: flex;
  flex-direction: column;
  gap: 10px;
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

.nbd-Row,
.nbd-Summary {
  align-items: baseline;
  display: flex;
  gap: 8px;
  justify-content: space-between;
  min-width: 0;
}

.nbd-Fact {
  white-space: nowrap;
}

.nbd-Strong {
  flex: none;
  font-weight: 600;
}

.nbd-State,
.nbd-Summary > time {
  flex: none;
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
  width: 2.4em;
}

/* -- bars ---------------------------------------------------------------------------------- */

.nbd-Bar {
  --nbd-fill: var(--jp-brand-color1);
  --nbd-fill-faint: var(--jp-brand-color3);

  background: var(--jp-layout-color2);
  border: var(--jp-border-width) solid var(--jp-border-color1);
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
    var(--nbd-fill-faint) 3px 6px
  );
}

.nbd-Progress .nbd-Bar-used {
  transition: width 0.25s linear;
}

.nbd-mod-warn .nbd-Bar {
  --nbd-fill: var(--jp-warn-color1);
  --nbd-fill-faint: var(--jp-warn-color3);
}

.nbd-mod-full .nbd-Bar {
  --nbd-fill: var(--jp-error-color1);
  --nbd-fill-faint: var(--jp-error-color3);
}

.nbd-mod-paused .nbd-Bar,
.nbd-mod-cancelling .nbd-Bar,
.nbd-mod-queued .nbd-Bar {
  --nbd-fill: var(--jp-ui-font-color3);
}

/* -- jobs ---------------------------------------------------------------------------------- */

.nbd-Job {
  border: var(--jp-border-width) solid var(--jp-border-color2);
  border-radius: 4px;
  padding: 6px 8px;
}

.nbd-Reason,
.nbd-Problem {
  font-size: var(--jp-ui-font-size0);
  overflow-wrap: anywhere;
}

.nbd-mod-failed .nbd-State,
.nbd-mod-interrupted .nbd-State,
.nbd-Problem {
  color: var(--jp-error-color1);
}

.nbd-mod-done .nbd-State {
  color: var(--jp-success-color1);
}

.nbd-Foot {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
  justify-content: space-between;
  margin-top: 4px;
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

.nbd-Button:hover {
  background: var(--jp-layout-color2);
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

.nbd-More {
  margin-top: 8px;
}

.nbd-Notice {
  border-left: 3px solid var(--jp-warn-color1);
  margin: 0 0 8px;
  overflow-wrap: anywhere;
  padding: 2px 8px;
}

.nbd-Button:focus-visible,
.nbd-Link:focus-visible,
.nbd-Fold > summary:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 1px;
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
  flex: 1 1 auto;
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
`,""]),r.d(e,{},{A:i})},314(n){n.exports=function(n){var e=[];return e.toString=function(){return this.map(function(e){var r="",o=void 0!==e[5];return e[4]&&(r+="@supports (".concat(e[4],") {")),e[2]&&(r+="@media ".concat(e[2]," {")),o&&(r+="@layer".concat(e[5].length>0?" ".concat(e[5]):""," {")),r+=n(e),o&&(r+="}"),e[2]&&(r+="}"),e[4]&&(r+="}"),r}).join("")},e.i=function(n,r,o,t,a){"string"==typeof n&&(n=[[null,n,void 0]]);var i={};if(o)for(var d=0;d<this.length;d++){var l=this[d][0];null!=l&&(i[l]=!0)}for(var s=0;s<n.length;s++){var p=[].concat(n[s]);o&&i[p[0]]||(void 0!==a&&(void 0===p[5]||(p[1]="@layer".concat(p[5].length>0?" ".concat(p[5]):""," {").concat(p[1],"}")),p[5]=a),r&&(p[2]&&(p[1]="@media ".concat(p[2]," {").concat(p[1],"}")),p[2]=r),t&&(p[4]?(p[1]="@supports (".concat(p[4],") {").concat(p[1],"}"),p[4]=t):p[4]="".concat(t)),e.push(p))}},e}},601(n){n.exports=function(n){return n[1]}},72(n){var e=[];function r(n){for(var r=-1,o=0;o<e.length;o++)if(e[o].identifier===n){r=o;break}return r}function o(n,o){for(var t={},a=[],i=0;i<n.length;i++){var d=n[i],l=o.base?d[0]+o.base:d[0],s=t[l]||0,p="".concat(l," ").concat(s);t[l]=s+1;var c=r(p),u={css:d[1],media:d[2],sourceMap:d[3],supports:d[4],layer:d[5]};if(-1!==c)e[c].references++,e[c].updater(u);else{var f=function(n,e){var r=e.domAPI(e);return r.update(n),function(e){e?(e.css!==n.css||e.media!==n.media||e.sourceMap!==n.sourceMap||e.supports!==n.supports||e.layer!==n.layer)&&r.update(n=e):r.remove()}}(u,o);o.byIndex=i,e.splice(i,0,{identifier:p,updater:f,references:1})}a.push(p)}return a}n.exports=function(n,t){var a=o(n=n||[],t=t||{});return function(n){n=n||[];for(var i=0;i<a.length;i++){var d=r(a[i]);e[d].references--}for(var l=o(n,t),s=0;s<a.length;s++){var p=r(a[s]);0===e[p].references&&(e[p].updater(),e.splice(p,1))}a=l}}},659(n){var e={};n.exports=function(n,r){var o=function(n){if(void 0===e[n]){var r=document.querySelector(n);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(n){r=null}e[n]=r}return e[n]}(n);if(!o)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");o.appendChild(r)}},540(n){n.exports=function(n){var e=document.createElement("style");return n.setAttributes(e,n.attributes),n.insert(e,n.options),e}},56(n,e,r){n.exports=function(n){var e=r.nc;e&&n.setAttribute("nonce",e)}},825(n){n.exports=function(n){if("u"<typeof document)return{update:function(){},remove:function(){}};var e=n.insertStyleElement(n);return{update:function(r){var o,t,a;o="",r.supports&&(o+="@supports (".concat(r.supports,") {")),r.media&&(o+="@media ".concat(r.media," {")),(t=void 0!==r.layer)&&(o+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),o+=r.css,t&&(o+="}"),r.media&&(o+="}"),r.supports&&(o+="}"),(a=r.sourceMap)&&"u">typeof btoa&&(o+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),n.styleTagTransform(o,e,n.options)},remove:function(){var n;null===(n=e).parentNode||n.parentNode.removeChild(n)}}}},113(n){n.exports=function(n,e){if(e.styleSheet)e.styleSheet.cssText=n;else{for(;e.firstChild;)e.removeChild(e.firstChild);e.appendChild(document.createTextNode(n))}}},579(n,e,r){var o=r(72),t=r.n(o),a=r(825),i=r.n(a),d=r(659),l=r.n(d),s=r(56),p=r.n(s),c=r(540),u=r.n(c),f=r(113),b=r.n(f),v=r(475),m={};m.styleTagTransform=b(),m.setAttributes=p(),m.insert=l().bind(null,"head"),m.domAPI=i(),m.insertStyleElement=u(),t()(v.A,m),v.A&&v.A.locals&&v.A.locals}}]);