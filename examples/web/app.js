// The order board. It places orders by STOMP over WebSocket, and shows the totals that Spark sends back.
//
// `outbox.js` keeps the orders, `connection.js` talks to the gateway, `chart.js` draws. This file joins
// them to the page.

import { Chart } from './chart.js';
import { Connection } from './connection.js';
import { Outbox } from './outbox.js';

/** An order without its receipt for so long: the gateway is holding senders back. */
const HELD_MS = 3000;

const catalogue = await (await fetch('catalogue.json')).json();
const names = catalogue.products.map((product) => product.name);
const cents = new Map(catalogue.products.map((product) => [product.name, product.cents]));
const by = (id) => document.getElementById(id);
const money = (amount) => (amount / 100).toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const count = (number) => number.toLocaleString('en');

// ---- Placing orders

const outbox = new Outbox(localStorage, () => showSoon());

function place(product, quantity, region) {
  outbox.place(product, quantity, region);
  sendWaiting();
}

/** Send what is waiting, the oldest first; without a connection it waits on. */
function sendWaiting() {
  for (const entry of outbox.in('waiting')) {
    if (!connection.connected) return;
    outbox.sent(entry.id);
    connection.send(entry);
  }
}

by('product').append(...names.map((name) => new Option(`${name}, ${money(cents.get(name))}`, name)));
by('region').append(...catalogue.regions.map((name) => new Option(name, name)));
by('quantity').max = catalogue.quantityMax;

function showSum() {
  const quantity = by('quantity').valueAsNumber;
  by('sum').textContent = money(quantity > 0 ? quantity * cents.get(by('product').value) : 0);
}

by('form').addEventListener('input', showSum);
by('form').addEventListener('submit', (event) => {
  event.preventDefault();
  place(by('product').value, by('quantity').valueAsNumber, by('region').value);
});
by('many').addEventListener('click', () => {
  const any = (list) => list[Math.floor(Math.random() * list.length)];
  for (let left = 20; left > 0; left -= 1) {
    place(any(names), 1 + Math.floor(Math.random() * 9), any(catalogue.regions));
  }
});
by('again').addEventListener('click', () => {
  outbox.retryRefused();
  sendWaiting();
});
showSum();

// ---- The connection and its banner

const TITLES = {
  connecting: 'Connecting', connected: 'Connected', held: 'Held back', reconnecting: 'Reconnecting', refused: 'Refused',
};
let told = { state: 'connecting', reason: '', until: 0 };

const connection = new Connection({
  told(state, reason, until = 0) {
    told = { state, reason, until };
    showBanner();
  },
  ready: sendWaiting,
  gone: () => outbox.disconnected(),
  total: take,
  saved: (id) => outbox.confirmed(id),
  refused(id, reason) {
    if (outbox.has(id)) outbox.refuse(id, reason);
    return outbox.has(id);
  },
}, new URLSearchParams(location.search).get('durable'));

function showBanner() {
  const open = outbox.in('waiting').length + outbox.in('sent').length;
  let { state, reason } = told;
  if (state === 'connected' && outbox.oldestUnconfirmed(Date.now()) > HELD_MS) {
    state = 'held';
    reason = 'The gateway holds senders back, as it does while an address is full. Nothing is lost.';
  }
  const orders = open === 1 ? 'One order' : `${count(open)} orders`;
  const waits = state === 'held' ? `${open === 1 ? 'waits' : 'wait'} for a receipt` : `${open === 1 ? 'is' : 'are'} kept and will be sent`;
  by('banner').dataset.state = state;
  set('state', TITLES[state]);
  set('kept', state === 'connected' || open === 0 ? '' : `${orders} ${waits}`);
  set('reason', reason);
  const left = Math.ceil((told.until - Date.now()) / 1000);
  set('countdown', state === 'refused' && left > 0 ? `again in ${left} s` : '');
}

// ---- Orders of this page

const LABELS = { waiting: 'waiting', sent: 'sent', saved: 'saved', refused: 'refused' };
const rows = new Map();
let asked = false;

/** Show the orders with the browser's next picture. */
function showSoon() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    showOrders();
    showBanner();
  });
}

