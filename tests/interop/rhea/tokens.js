// rhea comes in by a token, and renews it as Azure's libraries do: `node tokens.js '{"port": ...}'`,
// with "certificate" over TLS, with "websocket" over WebSocket. "mechanism" is XOAUTH2 or PLAIN;
// "token" the first one and "next" the one that is put to $cbs. It prints what it saw.
'use strict';

const fs = require('fs');
const rhea = require('rhea');
const { WebSocket } = require('ws');

const given = JSON.parse(process.argv[2]);
const seen = { opened: false, statuses: [], accepted: 0, error: null };

setTimeout(() => {
    process.stderr.write(`not over at the deadline: ${JSON.stringify(seen)}\n`);
    process.exit(1);
}, 20000).unref();

const container = rhea.create_container({ id: 'renewing' });
const ca = given.certificate ? [fs.readFileSync(given.certificate)] : undefined;
const where = { host: '127.0.0.1', port: given.port, reconnect: false, username: given.user };
if (given.mechanism === 'XOAUTH2') where.token = given.token;
else where.password = given.token;
if (given.websocket) {
    const url = `${ca ? 'wss' : 'ws'}://127.0.0.1:${given.port}/$servicebus/websocket`;
    where.connection_details = rhea.websocket_connect(WebSocket)(url, ['AMQPWSB10'], { ca });
} else if (ca) {
    Object.assign(where, { transport: 'tls', servername: 'localhost', ca });
}

function over() {
    process.stdout.write(JSON.stringify(seen));
    process.exit(0);
}

container.on('connection_open', (context) => {
    seen.opened = true;
    if (!given.next) {
        context.connection.close();
        return;
    }
    const receiver = context.connection.open_receiver({
        source: { address: '$cbs' }, target: { address: 'cbs-answers' }, name: 'cbs-in',
    });
    const requests = context.connection.open_sender({ target: { address: '$cbs' }, name: 'cbs-out' });
    requests.once('sendable', () => {
        for (const [id, type, body] of [[1, 'jwt', given.next], [2, 'servicebus.windows.net:sastoken', 'x']]) {
            setTimeout(() => requests.send({
                message_id: id,
                reply_to: 'cbs-answers',
                application_properties: {
                    operation: 'put-token', type, name: 'amqp://127.0.0.1/orders',
                },
                body,
            }), id * 100);
        }
    });
    receiver.on('message', (answer) => {
        const said = answer.message.application_properties;
        seen.statuses.push([answer.message.correlation_id, said['status-code']]);
        if (seen.statuses.length === 2) {
            setTimeout(() => context.connection.open_sender({ target: { address: given.address }, name: 'orders' }), given.wait);
        }
    });
});
container.on('sendable', (context) => {
    if (context.sender.name === 'orders' && !seen.sent) {
        seen.sent = true;
        context.sender.send({ body: 'one' });
    }
});
container.on('accepted', (context) => {
    if (context.sender.name === 'orders') {
        seen.accepted += 1;
        context.connection.close();
    }
});
container.on('connection_error', (context) => { seen.error = context.connection.error.condition; });
container.on('connection_close', over);
container.on('disconnected', (context) => {
    if (context.error) seen.error = String(context.error);
    over();
});
container.connect(where);
