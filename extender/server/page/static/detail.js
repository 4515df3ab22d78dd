// One card with who holds it, and the phases of each pod; whole devices; and why one pod waits.

import { html, nothing, svg } from "./lit-html/lit-html.js";
import { swatch } from "./panel.js";
import { KINDS, REASONS, count, marksOf, memory, shortKey } from "./text.js";

export function cardDetail(detail, actions) {
  if (!detail) return nothing;
  const { card, device, pods, error } = detail;
  if (card.isRaw) return rawDetail(card, device, error, actions);
  const others = (device?.holders || []).filter((each) => each.kind !== "pod");
  return html`
    ${head(card.node, `card ${device?.index ?? card.position}`, actions)}
    ${error ? html`<p class="alarm">${error}</p>` : nothing}
    <p class="faint">${card.model || "not registered any more"}${device ? html`<br><code>${device.uuid}</code>` : nothing}</p>
    <table class="facts">
      <thead><tr><th></th><th>memory</th><th>slots</th><th>cores</th></tr></thead>
      <tbody>
        ${factRow("app", "apps", minus(card.requested, card.inits, card.sidecars, card.claimed))}
        ${factRow("sidecar", "sidecars", card.sidecars)}
        ${factRow("init", "inits only", card.inits)}
        ${card.claims ? factRow("claim", "DRA claims", card.claimed) : nothing}
        ${factRow("free", "free", minus(card.capacity, card.requested))}
        ${card.reserved ? factRow("reserved", "reserved", { memory: card.reserved, slots: null, cores: null }) : nothing}
        ${factRow("", "in all", card.capacity)}
      </tbody>
    </table>
    ${card.marks ? html`<p class="marks">${marksOf(card.marks).join(", ")}${device?.blocked.length
      ? `: ${device.blocked.join(", ")}` : ""}</p>` : nothing}
    ${device ? html`<h3>${pods.length + others.length ? "Who holds it" : "Nobody holds it"}</h3>` : nothing}
    ${pods.map((pod) => podOnCard(pod, device.uuid))}
    ${others.map((each) => html`<article class="holder"><h4>${kindTag(each.kind)} ${each.name}</h4>
      <p>holds ${amounts(each)}</p></article>`)}`;
}

const head = (node, what, actions) => html`
  <div class="head"><h2>${node} <small>${what}</small></h2>
    <button @click=${actions.closeCard} aria-label="Close the card">Close (Esc)</button></div>`;

const kindTag = (kind) => html`<span class="kind ${kind}">${KINDS[kind] || kind}</span>`;

const amounts = (each) => html`<b>${memory(each.memory)}</b>, ${each.slots} ${each.slots === 1 ? "slot" : "slots"},
  ${each.cores} cores`;

const units = (number) => `${number} ${number === 1 ? "device" : "devices"}`;

// Whole devices under one raw key, and who has them.
function rawDetail(cell, use, error, actions) {
  const row = (kind, name, number) => html`<tr><th scope="row"><svg width="18" height="12" aria-hidden="true">${swatch(kind, 18)}</svg>
    ${name}</th><td class="number">${number}</td></tr>`;
  return html`
    ${head(cell.node, "whole devices", actions)}
    ${error ? html`<p class="alarm">${error}</p>` : nothing}
    <p class="faint"><code>${cell.key}</code></p>
    <table class="facts"><thead><tr><th></th><th>devices</th></tr></thead><tbody>
      ${row("app", "pods", cell.pods)} ${row("vmi", "VMs", cell.vmis)} ${row("hold", "holds", cell.holds)}
      ${row("free", "free", cell.allocatable - cell.used)}
      <tr><th scope="row">in all</th><td class="number">${cell.allocatable}</td></tr></tbody></table>
    ${cell.marks ? html`<p class="marks">${marksOf(cell.marks).join(", ")}</p>` : nothing}
    ${use ? html`<h3>${use.holders.length ? "Who has them" : "Nobody has one"}</h3>` : nothing}
    ${(use?.holders || []).map((each) => html`<article class="holder"><h4>${kindTag(each.kind)} ${each.name}</h4>
      <p>${units(each.units)}</p></article>`)}`;
}

const minus = (whole, ...parts) =>
  Object.fromEntries(Object.keys(whole).map((key) => [key, parts.reduce((rest, part) => rest - part[key], whole[key])]));

const factRow = (kind, name, amounts) => html`
  <tr><th scope="row">${kind ? html`<svg width="18" height="12" aria-hidden="true">${swatch(kind, 18)}</svg> ` : nothing}${name}</th>
    <td class="number">${memory(amounts.memory)}</td><td class="number">${amounts.slots ?? "–"}</td>
    <td class="number">${amounts.cores ?? "–"}</td></tr>`;

function podOnCard(pod, uuid) {
  const held = pod.held[uuid] || { memory: 0, slots: 0, cores: 0 };
  const later = pod.steady[uuid] || { memory: 0, slots: 0, cores: 0 };
  const shrinks = pod.state === "peak" && held.memory + held.slots + held.cores > later.memory + later.slots + later.cores;
  return html`
    <article class="holder">
      <h4>${kindTag("pod")} ${pod.pod}</h4>
      <p>holds <b>${memory(held.memory)}</b>, ${held.slots} ${held.slots === 1 ? "slot" : "slots"}, ${held.cores} cores${shrinks
        ? html`; after its inits <b>${memory(later.memory)}</b>, ${later.slots} ${later.slots === 1 ? "slot" : "slots"},
          ${later.cores} cores` : nothing}</p>
      ${pod.phases.length > 1 ? timeline(pod, uuid, held) : nothing}
      ${pod.problem ? html`<p class="alarm">${pod.problem.code}: ${pod.problem.message}</p>` : nothing}
    </article>`;
}

