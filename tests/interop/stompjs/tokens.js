// stompjs comes in by a token and renews it inside of its connection: `echo '{...}' | node tokens.js`
// with "port", "certificate" over TLS, "user", "token", "next", "wait" in ms, "address", "way":
// "passcode", "bearer" or "cookie", by which the token comes. It prints what it saw.
'use strict';

const fs = require('fs');
const { Client } = require('@stomp/stompjs');
const { WebSocket } = require('ws');

const given = JSON.parse(fs.readFileSync(0, 'utf8'));
const seen = { connected: false, receipts: [], messages: [], error: null };

setTimeout(() => {
    process.stderr.write(`not over at the deadline: ${JSON.stringify(seen)}\n`);
    process.exit(1);
}, 20000).unref();

const ca = given.certificate ? [fs.readFileSync(given.certificate)] : undefined;
const headers = {};
if (given.way === 'bearer') headers.Authorization = `Bearer ${given.token}`;
if (given.way === 'cookie') Object.assign(headers, {
    Cookie: `a=b; sluicegate=${given.token}`, Origin: given.origin,
});
const login = given.way === 'passcode' ? { login: given.user, passcode: given.token } : {};

const client = new Client({
    connectHeaders: login,
    reconnectDelay: 0,
    heartbeatIncoming: 0,
    heartbeatOutgoing: 0,
    webSocketFactory: () => new WebSocket(
        `${ca ? 'wss' : 'ws'}://127.0.0.1:${given.port}/stomp`, ['v12.stomp'], { ca, headers },
    ),
});
client.onConnect = () => {
    seen.connected = true;
    client.subscribe(given.address, (message) => { seen.messages.push(message.body); });
    client.watchForReceipt('new', () => {
        seen.receipts.push('new');
        setTimeout(() => client.publish({ destination: given.address, body: 'later' }), given.wait);
    });
    if (given.next) {
        client.publish({ destination: '$token', body: given.next, headers: { receipt: 'new' } });
    }
};
client.onStompError = (frame) => { seen.error = frame.headers['error-code']; };
client.onWebSocketClose = () => {
    process.stdout.write(JSON.stringify(seen));
    process.exit(0);
};
client.onWebSocketError = () => {};
client.activate();
