// The legend, and the side panel with its three tabs: waiting pods, quotas, the open card.

import { html, nothing, svg } from "./lit-html/lit-html.js";
import { KINDS, MARKS, REASONS, count, memory, percent } from "./text.js";

const PARTS = [
  ["app", "apps"],
  ["sidecar", "sidecars"],
  ["init", "inits only"],
  ["claim", "DRA claims"],
  ["vmi", "VMs"],
  ["hold", "holds"],
  ["reserved", "reserved"],
  ["free", "free"],
];

// Kinds of holders that the cluster does not have need no explanation.
export function legend(holders, hasWholeDevices) {
  const shown = PARTS.filter(([kind]) => !(kind in KINDS) || holders?.[kind]);
  return html`
    <ul>
      ${shown.map(([kind, name]) => html`<li><svg width="26" height="12" aria-hidden="true">${swatch(kind)}</svg>
        ${name}</li>`)}
      ${MARKS.map(([, name, sign]) => html`<li><b class="sign" aria-hidden="true">${sign}</b> ${name}</li>`)}
      <li class="order">bars of a card: memory, slots, cores${hasWholeDevices ? "; whole devices: one bar" : ""}</li>
    </ul>`;
}

export const swatch = (kind, width = 26, height = 12, x = 0, y = 0) => svg`
  <rect class="part ${kind}" x=${x} y=${y} width=${width} height=${height}></rect>
  <rect class="over ${kind}" x=${x} y=${y} width=${width} height=${height} fill="url(#p-${kind})"></rect>`;

// SVG patterns like those on the canvas; written once per page.
export const patterns = () => html`
  <svg class="patterns" width="0" height="0" aria-hidden="true"><defs>
    <pattern id="p-sidecar" width="8" height="8" patternUnits="userSpaceOnUse">
      <rect x="1" y="1" width="2" height="2" class="pen"></rect><rect x="5" y="5" width="2" height="2" class="pen"></rect>
    </pattern>
    <pattern id="p-init" width="8" height="8" patternUnits="userSpaceOnUse">
      <path d="M-1 9 L9 -1 M-9 9 L1 -1 M7 9 L17 -1" class="pen line"></path></pattern>
    <pattern id="p-claim" width="8" height="8" patternUnits="userSpaceOnUse">
      <rect y="1" width="8" height="1" class="pen"></rect><rect y="5" width="8" height="1" class="pen"></rect></pattern>
    <pattern id="p-vmi" width="8" height="8" patternUnits="userSpaceOnUse">
      <rect x="1" width="1" height="8" class="pen"></rect><rect x="5" width="1" height="8" class="pen"></rect></pattern>
    <pattern id="p-hold" width="8" height="8" patternUnits="userSpaceOnUse">
      <rect width="4" height="4" class="pen"></rect><rect x="4" y="4" width="4" height="4" class="pen"></rect></pattern>
    <pattern id="p-reserved" width="8" height="8" patternUnits="userSpaceOnUse">
      <path d="M0 0 L8 8 M8 0 L0 8" class="pen cross"></path></pattern>
    <pattern id="p-app" width="8" height="8" patternUnits="userSpaceOnUse"></pattern>
    <pattern id="p-free" width="8" height="8" patternUnits="userSpaceOnUse"></pattern>
  </defs></svg>`;

export function panel(state, actions) {
  const tabs = [
    ["waiting", `Waiting (${count(state.summary?.waiting ?? 0)})`],
    ["quotas", `Quotas (${count(state.quotas.length)})`],
    ...(state.card ? [["card", "Card"]] : []),
  ];
  const body = { waiting, quotas, card }[state.tab];
  return html`
    ${patterns()}
    <div role="tablist" aria-label="Details" @keydown=${(event) => onTabKey(event, tabs, state, actions)}>
      ${tabs.map(([tab, name]) => html`<button role="tab" id="tab-${tab}" aria-selected=${tab === state.tab}
        tabindex=${tab === state.tab ? 0 : -1} aria-controls="panel" @click=${() => actions.setTab(tab)}>${name}</button>`)}
    </div>
    <div role="tabpanel" id="panel" aria-labelledby="tab-${state.tab}">${body(state, actions)}</div>`;
}

function onTabKey(event, tabs, state, actions) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const at = tabs.findIndex(([tab]) => tab === state.tab);
  const next = tabs[(at + step + tabs.length) % tabs.length][0];
  actions.setTab(next);
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus()));
}

function waiting(state, actions) {
  if (!state.waiting.length) return html`<p class="empty">No pod waits for cards.</p>`;
  const more = (state.summary?.waiting ?? 0) - state.waiting.length;
  return html`
    ${state.waiting.slice(0, 200).map((pod) => html`
      <details class="pod" ?open=${state.open.has(pod.pod)}
        @toggle=${(event) => actions.toggleWaiting(pod.pod, event.target.open)}>
        <summary><strong>${pod.pod}</strong>
          <span class="asks">${pod.asks.join("; ") || pod.invalid.join("; ")}</span>
          ${reasons(...known(pod, state.why.get(pod.pod)))}</summary>
        ${actions.whyDetail(state.why.get(pod.pod), actions)}
      </details>`)}
    ${state.waiting.length > 200 || more > 0
      ? html`<p class="empty">${count(state.waiting.length - 200 + Math.max(0, more))} more wait.</p>` : nothing}`;
}

// What kube-scheduler was told last; before it asked, what it would be told now.
const known = (pod, why) =>
  pod.nodes === null && why?.refused && !why.fits
    ? [why.refused.map((each) => [each.code, each.count]), why.nodes]
    : [pod.refused, pod.nodes, why?.fits];

export const reasons = (refused, nodes, fits) =>
  nodes === null
    ? html`<span class="reason quiet">${fits ? `would fit ${count(fits)} ${fits === 1 ? "node" : "nodes"}; ` : ""}kube-scheduler
        has not asked about it yet</span>`
    : refused.map(([code, number]) => html`<span class="reason" title=${code}>
        <b>${count(number)}</b> ${number === 1 ? "node" : "nodes"}: ${REASONS[code] || code}</span>`);

function quotas(state) {
  if (!state.quotas.length) return html`<p class="empty">No namespace has a quota on cards.</p>`;
  return html`
    <table class="quotas">
      <thead><tr><th>namespace</th><th>resource</th><th class="number">used / hard</th><th></th></tr></thead>
      <tbody>${state.quotas.map((row) => html`
        <tr class=${row.exceeded ? "alarm" : ""}>
          <td>${row.namespace}</td>
          <td>${row.resource.replace(/^.*\//, "")}${row.scopes.length ? html` <small>${row.scopes.join(", ")}</small>` : nothing}</td>
          <td class="number">${amount(row, row.used)} / ${amount(row, row.hard)}</td>
          <td>${bar(row.used, row.hard)}</td>
        </tr>`)}</tbody>
    </table>`;
}

const amount = (row, value) => (/mem/.test(row.resource) ? memory(value) : count(value));

export function bar(used, whole, width = 90) {
  const share = whole > 0 ? Math.min(1, used / whole) : used > 0 ? 1 : 0;
  return html`<svg class="bar" width=${width} height="12" role="img" aria-label=${percent(used, whole)}>
    <rect class="part free" width=${width} height="12"></rect>
    <rect class="part ${used > whole ? "over-hard" : "app"}" width=${Math.round(share * width)} height="12"></rect></svg>`;
}

const card = (state, actions) => actions.cardDetail(state.detail, actions);
