// The orders that this page has placed, and how far each is.
//
//   waiting   there is no connection; it goes out with the next one
//   sent      its receipt has not come
//   saved     its receipt came: the gateway has it on disk
//   refused   the gateway will not have it; somebody must look
//
// What is not saved is kept in the browser, one entry for each order, so that two tabs never write over
// each other's. An order keeps its id for ever. Sent again under the same id it is stored once, even when
// the first one had arrived and only its receipt was lost, or when two tabs send it.

const PREFIX = 'order-board/';
/** Saved orders that stay in the list. */
const SHOWN_MAX = 500;

export class Outbox {
  #orders = new Map();

  constructor(storage, changed) {
    this.storage = storage;
    this.changed = changed;
    this.saved = 0;
    const keys = Array.from({ length: storage.length }, (_, place) => storage.key(place));
    for (const key of keys.filter((one) => one?.startsWith(PREFIX))) {
      const kept = JSON.parse(storage.getItem(key));
      this.#orders.set(kept.id, { ...kept, state: 'waiting' });
    }
  }

  /** Keep a new order; it is safe from a reload of the page when this returns. */
  place(product, quantity, region) {
    const entry = { id: crypto.randomUUID(), product, quantity, region, placed: Date.now() };
    this.storage.setItem(PREFIX + entry.id, JSON.stringify(entry));
    this.#orders.set(entry.id, { ...entry, state: 'waiting' });
    this.changed();
    return this.#orders.get(entry.id);
  }

  all() {
    return [...this.#orders.values()];
  }

  in(state) {
    return this.all().filter((entry) => entry.state === state);
  }

  has(id) {
    return this.#orders.has(id);
  }

  sent(id) {
    Object.assign(this.#orders.get(id), { state: 'sent', sentAt: Date.now() });
    this.changed();
  }

  confirmed(id) {
    const entry = this.#orders.get(id);
    if (!entry || entry.state === 'saved') return;
    Object.assign(entry, { state: 'saved', took: Date.now() - entry.sentAt });
    this.storage.removeItem(PREFIX + id);
    this.saved += 1;
    const shown = this.in('saved');
    if (shown.length > SHOWN_MAX) this.#orders.delete(shown[0].id);
    this.changed();
  }

  refuse(id, reason) {
    Object.assign(this.#orders.get(id), { state: 'refused', reason });
    this.changed();
  }

  /** The connection is gone: what has no receipt is to be sent again. */
  disconnected() {
    for (const entry of this.in('sent')) entry.state = 'waiting';
    this.changed();
  }

  retryRefused() {
    for (const entry of this.in('refused')) entry.state = 'waiting';
    this.changed();
  }

  /** Milliseconds that the oldest order has waited for its receipt; 0 when none does. */
  oldestUnconfirmed(now) {
    return Math.max(0, ...this.in('sent').map((entry) => now - entry.sentAt));
  }
}
