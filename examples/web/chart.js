// The chart: what each product came to, over time. uPlot draws it; colours come from the style sheet.

/** Seconds that are shown at least, so that the first points are not drawn over the whole width. */
const SPAN_MIN = 30;
/** Older totals leave the chart. */
const POINTS_MAX = 600;

export class Chart {
  #plot = null;
  #times = [];
  #values;
  #asked = false;

  constructor(host, names, colours, format) {
    this.host = host;
    this.names = names;
    this.colours = colours;
    this.format = format;
    this.#values = names.map(() => []);
    new ResizeObserver(() => this.#resize()).observe(host);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#rebuild());
  }

  get empty() {
    return this.#times.length === 0;
  }

  clear() {
    this.#times = [];
    this.#values = this.names.map(() => []);
    this.#rebuild();
  }

  /** Take in what each product came to at a time in seconds. */
  add(time, values) {
    // Another machine's clock: the chart goes forwards all the same.
    this.#times.push(Math.max(time, this.#times.at(-1) ?? 0));
    values.forEach((value, place) => this.#values[place].push(value));
    if (this.#times.length > POINTS_MAX) {
      this.#times.shift();
      this.#values.forEach((one) => one.shift());
    }
    this.draw();
  }

  /** Draw with the browser's next picture: once, however many totals came meanwhile. */
  draw() {
    if (this.#asked || this.empty) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      if (!this.#plot) this.#rebuild();
      else this.#plot.setData(this.#data());
    });
  }

  /** The points, and the last of them once more: a line goes on until now. */
  #data() {
    const now = Math.max(Date.now() / 1000, this.#times.at(-1));
    return [[...this.#times, now], ...this.#values.map((one) => [...one, one.at(-1)])];
  }

  #resize() {
    this.#plot?.setSize(this.#size());
  }

  /** The style sheet says how large. */
  #size() {
    return { width: this.host.clientWidth, height: this.host.clientHeight };
  }

  #rebuild() {
    this.#plot?.destroy();
    this.#plot = null;
    if (this.empty) return;
    const style = getComputedStyle(document.documentElement);
    const text = style.getPropertyValue('--quiet');
    const grid = { stroke: style.getPropertyValue('--line'), width: 1 };
    const axis = { stroke: text, grid, ticks: { ...grid, size: 4 }, font: '12px system-ui, sans-serif' };
    const stepped = globalThis.uPlot.paths.stepped({ align: 1 });
    this.#plot = new globalThis.uPlot({
      ...this.#size(),
      padding: [12, 24, 0, 0],
      legend: { show: false },
      cursor: { points: { size: 7 }, drag: { x: false, y: false } },
      hooks: { setCursor: [(plot) => this.#point(plot)] },
      scales: {
        x: { range: (_, least, most) => [Math.min(least, most - SPAN_MIN), most] },
        y: { range: (_, least, most) => [0, Math.max(10, most * 1.08)] },
      },
      axes: [
        { ...axis, size: 32, space: 80, values: (_, ticks) => ticks.map(clock) },
        { ...axis, size: 58, values: (_, ticks) => ticks.map((one) => one.toLocaleString('en')) },
      ],
      series: [{}, ...this.names.map((label, place) => ({
        label,
        stroke: style.getPropertyValue(this.colours[place]),
        width: 2,
        paths: stepped,
        points: { show: false },
      }))],
    }, this.#data(), this.host);
    this.tip = document.createElement('div');
    this.tip.className = 'tip';
    this.tip.hidden = true;
    this.#plot.over.append(this.tip);
  }

  /** Say what the lines are at, where the pointer is. */
  #point(plot) {
    if (!this.tip) return;
    const { idx, left } = plot.cursor;
    this.tip.hidden = idx == null || left < 0;
    if (this.tip.hidden) return;
    const rows = this.names.map((name, place) => {
      const row = document.createElement('div');
      const swatch = document.createElement('i');
      swatch.className = `swatch ${name}`;
      const amount = document.createElement('b');
      amount.textContent = this.format(Math.round(plot.data[place + 1][idx] * 100));
      row.append(swatch, ` ${name} `, amount);
      return row;
    });
    const time = document.createElement('div');
    time.textContent = clock(plot.data[0][idx]);
    this.tip.replaceChildren(time, ...rows);
    this.tip.classList.toggle('leftwards', left > plot.over.clientWidth / 2);
    this.tip.style.translate = `${left}px 0`;
  }
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString('en-GB');
}
