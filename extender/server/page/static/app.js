// Holds the state, listens to what changed, and hands it to the grid and the panel.

import { html, render } from "./lit-html/lit-html.js";
import { Grid } from "./grid.js";
import { legend, panel } from "./panel.js";
import { cardDetail, whyDetail } from "./detail.js";
import { KINDS, MARKS, PROBLEMS, cellsOf, count, percent, readCell, shortKey, sizes } from "./text.js";

const find = (id) => document.getElementById(id);

const state = {
  lines: new Map(), // node -> its line; see rows.py
  spaces: new Set(), // namespaces of those who were seen on them
  keys: new Set(), // raw keys of their whole devices
  summary: null,
  waiting: [],
  quotas: [],
  link: "connecting",
  filter: { text: "", model: "", namespace: "", problem: "" },
  tab: "waiting",
  card: null, // the open card: { node, position }
  detail: null, // what is known of it
  why: new Map(), // pod -> why it waits, or null while it is asked for
  open: new Set(), // waiting pods that are opened
};

const grid = new Grid({
  scroller: find("grid"), canvas: find("canvas"), spacer: find("spacer"), status: find("focused"), onOpen: openCard,
});

// ---------------------------------------------------------------------------------------------------- what is shown

const problemBits = (name) =>
  name === "any" ? PROBLEMS : (MARKS.find(([, each]) => each === name) || [0])[0];

function isHit(card) {
  const { model, namespace, problem } = state.filter;
  return (
    (!model || card.model === model) &&
    (!namespace || card.namespaces.includes(namespace)) &&
    (!problem || Boolean(card.marks & problemBits(problem)))
  );
}

function hasHit(line) {
  for (let position = 0; position < cellsOf(line); position += 1) if (isHit(readCell(line, position))) return true;
  return false;
}

function shownLines() {
  const { text, model, namespace, problem } = state.filter;
  const bits = problem && problemBits(problem);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (const line of state.lines.values()) {
    if (words.length && !words.every((word) => line.n.toLowerCase().includes(word))) continue;
    if (model && !line.t.includes(model) && !line.r) continue;
    if (namespace && !line.s.includes(namespace)) continue;
    if (bits && !line.c.some((card) => card[1] & bits) && !line.r) continue;
    if ((model || namespace || bits) && !hasHit(line)) continue;
    found.push(line);
  }
  return found.sort((one, other) => (one.n < other.n ? -1 : 1));
}

const drawn = { pending: 0, lines: 0, at: 0 };
const STREAM_MS = 300; // between two drawings of what comes in by itself

// Draws in the next frame; what comes in by itself, by the hundred while a page fills, is drawn a few times a second.
function update({ streamed = false } = {}) {
  const wait = streamed && drawn.lines ? Math.max(0, drawn.at + STREAM_MS - performance.now()) : 0;
  if (wait) {
    drawn.timer ||= setTimeout(() => {
      drawn.timer = 0;
      update();
    }, wait);
    return;
  }
  if (drawn.pending) return;
  drawn.pending = requestAnimationFrame((now) => {
    drawn.pending = 0;
    drawn.at = now;
    const lines = shownLines();
    grid.isOpen = state.card !== null;
    grid.show(lines, isHit);
    render(header(), find("header"));
    render(legend(state.summary?.holders, state.keys.size > 0), find("legend"));
    render(filters(lines), find("filters"));
    render(panel(state, actions), find("side"));
    if (lines.length && !drawn.lines) {
      requestAnimationFrame(() => performance.mark("first-picture"));
      drawn.lines = lines.length;
    }
    document.documentElement.dataset.nodes = String(state.lines.size);
  });
}

