// Numbers and names as people read them. Memory is in MiB everywhere behind this file.

export const MARKS = [
  [1, "orphaned", "?"],
  [2, "over-committed", "!"],
  [4, "blocked", "×"],
  [8, "unhealthy", "✚"],
  [16, "cordoned", "⊘"],
  [32, "exclusive", "■"],
];
export const EXCLUSIVE = 32;
export const PROBLEMS = 1 | 2 | 4 | 8;

const whole = new Intl.NumberFormat("en");

export const count = (number) => whole.format(number);

export function gib(mib, digits = 1) {
  const value = mib / 1024;
  return Math.abs(value) >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(digits);
}

export const memory = (mib) => (Math.abs(mib) < 1024 ? `${mib} MiB` : `${gib(mib)} GiB`);

// Two amounts of memory in the unit that suits the larger one.
export function sizes(held, whole) {
  const [unit, size] = whole >= 100 * 1024 ** 2 ? ["TiB", 1024 ** 2] : ["GiB", 1024];
  return `${count(Math.round(held / size))} / ${count(Math.round(whole / size))} ${unit}`;
}

export const percent = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)}%` : "–");

export const marksOf = (bits) => MARKS.filter(([bit]) => bits & bit).map(([, name]) => name);

// What holds a card or a whole device, as people call it.
export const KINDS = { pod: "pod", claim: "DRA claim", vmi: "VM", hold: "hold" };

// The cells of a line: its cards, then its whole devices by raw key.
export const cellsOf = (line) => line.c.length + (line.r ? line.r.length : 0);

export const readCell = (line, position) =>
  position < line.c.length ? readCard(line, position) : readRaw(line, position);

// A card as it comes over the wire: see FIELDS in rows.py.
export function readCard(line, position) {
  const [model, marks, ...rest] = line.c[position];
  const [cs, cm, cc, rs, rm, rc, is, im, ic, ss, sm, sc, reserved, pods, spaces, claimed] = rest;
  const [ds = 0, dm = 0, dc = 0, claims = 0] = claimed;
  return {
    node: line.n, position, model: line.t[model], marks, reserved, pods, claims,
    namespaces: spaces.map((each) => line.s[each]),
    capacity: { slots: cs, memory: cm, cores: cc },
    requested: { slots: rs, memory: rm, cores: rc },
    inits: { slots: is, memory: im, cores: ic },
    sidecars: { slots: ss, memory: sm, cores: sc },
    claimed: { slots: ds, memory: dm, cores: dc },
  };
}

// Whole devices under one raw key: see RAW_FIELDS in rows.py.
function readRaw(line, position) {
  const [key, marks, allocatable, pods, vmis, holds, spaces] = line.r[position - line.c.length];
  const used = pods + vmis + holds;
  const namespaces = spaces.map((each) => line.s[each]);
  return { node: line.n, position, model: shortKey(key), key, marks, allocatable, used, pods, vmis, holds, namespaces, isRaw: true };
}

export const shortKey = (key) => key.replace(/^.*\//, "");

export const describe = (cell) => (cell.isRaw ? describeRaw(cell) : describeCard(cell));

function describeRaw(cell) {
  const parts = [
    `${cell.node}, whole devices ${cell.model}`,
    `${cell.used} of ${cell.allocatable} in use`,
    `pods ${cell.pods}, VMs ${cell.vmis}, holds ${cell.holds}`,
  ];
  if (cell.marks) parts.push(marksOf(cell.marks).join(", "));
  return parts.join("; ");
}

function describeCard(card) {
  const { capacity, requested, inits, sidecars, claimed } = card;
  const apps = requested.memory - inits.memory - sidecars.memory - claimed.memory;
  const parts = [
    `${card.node}, card ${card.position}${card.model ? `, ${card.model}` : ""}`,
    `memory ${memory(requested.memory)} of ${memory(capacity.memory)} held`,
    `apps ${memory(apps)}, sidecars ${memory(sidecars.memory)}, inits only ${memory(inits.memory)}`,
    `${requested.slots} of ${capacity.slots} slots`,
    `${requested.cores} of ${capacity.cores} cores`,
    `${card.pods} ${card.pods === 1 ? "pod" : "pods"}`,
  ];
  if (card.claims) parts.push(`${card.claims} DRA ${card.claims === 1 ? "claim" : "claims"} ${memory(claimed.memory)}`);
  if (card.reserved) parts.push(`${memory(card.reserved)} reserved`);
  if (card.marks) parts.push(marksOf(card.marks).join(", "));
  return parts.join("; ");
}

// What a code means, in the words of somebody on call.
export const REASONS = {
  NodeUnknown: "the node is not known",
  NoDevices: "the node registers no cards",
  InsufficientDevices: "too few cards",
  InsufficientNodeCount: "the kubelet's count of the node is used up",
  InsufficientSlots: "no free slot",
  InsufficientMemory: "too little memory",
  InsufficientCores: "too few cores",
  ExclusiveConflict: "a card is used by others, or exclusively",
  DeviceUnhealthy: "unhealthy cards",
  DeviceCordoned: "cordoned cards",
  DeviceBlocked: "blocked cards",
  DeviceOvercommitted: "over-committed cards",
  TypeMismatch: "another model is wanted",
  UUIDMismatch: "another card is wanted",
  NUMAMismatch: "no NUMA node has enough",
  ModeMismatch: "another mode is wanted",
  QuotaExceeded: "the quota is used up",
  AllocationUnreadable: "a pod's allocation cannot be read",
  InvalidRequest: "the request is invalid",
  SearchLimit: "not decided in time",
};
