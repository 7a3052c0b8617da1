// rhea as a client of the gateway: `node peer.js SCENARIO '{"port": ..., "address": ...}'`, over TCP,
// with "websocket": {"path", "protocols"} over WebSocket, and with "certificate": PATH over TLS in
// either case, trusting that certificate alone.
// Each scenario prints one JSON object with what it saw; a scenario that hangs or is refused where
// it should not be prints why on standard error and ends with status 1.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const rhea = require('rhea');
const { WebSocket } = require('ws');

const [scenario, text] = process.argv.slice(2);
const given = JSON.parse(text);

function fail(why) {
    process.stderr.write(`${scenario}: ${why}\n`);
    process.exit(1);
}

const deadline = setTimeout(() => fail('not over at the deadline'), 20000);

function done(seen, connection) {
    clearTimeout(deadline);
    process.stdout.write(JSON.stringify(seen));
    if (connection) connection.close();
}

function sha(bytes) {
    return crypto.createHash('sha256').update(bytes).digest('hex');
}

// Connect on a container of its own; what nobody expects ends the process.
function connect(options, expected) {
    const container = rhea.create_container({ id: options && options.id });
    const events = ['connection_error', 'session_error', 'receiver_error', 'sender_error',
        'disconnected', 'rejected', 'protocol_error'];
    for (const name of events) {
        if ((expected || []).includes(name)) continue;
        container.on(name, (context) => {
            const link = context.receiver || context.sender || context.connection;
            fail(`${name}: ${link && link.error || context.error || ''}`);
        });
    }
    const where = { host: '127.0.0.1', port: given.port, reconnect: false };
    const ca = given.certificate ? [fs.readFileSync(given.certificate)] : undefined;
    if (given.websocket) {
        const { path, protocols } = given.websocket;
        const url = `${ca ? 'wss' : 'ws'}://127.0.0.1:${given.port}${path}`;
        where.connection_details = rhea.websocket_connect(WebSocket)(url, protocols, { ca });
    } else if (ca) {
        Object.assign(where, { transport: 'tls', servername: 'localhost', ca });
    }
    return container.connect({ ...where, ...options });
}