function header() {
  const totals = state.summary?.totals;
  const sum = (label, used, whole, text) => html`
    <div class="sum"><dt>${label}</dt><dd>${text} <small>${percent(used, whole)}</small></dd></div>`;
  return html`
    <h1>gpu-extender</h1>
    <dl>
      ${totals && html`
        ${sum("memory held", totals.requested.memory, totals.capacity.memory,
          sizes(totals.requested.memory, totals.capacity.memory))}
        ${sum("slots", totals.requested.slots, totals.capacity.slots,
          `${count(totals.requested.slots)} / ${count(totals.capacity.slots)}`)}
        ${sum("cores", totals.requested.cores, totals.capacity.cores,
          `${count(totals.requested.cores)} / ${count(totals.capacity.cores)}`)}
        <div class="sum"><dt>nodes, cards</dt><dd>${count(state.summary.nodes)}, ${count(totals.cards)}</dd></div>
        ${heldBy()}
        <div class="sum ${state.summary.waiting ? "alarm" : ""}">
          <dt>waiting</dt><dd>${count(state.summary.waiting)}</dd></div>
        <div class="sum ${problems() ? "alarm" : ""}"><dt>problems</dt><dd>${count(problems())}</dd></div>`}
    </dl>
    <span class="link ${state.link}" role="status">${state.link}</span>`;
}

// Who holds something, by kind: pods always, the others if there are some.
function heldBy() {
  const { holders } = state.summary;
  const kinds = Object.keys(KINDS).filter((kind) => kind !== "pod" && holders[kind]);
  const named = ["pod", ...kinds].map((kind) => `${count(holders[kind])} ${KINDS[kind]}${holders[kind] === 1 ? "" : "s"}`);
  const [label, text] = kinds.length ? ["held by", named.join(", ")] : ["pods", count(holders.pod)];
  return html`<div class="sum"><dt>${label}</dt><dd>${text}</dd></div>`;
}

const problems = () => Object.values(state.summary.problems).reduce((sum, each) => sum + each, 0);

function filters(lines) {
  const { filter } = state;
  const models = [...(state.summary?.models || []).map((each) => each.model), ...[...state.keys].sort()];
  const spaces = [...state.spaces].sort();
  const choice = (name, label, values) => html`
    <label>${label}
      <select @change=${(event) => setFilter(name, event.target.value)} .value=${filter[name]}>
        <option value="">all</option>
        ${values.map((value) => html`<option value=${value} ?selected=${filter[name] === value}>${value}</option>`)}
      </select></label>`;
  return html`
    <label>node <input id="search" type="search" placeholder="part of a name ( / )" .value=${filter.text}
      @input=${(event) => setFilter("text", event.target.value)}></label>
    ${choice("model", "model", models)} ${choice("namespace", "namespace", spaces)}
    ${choice("problem", "problem", ["any", ...MARKS.map(([, name]) => name)])}
    <span class="shown" role="status">${count(lines.length)} of ${count(state.summary?.nodes ?? state.lines.size)} nodes</span>`;
}

function setFilter(name, value) {
  state.filter[name] = value;
  find("grid").scrollTop = 0;
  update();
}

// ------------------------------------------------------------------------------------------------ what people open

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error || answer.statusText);
  return said;
}

const podPath = (pod) => `api/v1/pods/${pod.split("/").map(encodeURIComponent).join("/")}`;

async function openCard(card) {
  state.card = { node: card.node, position: card.position };
  state.tab = "card";
  state.detail = { card, device: null, pods: [], error: "" }; // device: of the API, a card or whole devices
  update();
  find("side").scrollIntoView({ block: "nearest" });
  await loadCard();
}

async function loadCard() {
  const asked = state.card;
  if (!asked) return;
  try {
    const node = await ask(`api/v1/nodes/${encodeURIComponent(asked.node)}`);
    const line = state.lines.get(asked.node);
    const isThere = line && asked.position < cellsOf(line);
    const device = [...node.devices, ...(node.raw || [])][asked.position];
    if (!device || !isThere) throw new Error("it is gone");
    const pods = await Promise.all((device.pods || []).map((pod) => ask(podPath(pod)).catch(() => null)));
    if (state.card !== asked) return;
    state.detail = { card: readCell(line, asked.position), device, pods: pods.filter(Boolean), error: "" };
  } catch (error) {
    if (state.card === asked) state.detail = { ...state.detail, error: error.message };
  }
  update();
}

