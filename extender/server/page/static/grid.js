// Draws nodes and their cards on one canvas, of which only what is in view is ever drawn.
//
// A card is three bars: memory, slots, cores. What holds a bar is told apart by colour and by pattern: apps are solid,
// sidecars dotted, what inits alone hold is striped, DRA claims have level lines, reserved memory is crossed; problems
// have a frame and a sign. Whole devices are one bar: pods solid, VMs with upright lines, holds checked.

import { EXCLUSIVE, MARKS, PROBLEMS, cellsOf, describe, gib, readCell } from "./text.js";

const NAME_WIDTH = 176;
const NARROW = 620;
const CELL_HEIGHT = 46;
const GAP = 6;
const HEAD = 18;

export class Grid {
  constructor({ scroller, canvas, spacer, status, onOpen }) {
    Object.assign(this, { scroller, canvas, spacer, status, onOpen });
    this.lines = [];
    this.most = 1;
    this.focus = { row: 0, card: 0 };
    this.isHit = () => true;
    this.pending = 0;
    scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    scroller.addEventListener("keydown", (event) => this.onKey(event));
    scroller.addEventListener("focus", () => this.say());
    scroller.addEventListener("blur", () => this.draw());
    scroller.addEventListener("click", (event) => this.onClick(event));
    new ResizeObserver(() => this.resize()).observe(scroller);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle());
    this.restyle();
  }

  // lines: those to show, in order. isHit: whether a card is meant by the filter; others are drawn pale.
  show(lines, isHit) {
    const name = this.lines[this.focus.row]?.n;
    this.lines = lines;
    this.isHit = isHit;
    this.most = lines.reduce((most, line) => Math.max(most, cellsOf(line)), 1);
    const kept = lines.findIndex((line) => line.n === name);
    const first = Math.max(0, lines.findIndex(cellsOf));
    this.focus.row = kept >= 0 && this.wasMoved ? kept : Math.min(this.wasMoved ? this.focus.row : first, Math.max(0, lines.length - 1));
    this.measure();
    this.draw();
    if (document.activeElement === this.scroller) this.say();
  }

  restyle() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(
      [
        "ink", "faint", "line", "paper", "app", "sidecar", "init", "claim", "vmi", "hold", "reserved", "free", "alarm", "focus",
      ].map((name) => [
        name,
        colour(name),
      ]),
    );
    const context = this.canvas.getContext("2d");
    const { app, sidecar, init, claim, vmi, hold, reserved, paper } = this.colours;
    this.fills = {
      apps: app,
      sidecars: pattern(context, sidecar, (pen) => dots(pen, paper)),
      inits: pattern(context, init, (pen) => stripes(pen, paper)),
      claims: pattern(context, claim, (pen) => level(pen, paper)),
      vmis: pattern(context, vmi, (pen) => upright(pen, paper)),
      holds: pattern(context, hold, (pen) => checks(pen, paper)),
      reserved: pattern(context, paper, (pen) => crosses(pen, reserved)),
    };
    this.draw();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.scroller;
    this.width = clientWidth;
    this.height = clientHeight;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.ratio = ratio;
    this.measure();
    this.draw();
  }

  measure() {
    if (!this.width) return;
    this.isNarrow = this.width < NARROW;
    this.left = this.isNarrow ? 8 : NAME_WIDTH;
    const room = this.width - this.left - 8;
    const least = this.isNarrow ? 40 : 60;
    this.perLine = Math.max(1, Math.min(this.most, Math.floor((room + GAP) / (least + GAP))));
    this.cell = Math.min(168, Math.floor((room + GAP) / this.perLine) - GAP);
    this.tops = new Float64Array(this.lines.length + 1);
    this.lines.forEach((line, row) => {
      const height = Math.max(1, Math.ceil(cellsOf(line) / this.perLine)) * (CELL_HEIGHT + GAP) + GAP;
      const empty = this.isNarrow && !cellsOf(line);
      this.tops[row + 1] = this.tops[row] + (empty ? HEAD + GAP : height + (this.isNarrow ? HEAD : 0));
    });
    this.spacer.style.height = `${this.tops[this.lines.length]}px`;
  }

  // The row at a distance from the top of all rows.
  rowAt(top) {
    let [low, high] = [0, this.lines.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= top) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.paint();
    });
  }

  paint() {
    if (!this.width) return;
    const pen = this.canvas.getContext("2d");
    const top = this.scroller.scrollTop;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = this.colours.paper;
    pen.fillRect(0, 0, this.width, this.height);
    const bottom = top + this.height;
    for (let row = this.rowAt(top); row < this.lines.length && this.tops[row] < bottom; row += 1)
      this.paintRow(pen, row, this.tops[row] - top);
    this.painted = (this.painted || 0) + 1;
  }

  paintRow(pen, row, y) {
    const line = this.lines[row];
    pen.fillStyle = this.colours.line;
    pen.fillRect(0, y + this.tops[row + 1] - this.tops[row] - 1, this.width, 1);
    pen.textBaseline = "alphabetic";
    pen.fillStyle = this.colours.ink;
    pen.font = "600 13px system-ui, sans-serif";
    const models = [...new Set(line.t.filter(Boolean))].map(short).join(", ") || (line.r ? "whole devices" : "no cards");
    if (this.isNarrow) {
      pen.fillText(fitted(pen, line.n, this.width * 0.5), 8, y + 15);
      pen.font = "12px system-ui, sans-serif";
      pen.fillStyle = this.colours.faint;
      pen.fillText(fitted(pen, models, this.width * 0.45), this.width * 0.53, y + 15);
    } else {
      pen.fillText(fitted(pen, line.n, NAME_WIDTH - 18), 12, y + 23);
      pen.font = "12px system-ui, sans-serif";
      pen.fillStyle = this.colours.faint;
      pen.fillText(fitted(pen, models, NAME_WIDTH - 18), 12, y + 41);
    }
    for (let card = 0; card < cellsOf(line); card += 1) this.paintCell(pen, row, card, y);
  }

  place(card, y) {
    const x = this.left + (card % this.perLine) * (this.cell + GAP);
    return [x, y + GAP + (this.isNarrow ? HEAD : 0) + Math.floor(card / this.perLine) * (CELL_HEIGHT + GAP)];
  }

  paintCell(pen, row, position, rowTop) {
    const card = readCell(this.lines[row], position);
    const [x, y] = this.place(position, rowTop);
    const width = this.cell;
    pen.globalAlpha = this.isHit(card) ? 1 : 0.25;
    if (card.isRaw) this.paintRaw(pen, card, x, y, width);
    else this.paintCard(pen, card, x, y, width);
    if (card.marks & PROBLEMS) {
      pen.strokeStyle = this.colours.alarm;
      pen.lineWidth = 2;
      pen.setLineDash(card.marks & 1 ? [4, 3] : []);
      pen.strokeRect(x - 2, y - 2, width + 4, CELL_HEIGHT + 3);
      pen.setLineDash([]);
    }
    if (card.marks) this.paintSigns(pen, card, x, y, width);
    pen.globalAlpha = 1;
    if (row === this.focus.row && position === this.focus.card && this.hasFocus()) {
      pen.strokeStyle = this.colours.focus;
      pen.lineWidth = 2;
      pen.strokeRect(x - 3, y - 3, width + 6, CELL_HEIGHT + 6);
    }
  }

  paintCard(pen, card, x, y, width) {
    this.paintText(pen, card, x, y);
    for (const [name, top, height] of [["memory", 16, 13], ["slots", 31, 6], ["cores", 39, 6]]) {
      const [inits, sidecars, claimed] = [card.inits[name], card.sidecars[name], card.claimed[name]];
      const parts = [
        [this.fills.apps, card.requested[name] - inits - sidecars - claimed],
        [this.fills.sidecars, sidecars],
        [this.fills.inits, inits],
        [this.fills.claims, claimed],
      ];
      const reserved = name === "memory" ? card.reserved : 0;
      this.paintBar(pen, x, y + top, width, height, card.capacity[name], card.requested[name], parts, reserved);
    }
  }

  paintRaw(pen, cell, x, y, width) {
    const signs = MARKS.filter(([bit]) => cell.marks & bit).length;
    pen.font = "600 11px system-ui, sans-serif";
    pen.fillStyle = cell.used ? this.colours.ink : this.colours.faint;
    const held = `${cell.used} / ${cell.allocatable}`;
    pen.fillText(held, x, y + 11);
    const left = pen.measureText(held).width + 5;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = this.colours.faint;
    const room = width - left - 16 * signs;
    if (room > 24) pen.fillText(fitted(pen, cell.model, room), x + left, y + 11);
    const parts = [[this.fills.apps, cell.pods], [this.fills.vmis, cell.vmis], [this.fills.holds, cell.holds]];
    this.paintBar(pen, x, y + 16, width, 29, cell.allocatable, cell.used, parts, 0);
    const whole = Math.max(cell.allocatable, cell.used, 1);
    if (width / whole < 6) return;
    pen.fillStyle = this.colours.paper;
    for (let unit = 1; unit < whole; unit += 1) pen.fillRect(x + (unit * width) / whole - 0.5, y + 16, 1, 29);
  }

  paintBar(pen, x, y, width, height, capacity, requested, parts, reserved) {
    const whole = Math.max(capacity + reserved, requested, 1);
    const scale = width / whole;
    pen.fillStyle = this.colours.free;
    pen.fillRect(x, y, width, height);
    let at = x;
    const part = (fill, amount) => {
      if (amount <= 0) return;
      const length = Math.max(1, amount * scale);
      pen.fillStyle = fill;
      pen.fillRect(at, y, length, height);
      at += length;
    };
    for (const [fill, amount] of parts) part(fill, amount);
    if (reserved) {
      at = x + capacity * scale;
      part(this.fills.reserved, reserved);
    }
    if (requested > capacity && capacity > 0) {
      pen.fillStyle = this.colours.alarm;
      pen.fillRect(x + capacity * scale - 1, y - 1, 2, height + 2);
    }
  }

  paintText(pen, card, x, y) {
    pen.font = "600 11px system-ui, sans-serif";
    pen.fillStyle = card.requested.memory ? this.colours.ink : this.colours.faint;
    const signs = MARKS.filter(([bit]) => card.marks & bit).length;
    const exact = gib(card.requested.memory);
    const held = pen.measureText(exact).width > this.cell - 18 * signs ? gib(card.requested.memory, 0) : exact;
    pen.fillText(held, x, y + 11);
    const rest = ` / ${gib(card.capacity.memory)} GiB`;
    const left = pen.measureText(held).width;
    pen.font = "11px system-ui, sans-serif";
    if (left + pen.measureText(rest).width > this.cell - 16 * signs) return;
    pen.fillStyle = this.colours.faint;
    pen.fillText(rest, x + left, y + 11);
  }

  paintSigns(pen, card, x, y, width) {
    const signs = MARKS.filter(([bit]) => card.marks & bit);
    pen.font = "700 11px system-ui, sans-serif";
    pen.textAlign = "center";
    signs.forEach(([bit, , sign], place) => {
      const left = x + width - 15 * (place + 1);
      pen.fillStyle = bit === EXCLUSIVE || bit === 16 ? this.colours.ink : this.colours.alarm;
      pen.fillRect(left, y, 14, 14);
      pen.fillStyle = this.colours.paper;
      pen.fillText(sign, left + 7, y + 11.5);
    });
    pen.textAlign = "start";
  }

  hasFocus() {
    return document.activeElement === this.scroller || this.isOpen;
  }

  at(event) {
    const box = this.scroller.getBoundingClientRect();
    const top = this.scroller.scrollTop + event.clientY - box.top;
    const row = this.rowAt(top);
    const line = this.lines[row];
    if (!line) return null;
    for (let card = 0; card < cellsOf(line); card += 1) {
      const [x, y] = this.place(card, this.tops[row]);
      const left = event.clientX - box.left;
      if (left >= x && left <= x + this.cell && top >= y && top <= y + CELL_HEIGHT) return { row, card };
    }
    return null;
  }

  onClick(event) {
    const hit = this.at(event);
    if (!hit) return;
    this.focus = hit;
    this.wasMoved = true;
    this.open();
  }

  open() {
    const line = this.lines[this.focus.row];
    if (!line || !cellsOf(line)) return;
    this.isOpen = true;
    this.draw();
    this.onOpen(readCell(line, this.focus.card));
  }

  onKey(event) {
    const page = Math.max(1, this.rowAt(this.scroller.scrollTop + this.height) - this.rowAt(this.scroller.scrollTop) - 1);
    const moves = {
      ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0],
      PageUp: [-page, 0], Home: [-this.lines.length, 0], End: [this.lines.length, 0],
    };
    if (event.key === "Enter" || event.key === " ") this.open();
    else if (moves[event.key]) this.move(...moves[event.key]);
    else return;
    event.preventDefault();
  }

  move(rows, cards) {
    this.wasMoved = true;
    const row = clamp(this.focus.row + rows, this.lines.length - 1);
    const card = clamp(this.focus.card + cards, ((this.lines[row] && cellsOf(this.lines[row])) || 1) - 1);
    this.focus = { row, card };
    const top = this.tops[row];
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    const bottom = this.tops[row + 1];
    if (bottom > this.scroller.scrollTop + this.height) this.scroller.scrollTop = bottom - this.height;
    this.say();
    this.draw();
  }

  say() {
    const line = this.lines[this.focus.row];
    if (!line) return;
    const text = this.focus.card < cellsOf(line) ? describe(readCell(line, this.focus.card)) : `${line.n}, no cards`;
    if (this.status.textContent !== text) this.status.textContent = text;
    this.draw();
  }
}