function showOrders() {
  const entries = outbox.all();
  const known = new Set(entries.map((entry) => entry.id));
  for (const [id, row] of rows) {
    if (!known.has(id)) {
      row.remove();
      rows.delete(id);
    }
  }
  for (const entry of entries) {
    if (!rows.has(entry.id)) {
      rows.set(entry.id, orderRow(entry));
      by('own').prepend(rows.get(entry.id));
    }
    const row = rows.get(entry.id);
    if (row.dataset.state === entry.state) continue;
    row.dataset.state = entry.state;
    row.querySelector('.state').textContent = LABELS[entry.state];
    row.querySelector('.took').textContent = entry.state === 'saved' ? duration(entry.took) : '';
    row.title = entry.reason ?? '';
  }
  by('none').hidden = entries.length > 0;
  set('saved', count(outbox.saved));
  set('open', count(entries.length - outbox.in('saved').length));
  const refused = outbox.in('refused');
  by('refused').hidden = refused.length === 0;
  by('refused').querySelector('span').textContent = refused.length ? `${count(refused.length)} refused: ${refused[0].reason}` : '';
}

function duration(ms) {
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function orderRow({ id, product, quantity, region, placed }) {
  const row = document.createElement('li');
  row.dataset.id = id;
  const what = document.createElement('span');
  what.className = 'what';
  const swatch = document.createElement('i');
  swatch.className = `swatch ${product}`;
  what.append(swatch, ` ${quantity} × ${product}`);
  const where = document.createElement('span');
  where.className = 'where';
  where.textContent = `${region}, ${new Date(placed).toLocaleTimeString('en-GB')}`;
  const took = document.createElement('span');
  took.className = 'took';
  const state = document.createElement('span');
  state.className = 'state';
  row.append(what, where, took, state);
  return row;
}

// ---- Totals

const chart = new Chart(by('chart'), names, names.map((name) => `--${name}`), money);
let newest = { run: '', batch: -1, at: 0 };

/** Take in the totals of a batch; those of before come again after a reconnect, and are passed over. */
function take(totals) {
  if (totals.run !== newest.run) {
    chart.clear();
    newest = { run: totals.run, batch: -1, at: 0 };
  }
  if (totals.batch <= newest.batch) return;
  newest = totals;
  const sum = (key, rowsOf) => rowsOf.reduce((all, row) => all + row[key], 0);
  const products = names.map((name) => totals.totals.filter((row) => row.product === name));
  const amounts = products.map((of, place) => sum('pieces', of) * cents.get(names[place]));
  names.forEach((name, place) => {
    fill(`product-${name}`, [sum('orders', products[place]), sum('pieces', products[place])], money(amounts[place]));
  });
  const orders = sum('orders', totals.totals);
  for (const region of catalogue.regions) {
    const of = sum('orders', totals.totals.filter((row) => row.region === region));
    fill(`region-${region}`, [of]);
    by(`region-${region}`).querySelector('.share div').style.width = `${orders ? 100 * of / orders : 0}%`;
  }
  set('all-orders', count(orders));
  set('all-pieces', count(sum('pieces', totals.totals)));
  set('all-amount', money(amounts.reduce((all, one) => all + one, 0)));
  if (orders > 0) {
    by('empty').hidden = true;
    chart.add(totals.at / 1000, amounts.map((one) => one / 100));
  }
  showFreshness();
}

function fill(id, numbers, last) {
  const cells = by(id).querySelectorAll('td');
  numbers.forEach((number, place) => { cells[place].textContent = count(number); });
  if (last !== undefined) cells[numbers.length].textContent = last;
}

function showFreshness() {
  if (newest.batch < 0) return;
  const seconds = Math.max(0, Math.round((Date.now() - newest.at) / 1000));
  const ago = seconds < 2 ? 'just now' : seconds < 120 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`;
  set('freshness', `Batch ${count(newest.batch)}, ${ago}`);
}

function set(id, text) {
  // Written only when it changes: screen readers read out each writing.
  if (by(id).textContent !== text) by(id).textContent = text;
}

for (const name of names) {
  const row = by('by-product').insertRow();
  row.id = `product-${name}`;
  const head = document.createElement('th');
  head.scope = 'row';
  const swatch = document.createElement('i');
  swatch.className = `swatch ${name}`;
  head.append(swatch, ` ${name}`);
  row.append(head);
  ['0', '0', '0.00'].forEach((text) => { row.insertCell().textContent = text; });
}
for (const name of catalogue.regions) {
  const row = by('by-region').insertRow();
  row.id = `region-${name}`;
  const head = document.createElement('th');
  head.scope = 'row';
  head.textContent = name;
  row.append(head);
  row.insertCell().textContent = '0';
  const share = document.createElement('div');
  share.className = 'share';
  share.append(document.createElement('div'));
  row.insertCell().append(share);
}

setInterval(() => {
  showBanner();
  showFreshness();
  if (!document.hidden) chart.draw();
}, 1000);
showSoon();
connection.start();
