// What a page does with the gateway, called by name: `page.stomp({url: ...})`, then `page.seen()`.
// A page has one client, of STOMP or of AMQP. It sends again what was not confirmed, as an
// application has to, and connects again by what its library has for that.
'use strict';

(() => {
    const { Client, Versions } = window.StompJs;
    const rhea = window.rheaUmd;

    const seen = {
        connects: 0, version: null, confirmed: [], messages: [], errors: [], closes: [],
        beats: { sent: 0, came: 0 }, ticks: [],
    };
    const unconfirmed = new Map(); // receipt or number -> what is to be sent, in order
    let client = null;
    let resend = () => {};
    let confirmed = () => {};

    function confirm(receipt) {
        if (!unconfirmed.delete(receipt)) return;
        seen.confirmed.push(receipt);
        confirmed();
    }

    // ---- STOMP

    function stomp(given) {
        client = new Client({
            brokerURL: given.url,
            stompVersions: new Versions([given.version || '1.2']),
            connectHeaders: given.login || {},
            reconnectDelay: given.reconnectDelay === undefined ? 200 : given.reconnectDelay,
            heartbeatIncoming: given.beat || 0,
            heartbeatOutgoing: given.beat || 0,
            forceBinaryWSFrames: Boolean(given.binary),
            debug: (text) => {
                if (text === '>>> PING') seen.beats.sent += 1;
                if (text === '<<< PONG') seen.beats.came += 1;
            },
            onConnect: () => {
                seen.connects += 1;
                seen.version = client.connectedVersion;
                if (given.source) listen(given.source, given.ack);
                resend();
            },
            onStompError: ({ headers, body }) => seen.errors.push({ headers, body }),
            onWebSocketClose: ({ code, reason, wasClean }) => {
                seen.closes.push({ code, reason, wasClean });
            },
            onUnhandledReceipt: (frame) => confirm(frame.headers['receipt-id']),
        });
        resend = () => unconfirmed.forEach((frame) => client.publish(frame));
        client.activate();
    }

    function listen(destination, ack) {
        client.subscribe(destination, (message) => {
            const { redelivered, 'content-type': type } = message.headers;
            seen.messages.push({ body: message.body, redelivered, type });
            if (!ack) message.ack();
        }, { ack: ack === 'auto' ? ack : 'client-individual' });
    }

    function subscribe(given) {
        listen(given.destination);
    }

    // Send each body; its receipt is `prefix` and its place, and it counts once that has come.
    function send(given) {
        given.bodies.forEach((body, place) => {
            const receipt = `${given.prefix || 'r'}${place}`;
            const headers = { persistent: 'true', ...given.headers, receipt };
            unconfirmed.set(receipt, { destination: given.destination, body, headers });
            if (client.connected) client.publish(unconfirmed.get(receipt));
        });
    }

    function login(headers) {
        client.connectHeaders = headers;
    }

    // Count what comes: bodies that begin with 0, 1, 2 and so on; nothing else of them is kept.
    function count(given) {
        seen.count = 0;
        client.subscribe(given.destination, (message) => {
            if (parseInt(message.body, 10) === seen.count) seen.count += 1;
            else seen.errors.push(`${message.body.slice(0, 20)} came for ${seen.count}`);
        }, { ack: 'auto', 'consumer-window-size': '-1' });
    }

    // ---- AMQP

    function amqp(given) {
        const container = rhea.create_container({ id: given.id });
        const where = rhea.websocket_connect(WebSocket)(given.url, given.protocols);
        const connection = container.connect({
            connection_details: where,
            initial_reconnect_delay: 200,
            max_reconnect_delay: 400,
            ...given.login,
        });
        client = { close: () => connection.close() };
        container.on('connection_open', () => { seen.connects += 1; });
        container.on('disconnected', () => seen.closes.push({}));
        container.on('connection_error', ({ connection }) => {
            const { condition, description, message } = connection.get_error();
            seen.errors.push({ condition, description, message });
        });
        const sender = connection.open_sender(given.address);
        const under = new Map(); // delivery id -> key, of this connection
        const sent = new Set(); // those keys
        function flush() {
            for (const [key, body] of unconfirmed) {
                if (sent.has(key)) continue;
                if (!sender.sendable()) return;
                under.set(sender.send({ durable: true, body }).id, key);
                sent.add(key);
            }
        }
        resend = flush;
        sender.on('sender_open', () => [under, sent].forEach((one) => one.clear()));
        sender.on('sendable', flush);
        sender.on('accepted', ({ delivery }) => confirm(under.get(delivery.id)));
        if (given.source) {
            connection.open_receiver(given.source).on('message', ({ message }) => {
                const { body } = message; // of STOMP it is a data section
                const bytes = body !== null && body.typecode === 0x75;
                seen.messages.push({ body: bytes ? body.content.toString() : body });
            });
        }
    }

    function offer(given) {
        given.bodies.forEach((body, place) => unconfirmed.set(`r${place}`, body));
        resend();
    }

    // ---- both

    // Have so many on their way at any time, `1`, `2` and so on, until `enough`.
    function pump(given) {
        let number = 0;
        confirmed = () => {
            const body = String(number += 1);
            if (given.destination) send({ ...given, prefix: body, bodies: [body] });
            else unconfirmed.set(body, body);
            if (!given.destination) resend();
        };
        for (let one = 0; one < given.count; one++) confirmed();
    }

    function enough() {
        confirmed = () => {};
    }

    // Count how often a timer of a second really comes.
    function tick() {
        setInterval(() => seen.ticks.push(Math.round(performance.now())), 1000);
    }

    // Have nothing else of this page run for so long.
    function block(given) {
        const end = performance.now() + given.ms;
        while (performance.now() < end);
    }

    // Whether a frame without an origin may connect.
    function sandboxed(given) {
        const frame = document.createElement('iframe');
        frame.sandbox = 'allow-scripts';
        frame.srcdoc = `<script>
            const socket = new WebSocket(${JSON.stringify(given.url)});
            socket.onopen = () => parent.postMessage([origin, true], '*');
            socket.onclose = () => parent.postMessage([origin, false], '*');
        </script>`;
        return new Promise((resolve) => {
            window.addEventListener('message', ({ data }) => resolve(data), { once: true });
            document.body.append(frame);
        });
    }

    window.page = {
        stomp,
        send,
        subscribe,
        login,
        amqp,
        offer,
        pump,
        enough,
        tick,
        count,
        block,
        sandboxed,
        seen: () => ({
            ...seen,
            unconfirmed: unconfirmed.size,
            visible: document.visibilityState,
            now: performance.now(),
        }),
        leave: () => (client.deactivate ? client.deactivate() : client.close()),
    };
})();
