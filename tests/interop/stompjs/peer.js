// stompjs as a client of the gateway: `echo '{"port": ...}' | node peer.js SCENARIO`, over TCP, with
// "websocket": {...} over WebSocket, and with "certificate": PATH over TLS in either case, trusting
// that certificate alone. "websocket" has: "path"; "builtin": Node's own WebSocket instead of the
// one of `ws`; "bare": offer no subprotocol; "binary", "split": what stompjs has for frames; "cut":
// a text that comes is cut at its first zero byte, as by React Native, and stompjs is told so.
// Each scenario prints one JSON object with what it saw; a scenario that hangs or is refused where
// it should not be prints why on standard error and ends with status 1.
'use strict';

const fs = require('fs');
const net = require('net');
const tls = require('tls');
const { Client, Versions } = require('@stomp/stompjs');
const { WebSocket: WsSocket } = require('ws');

const scenario = process.argv[2];
const given = JSON.parse(fs.readFileSync(0, 'utf8'));

function fail(why) {
    process.stderr.write(`${scenario}: ${why}\n`);
    process.exit(1);
}

setTimeout(() => fail('not over at the deadline'), 20000).unref();

// What stompjs takes for a WebSocket: a stream socket.
class StreamSocket {
    constructor() {
        this.readyState = 0; // connecting
        const where = { host: '127.0.0.1', port: given.port, noDelay: true };
        if (given.certificate) {
            const ca = [fs.readFileSync(given.certificate)];
            this.socket = tls.connect({ ...where, servername: 'localhost', ca });
        } else {
            this.socket = net.connect(where);
        }
        this.socket.on(given.certificate ? 'secureConnect' : 'connect', () => {
            this.readyState = 1;
            this.onopen();
        });
        this.socket.on('data', (data) => {
            const end = data.byteOffset + data.length;
            this.onmessage({ data: data.buffer.slice(data.byteOffset, end) });
        });
        this.socket.on('error', (error) => this.onerror(error));
        this.socket.on('close', (failed) => {
            this.readyState = 3;
            this.onclose({ code: failed ? 1006 : 1000, reason: '', wasClean: !failed });
        });
    }

    send(data) {
        this.socket.write(typeof data === 'string' ? data : Buffer.from(data));
    }

    close() {
        this.readyState = 2;
        this.socket.end();
    }
}

// The WebSocket of `ws`, with the one certificate to trust; it is global where Node has none itself,
// or not this one, as the manual of stompjs says.
class TrustingSocket extends WsSocket {
    constructor(url, protocols) {
        const ca = given.certificate ? [fs.readFileSync(given.certificate)] : undefined;
        super(url, protocols, { ca });
    }
}

// As that of React Native.
class CuttingSocket extends TrustingSocket {
    set onmessage(hear) {
        super.onmessage = ({ data }) => {
            hear({ data: typeof data === 'string' ? data.split('\0')[0] : data });
        };
    }
}

if (given.websocket && !given.websocket.builtin) {
    global.WebSocket = given.websocket.cut ? CuttingSocket : TrustingSocket;
}

// What stompjs is told of the way to the gateway.
function transport() {
    const { websocket } = given;
    if (!websocket) return { webSocketFactory: () => new StreamSocket(), forceBinaryWSFrames: true };
    const scheme = given.certificate ? 'wss' : 'ws';
    const url = `${scheme}://127.0.0.1:${given.port}${websocket.path || '/ws'}`;
    const frames = {
        forceBinaryWSFrames: Boolean(websocket.binary),
        splitLargeFrames: Boolean(websocket.split),
        appendMissingNULLonIncoming: Boolean(websocket.cut),
    };
    if (websocket.bare) return { webSocketFactory: () => new WebSocket(url), ...frames };
    return { brokerURL: url, ...frames };
}

// Connect; what nobody expects ends the process.
function connected(more) {
    return new Promise((resolve) => {
        const client = new Client({
            ...transport(),
            stompVersions: new Versions([given.version]),
            reconnectDelay: 0,
            heartbeatIncoming: given.beat || 0,
            heartbeatOutgoing: given.beat || 0,
            connectHeaders: given.login || {},
            onConnect: () => resolve(client),
            onStompError: (frame) => fail(`ERROR ${frame.headers.message}`),
            onUnhandledMessage: (frame) => {
                if (!left.has(frame.headers.subscription)) fail(`unhandled ${frame}`);
            },
            onUnhandledReceipt: (frame) => fail(`unhandled ${frame}`),
            onUnhandledFrame: (frame) => fail(`unhandled ${frame}`),
            ...more,
        });
        client.activate();
    });
}

// Subscriptions that were given up: what was on its way to them may still come.
const left = new Set();
let receipts = 0;

// Do what `act` does with headers that ask for a receipt, and wait for that.
function confirmed(client, act) {
    const receipt = `r${receipts += 1}`;
    return new Promise((resolve) => {
        client.watchForReceipt(receipt, resolve);
        act({ receipt });
    });
}

function send(client, bodies, headers) {
    return Promise.all(bodies.map((body) => confirmed(client, (receipt) => client.publish({
        destination: given.address, body, headers: { ...headers, ...receipt },
    }))));
}