const scenarios = {
    // As many as credit allows, each accepted; then all back in order, over another connection.
    pipeline() {
        const sending = connect();
        const sender = sending.open_sender(given.address);
        let sent = 0;
        let accepted = 0;
        let credit = 0;
        sender.on('sendable', () => {
            credit = Math.max(credit, sender.credit);
            while (sender.sendable() && sent < given.count) {
                sender.send({ durable: true, body: { number: sent++ } });
            }
        });
        sender.on('accepted', () => {
            if (++accepted < given.count) return;
            sending.close();
            const receiving = connect();
            const numbers = [];
            const receiver = receiving.open_receiver({
                source: given.address, autoaccept: false, credit_window: 100,
            });
            receiver.on('message', (context) => {
                numbers.push(context.message.body.number);
                context.delivery.accept();
                if (numbers.length === given.count) {
                    done({ sent, accepted, credit, numbers }, receiving);
                }
            });
        });
    },

    // Every field and the types that JavaScript has no word for.
    properties() {
        const connection = connect();
        const sender = connection.open_sender(given.address);
        const types = rhea.types;
        sender.once('sendable', () => sender.send({
            durable: true,
            priority: 7,
            ttl: 60000,
            message_id: 'id-1',
            user_id: 'ann',
            to: 'elsewhere',
            subject: 'subject',
            reply_to: 'answers',
            correlation_id: 'correlation',
            content_type: 'application/json',
            content_encoding: 'identity',
            creation_time: new Date(1700000000123),
            group_id: 'group',
            group_sequence: 3,
            reply_to_group_id: 'other group',
            application_properties: {
                text: 'grün', yes: true, small: types.wrap_ubyte(200), long: types.wrap_long(-5),
                real: 0.5, when: types.wrap_timestamp(1700000000123),
            },
            message_annotations: { 'x-opt-mine': 'kept' },
            delivery_annotations: { 'x-opt-hop': 'not kept' },
            body: rhea.message.data_sections([Buffer.from('{"a":'), Buffer.from('1}')]),
        }));
        connection.open_receiver(given.address).on('message', (context) => {
            const message = { ...context.message };
            message.body = message.body.content.map((part) => part.toString());
            message.user_id = message.user_id && message.user_id.toString();
            done(message, connection);
        });
    },

    // Bodies of other kinds than data.
    bodies() {
        const connection = connect();
        const bodies = [
            'text', 12, true, null, [1, 'two'], { a: { b: [1] } },
            rhea.message.sequence_section([1, 'two']),
        ];
        const sender = connection.open_sender(given.address);
        sender.once('sendable', () => bodies.forEach((body) => sender.send({ body })));
        const seen = [];
        connection.open_receiver(given.address).on('message', (context) => {
            const body = context.message.body;
            seen.push(body && body.content ? { section: body.content } : body);
            if (seen.length === bodies.length) done(seen, connection);
        });
    },

    // Released comes back, modified counts, rejected is gone; accepted is over.
    outcomes() {
        const connection = connect();
        const sender = connection.open_sender(given.address);
        sender.once('sendable', () => sender.send({ durable: true, body: given.address }));
        const counts = [];
        const receiver = connection.open_receiver({
            source: given.address, autoaccept: false, credit_window: 1,
        });
        receiver.on('message', (context) => {
            counts.push(context.message.delivery_count || 0);
            const delivery = context.delivery;
            if (counts.length === 1) delivery.release();
            else if (counts.length === 2) delivery.modified({ delivery_failed: true });
            else if (counts.length === 3) delivery.reject({ condition: 'app:no', description: 'no' });
        });
        // The dead letters of other tests go back.
        const dead = connection.open_receiver({
            source: 'DLQ', autoaccept: false, credit_window: 50,
        });
        dead.on('message', (context) => {
            if (context.message.body !== given.address) return context.delivery.release();
            context.delivery.accept();
            done({ counts, annotations: context.message.message_annotations }, connection);
        });
    },

    // Credit by hand: 3 of 5, then a drain of 10 that ends with what is there.
    drain() {
        const connection = connect();
        const sender = connection.open_sender(given.address);
        let accepted = 0;
        sender.once('sendable', () => {
            for (let number = 0; number < 5; number++) sender.send({ body: number });
        });
        sender.on('accepted', () => {
            if (++accepted < 5) return;
            const bodies = [];
            const portions = [];
            const receiver = connection.open_receiver({
                source: given.address, credit_window: 0, autoaccept: true,
            });
            receiver.on('message', (context) => bodies.push(context.message.body));
            receiver.on('receiver_open', () => {
                receiver.add_credit(3);
                setTimeout(() => {
                    portions.push(bodies.length);
                    receiver.drain_credit();
                    receiver.add_credit(10);
                }, 200);
            });
            receiver.on('receiver_drained', () => {
                portions.push(bodies.length);
                done({ bodies, portions, credit: receiver.credit }, connection);
            });
        });
    },

    // Five megabytes in frames of 4 KiB out and back.
    large() {
        const connection = connect({ max_frame_size: 4096 });
        const body = crypto.randomBytes(5 << 20);
        const sender = connection.open_sender(given.address);
        sender.once('sendable', () => {
            sender.send({ durable: true, body: rhea.message.data_section(body) });
        });
        connection.open_receiver(given.address).on('message', (context) => {
            const content = context.message.body.content;
            done({ size: content.length, same: sha(content) === sha(body) }, connection);
        });
    },

    // Settled at once by both.
    presettled() {
        const connection = connect();
        const sender = connection.open_sender({ target: given.address, snd_settle_mode: 1 });
        sender.once('sendable', () => {
            for (let number = 0; number < 20; number++) sender.send({ body: number });
        });
        const bodies = [];
        const receiver = connection.open_receiver({ source: given.address, snd_settle_mode: 1 });
        receiver.on('message', (context) => {
            if (!context.delivery.remote_settled) fail('a delivery came unsettled');
            bodies.push(context.message.body);
            if (bodies.length === 20) done({ bodies }, connection);
        });
    },

    // A question and its answer at an address that the gateway has named.
    request() {
        const server = connect();
        const answers = server.open_sender({ target: {} });
        server.open_receiver(given.address).on('message', (context) => answers.send({
            to: context.message.reply_to,
            correlation_id: context.message.correlation_id,
            body: context.message.body.toUpperCase(),
        }));
        answers.once('sendable', () => {
            const client = connect();
            const requests = client.open_sender(given.address);
            const receiver = client.open_receiver({ source: { dynamic: true } });
            receiver.on('receiver_open', () => requests.send({
                reply_to: receiver.source.address, correlation_id: 'c-1', body: 'question',
            }));
            receiver.on('message', (context) => {
                const message = context.message;
                done({ answer: message.body, correlation: message.correlation_id }, client);
                server.close();
            });
        });
    },

    // A durable subscription of a topic gets what came while its reader was away.
    subscription() {
        const source = {
            address: given.address, durable: 2, expiry_policy: 'never', capabilities: ['topic'],
        };
        const first = connect({ id: given.address });
        const reader = first.open_receiver({ name: 'mine', source });
        reader.on('receiver_open', () => reader.detach());
        reader.on('receiver_close', () => {
            // rhea says "close" for a detach as well.
            if (reader.remote.detach.closed) fail('a detach was answered by a close');
            first.close();
            const connection = connect();
            const sender = connection.open_sender(given.address);
            let accepted = 0;
            sender.once('sendable', () => {
                for (let n = 0; n < 3; n++) sender.send({ durable: true, body: n });
            });
            sender.on('accepted', () => {
                if (++accepted < 3) return;
                connection.close();
                const again = connect({ id: given.address });
                const bodies = [];
                const receiver = again.open_receiver({ name: 'mine', source });
                receiver.on('message', (context) => {
                    bodies.push(context.message.body);
                    if (bodies.length < 3) return;
                    receiver.on('receiver_close', () => done({ bodies }, again));
                    receiver.close();
                });
            });
        });
    },

    // SASL PLAIN with a user of the file, and without.
    login() {
        const connection = connect({ username: given.user, password: given.password },
            ['connection_error', 'disconnected']);
        connection.on('connection_open', () => done({ open: true }, connection));
        connection.on('connection_error', (context) => {
            done({ open: false, error: String(context.connection.get_error()) });
            process.exit(0); // rhea goes on to write to the socket that it has ended
        });
    },

    // The gateway keeps a peer with a short patience alive, which would disconnect otherwise.
    idle() {
        const connection = connect({ idle_time_out: 400 });
        const sender = connection.open_sender(given.address);
        const began = Date.now();
        sender.once('sendable', () => setTimeout(() => sender.send({ body: 'late' }), 1500));
        sender.on('accepted', () => done({ after: Date.now() - began }, connection));
    },

    // What is refused costs a link, never the connection.
    // What a selector takes, and what a browser with one sees.
    selecting() {
        const connection = connect();
        const sender = connection.open_sender(given.address);
        const taken = [];
        const shown = [];
        let sent = 0;
        const filter = rhea.filter.selector("colour = 'red' AND size > 2");
        sender.on('sendable', () => {
            for (; sent < 10 && sender.sendable(); sent++) {
                const colour = sent % 2 ? 'red' : 'blue';
                sender.send({ body: sent, application_properties: { colour, size: sent } });
            }
        });
        const look = () => {
            const browser = connection.open_receiver({ credit_window: 0, source: {
                address: given.address, distribution_mode: 'copy', filter } });
            browser.drain = true;
            browser.add_credit(100);
            browser.on('message', (context) => shown.push(context.message.body));
            browser.once('receiver_drained', take);
        };
        const take = () => {
            const receiver = connection.open_receiver({ source: { address: given.address, filter } });
            receiver.on('message', (context) => {
                taken.push(context.message.body);
                if (taken.length === 4) done({ shown, taken }, connection);
            });
        };
        let settled = 0;
        sender.on('settled', () => { if (++settled === 10) look(); });
    },

    // Read a stream from a place, twice as far as `half`: the second link goes on behind the first.
    replay() {
        const connection = connect();
        const name = 'rabbitmq:stream-offset-spec';
        const seen = [];
        let links = 0;
        const open = (value, count) => {
            links += 1;
            const receiver = connection.open_receiver({
                name: `replay-${links}`,
                source: {
                    address: given.address,
                    filter: { [name]: rhea.types.wrap_described(value, name) },
                },
                autoaccept: false,
                credit_window: 3,
            });
            let left = count;
            receiver.on('message', (context) => {
                if (!left) return;
                const { message, delivery } = context;
                seen.push([message.message_annotations['x-opt-stream-offset'], message.body]);
                delivery.accept();
                left -= 1;
                if (left) return;
                const echoed = receiver.remote.attach.source.filter[name].value;
                receiver.close();
                if (links === 2) {
                    done({ seen, echoed: Number(echoed) }, connection);
                } else {
                    open(rhea.types.wrap_ulong(given.half), given.count - given.half);
                }
            });
        };
        const sender = connection.open_sender(given.address);
        let sent = 0;
        sender.on('sendable', () => {
            while (sender.sendable() && sent < given.count) {
                sender.send({ durable: true, body: sent });
                sent += 1;
            }
        });
        let accepted = 0;
        sender.on('accepted', () => {
            accepted += 1;
            if (accepted === given.count) open('first', given.half);
        });
    },

    // Receive, hold, and say how the gateway ends the connection.
    dismissed() {
        const connection = connect({ id: 'node-client' }, ['connection_error', 'disconnected']);
        connection.open_receiver({ source: given.address, autoaccept: false, credit_window: 7 });
        connection.on('connection_error', (context) => {
            const { condition, description } = context.connection.error;
            done({ condition, description });
            process.exitCode = 0;
        });
    },

    refusals() {
        const connection = connect({}, ['receiver_error', 'sender_error']);
        const seen = [];
        connection.on('receiver_error', (context) => seen.push(context.receiver.error.condition));
        connection.on('sender_error', (context) => seen.push(context.sender.error.condition));
        connection.open_receiver({ name: 'wrong', source: { address: given.address,
            filter: rhea.filter.selector('colour = = 1') } });
        connection.open_sender({ name: 'reserved', target: '$reserved' });
        const sender = connection.open_sender({ name: 'fine', target: given.address });
        sender.once('sendable', () => sender.send({ body: 'goes on' }));
        sender.on('accepted', () => done({ seen: seen.sort() }, connection));
    },
};

scenarios[scenario]();
