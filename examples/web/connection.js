// The page's connection to the gateway: STOMP over WebSocket by stompjs, which connects again by itself.
//
// `told` is called with (state, reason, until) each time that something is to be shown:
//
//   connecting, connected
//   reconnecting   the connection is gone or cannot be had
//   refused        the gateway said why in an ERROR frame; `until` (ms of the clock) is when the page
//                  tries again, as the header `retry-after` asks where it is there

const { Client, ReconnectionTimeMode, TickerStrategy } = globalThis.StompJs;

const FIRST_DELAY = 500;
const LAST_DELAY = 15_000;
const ORDERS = '/queue/orders';
const TOTALS = '/topic/totals';
/** Bytes of totals that may be on their way to this page and not acknowledged. */
const WINDOW = '65536';
/** What is wrong with the message itself, and will be wrong the next time as well. */
const LASTING = /^(bad-.*|too-large|not-found|not-authorized|not-implemented|routing-mismatch|conversion)$/;

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

export class Connection {
  #client;
  #told;
  #holdUntil = 0;
  #refusals = 0;
  #reason = '';
  #attempt = 0;

  /**
   * @param on what to call: told(state, reason, until), ready(), gone(), total(body), saved(id),
   *   refused(id, reason), which returns whether the id was an order of this page.
   * @param durable a name under which the gateway keeps totals while the page is away, or null.
   */
  constructor(on, durable) {
    this.on = on;
    this.durable = durable;
    this.#told = on.told;
    this.#client = new Client({
      beforeConnect: () => this.#beforeConnect(),
      connectionTimeout: 10_000,
      reconnectDelay: FIRST_DELAY,
      reconnectTimeMode: ReconnectionTimeMode.EXPONENTIAL,
      maxReconnectDelay: LAST_DELAY,
      heartbeatIncoming: 10_000,
      heartbeatOutgoing: 20_000,
      // A worker's clock goes on when the tab is in the background, where a page's own hardly does.
      heartbeatStrategy: TickerStrategy.Worker,
      // A connection that is dead is let go at once, without waiting for its close handshake.
      discardWebsocketOnCommFailure: true,
      onConnect: () => this.#connected(),
      onStompError: (frame) => this.#refused(frame.headers),
      onWebSocketClose: (event) => this.#closed(event),
    });
  }

  start() {
    this.#told('connecting', 'The page asks for a login, then connects to the gateway.');
    this.#client.activate();
  }

  get connected() {
    return this.#client.connected;
  }

  /** Send an order; the gateway answers the receipt when it is on disk. */
  send({ id, product, quantity, region }) {
    this.#client.watchForReceipt(id, () => {
      this.#refusals = 0;
      this.on.saved(id);
    });
    this.#client.publish({
      destination: ORDERS,
      body: JSON.stringify({ id, product, quantity, region }),
      headers: {
        receipt: id,
        _AMQ_DUPL_ID: id, // known already: confirmed, and not stored again
        persistent: 'true',
        'content-type': 'application/json',
        region, // for consumers with a selector: region = 'north'
      },
    });
  }

  /** Ask for a login, each time anew: no password stands in the page, and an old one may have ended. */
  async #beforeConnect() {
    for (let failures = 0; ; failures += 1) {
      const wait = this.#holdUntil - Date.now();
      if (wait > 0) await pause(wait);
      this.#attempt += 1;
      this.#reason = '';
      try {
        const answer = await fetch('login', { method: 'POST', signal: AbortSignal.timeout(5000) });
        if (!answer.ok) throw new Error(`the login was refused with ${answer.status}`);
        const { url, login, passcode } = await answer.json();
        if (![undefined, url].includes(this.#client.brokerURL)) {
          // Another gateway than the one that this page was served for, and may connect to.
          location.reload();
          await new Promise(() => {});
        }
        this.#client.brokerURL = url;
        this.#client.connectHeaders = { login, passcode };
        if (this.durable) this.#client.connectHeaders['client-id'] = this.durable;
        return;
      } catch (error) {
        const text = error.name === 'Error' ? error.message : 'the page server does not answer';
        this.#told('reconnecting', `Attempt ${this.#attempt}: ${text}.`);
        await pause(Math.min(FIRST_DELAY * 2 ** failures, LAST_DELAY));
      }
    }
  }

  #connected() {
    this.#attempt = 0;
    this.#reason = '';
    const headers = { ack: 'client-individual', 'consumer-window-size': WINDOW };
    if (this.durable) headers['durable-subscription-name'] = 'totals';
    this.#client.subscribe(TOTALS, (message) => {
      this.on.total(JSON.parse(message.body));
      message.ack(); // now the gateway may send more: a page that is slow is sent less
    }, headers);
    this.#told('connected', 'An order is saved once the gateway has it on disk.');
    this.on.ready();
  }

  /** An ERROR frame: the gateway says what it refuses, and ends the connection. */
  #refused(headers) {
    const code = headers['error-code'] ?? 'error';
    const text = `${headers.message ?? 'no reason given'} (${code})`;
    const after = Number(headers['retry-after']);
    const order = headers['receipt-id'];
    if (!(after >= 0) && order && LASTING.test(code) && this.on.refused(order, text)) {
      this.#reason = text;
      return;
    }
    // Connecting works, what comes then does not: stompjs' own delays would begin anew each time.
    const seconds = after >= 0 ? after : Math.min(2 ** this.#refusals, 30);
    this.#refusals += 1;
    this.#holdUntil = Date.now() + 1000 * seconds;
    this.#reason = text;
  }

  #closed(event) {
    this.on.gone();
    if (this.#holdUntil > Date.now()) {
      this.#told('refused', this.#reason, this.#holdUntil);
      return;
    }
    const why = this.#reason || (event.code === 1006 ? 'the gateway cannot be reached'
      : `the connection was closed with ${event.code} ${event.reason}`.trim());
    this.#told('reconnecting', `Attempt ${this.#attempt + 1}: ${why}.`);
  }
}