const clamp = (value, most) => Math.max(0, Math.min(value, most));
const short = (model) => model.replace(/^NVIDIA[- ]/, "");

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let shown = text;
  while (shown && pen.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}

function pattern(context, ground, draw) {
  const tile = document.createElement("canvas");
  tile.width = 8;
  tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, 8, 8);
  draw(pen);
  return context.createPattern(tile, "repeat");
}

function dots(pen, colour) {
  pen.fillStyle = colour;
  pen.fillRect(1, 1, 2, 2);
  pen.fillRect(5, 5, 2, 2);
}

function stripes(pen, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift - 1, 9);
    pen.lineTo(shift + 9, -1);
  }
  pen.stroke();
}

function level(pen, colour) {
  pen.fillStyle = colour;
  pen.fillRect(0, 1, 8, 1);
  pen.fillRect(0, 5, 8, 1);
}

function upright(pen, colour) {
  pen.fillStyle = colour;
  pen.fillRect(1, 0, 1, 8);
  pen.fillRect(5, 0, 1, 8);
}

function checks(pen, colour) {
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 4, 4);
  pen.fillRect(4, 4, 4, 4);
}

function crosses(pen, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(0, 0);
  pen.lineTo(8, 8);
  pen.moveTo(8, 0);
  pen.lineTo(0, 8);
  pen.stroke();
}