// Subscribe; the object gives messages one after the other, as promises.
function subscribe(client, ack, headers) {
    const came = [];
    const wanted = [];
    const subscription = client.subscribe(given.address, (message) => {
        if (wanted.length) wanted.shift()(message);
        else came.push(message);
    }, { ack: ack || 'client-individual', ...headers });
    return {
        subscription,
        count: () => came.length,
        next: () => (came.length
            ? Promise.resolve(came.shift()) : new Promise((resolve) => wanted.push(resolve))),
        async take(count) {
            const messages = [];
            while (messages.length < count) messages.push(await this.next());
            return messages;
        },
    };
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const scenarios = {
    async pipeline(client) {
        const numbers = [...Array(given.count).keys()];
        const reader = await connected();
        const source = subscribe(reader);
        await send(client, numbers.map(String));
        const seen = [];
        while (seen.length < given.count) {
            const message = await source.next();
            seen.push(Number(message.body));
            message.ack();
        }
        await reader.deactivate();
        return { numbers: seen };
    },

    // Half of a stream; then the rest by another subscription, behind the last offset that came.
    async replay(client) {
        await send(client, given.bodies, { persistent: 'true' });
        const seen = [];
        let from = 'first';
        for (const count of given.counts) {
            const source = subscribe(client, given.ack, { 'x-stream-offset': from });
            for (let taken = 0; taken < count; taken += 1) {
                const message = await source.next();
                if (given.ack !== 'auto') message.ack();
                const offset = Number(message.headers['x-stream-offset']);
                seen.push([offset, message.body]);
                from = `offset=${offset + 1}`;
            }
            left.add(source.subscription.id);
            source.subscription.unsubscribe();
        }
        return { seen };
    },

    async queued(client) {
        await send(client, given.bodies);
        const source = subscribe(client);
        const messages = await source.take(given.bodies.length);
        await wait(200);
        await confirmed(client, (receipt) => messages[given.acked].ack(receipt));
        return { bodies: messages.map((one) => one.body), more: source.count() };
    },

    async bytes(client) {
        const sent = given.bodies.map((body) => new Uint8Array(Buffer.from(body, 'base64')));
        for (const binaryBody of sent) {
            await confirmed(client, (headers) => client.publish({
                destination: given.address, binaryBody, headers,
            }));
        }
        const messages = await subscribe(client, 'auto').take(sent.length);
        return {
            bodies: messages.map((one) => Buffer.from(one.binaryBody).toString('base64')),
        };
    },

    // One by the stream socket, one by WebSocket: each gets what the other has sent.
    async crossing(client) {
        const way = given.websocket;
        given.websocket = null;
        const other = await connected();
        given.websocket = way;
        const seen = {};
        for (const [name, from, to] of [['in', client, other], ['out', other, client]]) {
            const source = subscribe(to);
            await send(from, given.bodies);
            seen[name] = [];
            while (seen[name].length < given.bodies.length) {
                const message = await source.next(); // what is larger than the window comes alone
                await confirmed(to, (receipt) => message.ack(receipt));
                seen[name].push(message.body);
            }
            source.subscription.unsubscribe();
        }
        await other.deactivate();
        return seen;
    },

    async headers(client) {
        await send(client, ['x'], given.headers);
        const [message] = await subscribe(client, 'auto').take(1);
        return { headers: message.headers, body: message.body };
    },

    async nack(client) {
        await send(client, ['x']);
        const source = subscribe(client);
        const first = await source.next();
        first.nack();
        const second = await source.next();
        await confirmed(client, (receipt) => second.ack(receipt));
        return { redelivered: [first, second].map((one) => one.headers.redelivered) };
    },

    async transaction(client) {
        const seen = {};
        for (const end of ['abort', 'commit']) {
            const transaction = client.begin(`sends-${end}`);
            await send(client, given.bodies, { transaction: transaction.id });
            transaction[end]();
        }
        const source = subscribe(client);
        let messages = await source.take(given.bodies.length);
        seen.bodies = messages.map((one) => one.body);
        const undone = client.begin('acks-abort');
        messages.forEach((one) => one.ack({ transaction: undone.id }));
        undone.abort();
        messages = await source.take(given.bodies.length);
        seen.again = messages.map((one) => one.body);
        const done = client.begin('acks-commit');
        await Promise.all(messages.map((one) => confirmed(
            client, (receipt) => one.ack({ transaction: done.id, ...receipt }),
        )));
        done.commit();
        await send(client, ['last']);
        seen.last = (await source.next()).body;
        return seen;
    },

    async beats(client) {
        let beats = 0;
        const other = await connected({ debug: (text) => { beats += text === '<<< PONG' ? 1 : 0; } });
        await wait(given.beat * 5);
        await send(other, ['still here']);
        await other.deactivate();
        return { beats };
    },
};

async function refused() {
    const frame = await new Promise((resolve) => connected({ onStompError: resolve }));
    return { message: frame.headers.message, body: frame.body };
}

async function main() {
    if (scenario === 'refused') {
        process.stdout.write(JSON.stringify(await refused()));
        process.exit(0);
    }
    const client = await connected();
    const seen = await scenarios[scenario](client);
    seen.version = client.connectedVersion;
    // A client that goes waits for the receipt of its DISCONNECT.
    await client.deactivate();
    process.stdout.write(JSON.stringify(seen));
}

main().catch((error) => fail(error.stack));
