// rhea with a user: `node permissions.js '{"port", "user", "password", "row", "address"}'` does what a
// row of tests/interop/permissions.py is about, over WebSocket with "websocket": true, and over TLS
// with "certificate": PATH. It prints {"done": true}, or the condition and text of the refusal.
'use strict';

const fs = require('fs');
const rhea = require('rhea');
const { WebSocket } = require('ws');

const given = JSON.parse(process.argv[2]);
const topic = ['topic'];
const terminus = {
    send: { target: given.address },
    consume: { source: given.address },
    browse: { source: { address: given.address, distribution_mode: 'copy' } },
    'make-address': { target: { address: given.address, capabilities: topic } },
    'make-queue': { target: given.address },
    subscribe: { source: { address: given.address, capabilities: topic } },
    temporary: { source: { dynamic: true } },
}[given.row];

setTimeout(() => {
    process.stderr.write('not over at the deadline\n');
    process.exit(1);
}, 20000).unref();

function end(seen) {
    process.stdout.write(JSON.stringify(seen));
    connection.close();
}

const ca = given.certificate ? [fs.readFileSync(given.certificate)] : undefined;
const where = {
    host: '127.0.0.1', port: given.port, reconnect: false,
    username: given.user, password: given.password,
};
if (given.websocket) {
    const url = `${ca ? 'wss' : 'ws'}://127.0.0.1:${given.port}/amqp`;
    where.connection_details = rhea.websocket_connect(WebSocket)(url, ['amqp'], { ca });
} else if (ca) {
    Object.assign(where, { transport: 'tls', servername: 'localhost', ca });
}
const container = rhea.create_container();
for (const link of ['sender', 'receiver']) {
    container.on(`${link}_error`, (context) => {
        const { condition, description } = context[link].error;
        end({ condition, description });
    });
}
container.on('accepted', () => end({ done: true }));
container.on('receiver_open', (context) => {
    // A refused attach has no source, and its reason comes behind it.
    if (context.receiver.source && context.receiver.source.address) end({ done: true });
});
container.once('sendable', (context) => context.sender.send({ body: 'x' }));
const connection = container.connect(where);
if (terminus.target) connection.open_sender(terminus);
else connection.open_receiver(terminus);