function closeCard() {
  state.card = null;
  state.detail = null;
  state.tab = "waiting";
  update();
  find("grid").focus();
}

async function loadWhy(pod) {
  if (!state.why.has(pod)) state.why.set(pod, null);
  try {
    state.why.set(pod, await ask(`${podPath(pod)}/why`));
  } catch (error) {
    state.why.set(pod, { error: error.message });
  }
  update();
}

// What was said of opened pods may have changed with the cards; asking costs the server, so not too often.
let looking = 0;
const LOOK_AGAIN_MS = 2000;

function lookAgain() {
  if (looking) return;
  looking = setTimeout(() => {
    looking = 0;
    const names = new Set(state.waiting.map((each) => each.pod));
    if (state.tab === "waiting") [...state.open].filter((pod) => names.has(pod)).slice(0, 10).forEach(loadWhy);
  }, LOOK_AGAIN_MS);
}

function toggleWaiting(pod, isOpen) {
  if (isOpen === state.open.has(pod)) return;
  if (isOpen) state.open.add(pod);
  else state.open.delete(pod);
  if (isOpen && !state.why.get(pod)) loadWhy(pod);
  update();
}

function goToNode(node) {
  Object.assign(state.filter, { text: "", model: "", namespace: "", problem: "" });
  const row = shownLines().findIndex((line) => line.n === node);
  if (row < 0) return;
  update();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    find("grid").focus();
    grid.focus = { row, card: 0 };
    grid.move(0, 0);
  }));
}

const actions = {
  closeCard, goToNode, toggleWaiting, cardDetail, whyDetail,
  setTab: (tab) => {
    state.tab = tab;
    update();
  },
};

// ---------------------------------------------------------------------------------------------------- what happened

function listen() {
  const source = new EventSource("api/v1/changes");
  const on = (kind, act) =>
    source.addEventListener(kind, (event) => {
      act(JSON.parse(event.data));
      update({ streamed: true });
    });
  source.addEventListener("open", () => setLink("live"));
  source.addEventListener("error", () => setLink("reconnecting"));
  on("reset", () => {
    state.lines.clear();
    state.spaces.clear();
    state.keys.clear();
  });
  on("nodes", (lines) => {
    for (const line of lines) {
      state.lines.set(line.n, line);
      for (const space of line.s) state.spaces.add(space);
      for (const [key] of line.r || []) state.keys.add(shortKey(key));
    }
    if (state.card && lines.some((line) => line.n === state.card.node)) loadCard();
  });
  on("gone", (names) => names.forEach((name) => state.lines.delete(name)));
  on("summary", (summary) => (state.summary = summary));
  on("quotas", (quotas) => (state.quotas = quotas));
  on("waiting", (waiting) => {
    state.waiting = waiting;
    const names = new Set(waiting.map((each) => each.pod));
    for (const pod of [...state.why.keys()]) if (!names.has(pod)) state.why.delete(pod);
    for (const pod of [...state.open]) if (!names.has(pod)) state.open.delete(pod);
    if (!state.open.size && waiting.length) state.open.add(waiting[0].pod);
    const looked = new Set([...state.open, ...waiting.slice(0, 10).map((each) => each.pod)]);
    for (const pod of looked) if (names.has(pod)) loadWhy(pod);
  });
  on("reached", (reached) => {
    document.documentElement.dataset.reached = String(reached);
    lookAgain();
  });
}

function setLink(link) {
  state.link = link;
  update();
}

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    find("search").focus();
  } else if (event.key === "Escape" && state.card) closeCard();
  else if (event.key === "Escape" && isTyping) find("grid").focus();
});
find("filters").addEventListener("submit", (event) => event.preventDefault());

update();
listen();