// One column per phase, as high as what runs in it holds of this card; the line is what is held now.
function timeline(pod, uuid, held) {
  const kinds = new Map(pod.containers.map((each) => [each.name, each.kind]));
  const uses = (name) =>
    (pod.containers.find((each) => each.name === name)?.devices || [])
      .filter((row) => row.uuid === uuid)
      .reduce((sum, row) => sum + row.memory, 0);
  const columns = pod.phases.map((phase) => ({
    name: phase.phase,
    parts: phase.containers.map((name) => ({ name, kind: kinds.get(name), memory: uses(name) })).filter((part) => part.memory),
  }));
  const most = Math.max(1, held.memory, ...columns.map((column) => column.parts.reduce((sum, part) => sum + part.memory, 0)));
  const width = Math.max(48, Math.min(96, Math.floor(320 / columns.length)));
  const height = 84;
  const over = pod.state === "steady";
  const label = columns.map((column) => `${column.name} ${memory(sumOf(column))}`).join(", ");
  return html`
    <svg class="timeline" width=${width * columns.length + 4} height=${height + 34} role="img"
      aria-label="Phases: ${label}; held now ${memory(held.memory)}">
      ${columns.map((column, place) => {
        let base = height;
        const isPast = over && place < columns.length - 1;
        return svg`<g class=${isPast ? "past" : ""}>
          ${column.parts.map((part) => {
            const high = Math.max(1, (part.memory / most) * (height - 16));
            base -= high;
            return svg`${swatch(part.kind, width - 8, high, place * width + 4, base)}<title>${part.name}: ${memory(part.memory)}</title>`;
          })}
          <text x=${place * width + width / 2} y=${base - 4} text-anchor="middle">${memory(sumOf(column))}</text>
          <text class="name" x=${place * width + width / 2} y=${height + 14} text-anchor="middle">${cut(column.name.replace(/^init /, ""), width)}</text>
          <text class="name faint" x=${place * width + width / 2} y=${height + 28} text-anchor="middle">${isPast ? "over" : column.name.startsWith("init ") ? "init" : ""}</text></g>`;
      })}
      <line class="held" x1="2" x2=${width * columns.length + 2} y1=${height - (held.memory / most) * (height - 16)}
        y2=${height - (held.memory / most) * (height - 16)}></line>
      <line class="axis" x1="2" x2=${width * columns.length + 2} y1=${height} y2=${height}></line>
    </svg>`;
}

const sumOf = (column) => column.parts.reduce((sum, part) => sum + part.memory, 0);
const cut = (name, width) => (name.length * 6 > width ? `${name.slice(0, Math.floor(width / 6) - 1)}…` : name);

export function whyDetail(why, actions) {
  if (why === undefined) return nothing;
  if (why === null) return html`<p class="faint">looking…</p>`;
  if (why.error) return html`<p class="alarm">${why.error}</p>`;
  return html`
    <p class="answer">${why.text}</p>
    ${why.refused.length ? html`<ul class="counts">${why.refused.map((each) => html`
      <li><b>${count(each.count)}</b> of ${count(why.nodes)} ${why.nodes === 1 ? "node" : "nodes"}: ${REASONS[each.code] || each.code}
        <code>${each.code}</code></li>`)}</ul>` : nothing}
    ${why.best.length ? html`<h4>Would go to</h4><p>${why.best.slice(0, 3).map((each) => nodeLink(each.node, actions))}</p>` : nothing}
    ${why.nearest.length ? html`<h4>What would have to change</h4>${why.nearest.map((near) => nearNode(near, actions))}` : nothing}`;
}

const nodeLink = (node, actions) => html`<button class="node" @click=${() => actions.goToNode(node)}>${node}</button> `;

function nearNode(near, actions) {
  return html`
    <div class="near">
      ${nodeLink(near.node, actions)}
      <ul>${near.cards.map((card) => html`<li>${lack(card)} <code title=${card.uuid}>${cut(card.uuid, 130)}</code>${others(card)}</li>`)}
        ${near.raw.map((each) => html`<li>${units(each.missing)} missing: <code title=${each.key}>${shortKey(each.key)}</code>${others(each)}</li>`)}</ul>
      <p>${near.in_the_way === null ? "No pod's end there would be enough."
        : html`Fits once ${near.in_the_way.length === 1 ? "this pod ends" : "these pods end"}: ${near.in_the_way.map((pod) => html`
          <span class="blocking"><b>${pod.pod}</b> (${pod.units ? units(pod.units) : `${memory(pod.memory)}, ${pod.cores} cores`})</span> `)}`}</p>
    </div>`;
}

// Those who hold what lacks and are no pods, since no pod's end gives it back.
function others(lacking) {
  const found = lacking.holders.filter((each) => each.kind !== "pod");
  return found.length ? html`, held by ${found.slice(0, 3).map((each) => html`${kindTag(each.kind)} ${each.name} `)}` : nothing;
}

function lack(card) {
  if (card.occupied) return "must be empty:";
  const parts = [
    card.memory ? `${memory(card.memory)} missing` : "",
    card.cores ? `${card.cores} cores missing` : "",
    card.slots ? `${card.slots} ${card.slots === 1 ? "slot" : "slots"} missing` : "",
  ];
  return `${parts.filter(Boolean).join(", ")} on`;
}
