// stompjs with a user, over WebSocket: `echo '{"port", "version", "login", "row", "address"}' | node
// permissions.js` does what a row of tests/interop/permissions.py is about, over TLS with
// "certificate": PATH. It prints {"done": true}, or the code and text of the ERROR.
'use strict';

const fs = require('fs');
const { Client, Versions } = require('@stomp/stompjs');
const { WebSocket } = require('ws');

const given = JSON.parse(fs.readFileSync(0, 'utf8'));
const ca = given.certificate ? [fs.readFileSync(given.certificate)] : undefined;
const url = `${ca ? 'wss' : 'ws'}://127.0.0.1:${given.port}/stomp`;

setTimeout(() => {
    process.stderr.write('not over at the deadline\n');
    process.exit(1);
}, 20000).unref();

function end(seen) {
    process.stdout.write(JSON.stringify(seen), () => process.exit(0));
}

function subscribe(headers) {
    client.subscribe(given.address, () => {}, { ack: 'client', receipt: 'r', ...headers });
}

const rows = {
    send: () => client.publish({ destination: given.address, body: 'x', headers: { receipt: 'r' } }),
    consume: () => subscribe({}),
    browse: () => subscribe({ browser: 'true' }),
    subscribe: () => subscribe({}),
    'subscribe-durably': () => subscribe({ 'durable-subscription-name': 'mine' }),
    temporary: () => subscribe({}),
};
rows['make-queue'] = rows['make-address'] = rows.send;

const client = new Client({
    webSocketFactory: () => new WebSocket(url, [`v${given.version.replace('.', '')}.stomp`,
        `v${given.version}.stomp`], { ca }),
    stompVersions: new Versions([given.version]),
    reconnectDelay: 0,
    connectHeaders: { ...given.login, 'client-id': 'permissions' },
    onConnect: () => {
        client.watchForReceipt('r', () => end({ done: true }));
        rows[given.row]();
    },
    onStompError: (frame) => end({ code: frame.headers['error-code'], text: frame.body }),
});
client.activate();
