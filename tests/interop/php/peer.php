<?php
// PHP's stomp extension as it is used: one scenario, told as JSON; what was seen goes out as JSON.
//
//   echo '{"url": "tcp://127.0.0.1:61613", "destination": "q", ...}' | php peer.php SCENARIO
//
// The extension speaks STOMP 1.0. Bodies go in and out as base64, so that they may be any bytes.

declare(strict_types=1);
error_reporting(E_ALL);
set_error_handler(function (int $level, string $text): bool {
    fwrite(STDERR, "$text\n");
    exit(2);
});

[$scenario, $given] = [$argv[1], json_decode(stream_get_contents(STDIN), true, 8, JSON_THROW_ON_ERROR)];
$destination = $given['destination'];

function connect(array $given): Stomp
{
    $peer = new Stomp($given['url'], $given['user'] ?? '', $given['password'] ?? '');
    $peer->setReadTimeout(5);
    return $peer;
}

// What is waited for in vain costs this long.
function nothing(Stomp $peer): bool
{
    $peer->setReadTimeout(0, 300000);
    $frame = $peer->readFrame();
    $peer->setReadTimeout(5);
    return $frame === false;
}

function shown(StompFrame|false $frame): array|false
{
    if ($frame === false) {
        return false;
    }
    return [
        'command' => $frame->command,
        'headers' => $frame->headers,
        'body' => base64_encode((string) $frame->body),
    ];
}

function read(Stomp $peer, int $count): array
{
    $frames = [];
    while (count($frames) < $count && ($frame = $peer->readFrame()) !== false) {
        $frames[] = $frame;
    }
    return $frames;
}

function bodies(array $frames): array
{
    return array_map(fn ($frame) => base64_encode((string) $frame->body), $frames);
}

// Each is confirmed by its receipt before the next is sent.
function send(Stomp $peer, string $destination, array $bodies, array $headers = []): array
{
    return array_map(
        fn ($body) => $peer->send($destination, base64_decode($body), $headers + ['receipt' => uniqid()]),
        $bodies
    );
}

function play(string $scenario, array $given, string $destination): array
{
    $peer = connect($given);
    switch ($scenario) {
        case 'send':
            return ['sent' => send($peer, $destination, $given['bodies'], $given['headers'] ?? [])];
        case 'receive': // acknowledges each at once
            $peer->subscribe($destination, ['ack' => 'client-individual'] + ($given['headers'] ?? []));
            $frames = [];
            while (count($frames) < $given['count'] && ($frame = $peer->readFrame()) !== false) {
                $frames[] = shown($frame);
                $peer->ack($frame, ['receipt' => uniqid()]);
            }
            return ['frames' => $frames, 'silent' => nothing($peer)];
        case 'queued': // takes all before it acknowledges the ones named
            $peer->subscribe($destination, ['ack' => 'client-individual']);
            $frames = read($peer, $given['count']);
            foreach ($given['acked'] as $at) {
                $peer->ack($frames[$at], ['receipt' => uniqid()]);
            }
            return ['bodies' => bodies($frames), 'silent' => nothing($peer)];
        case 'nack': // 1.0 has none: the answer is an ERROR that says so
            $peer->subscribe($destination, ['ack' => 'client-individual']);
            [$frame] = read($peer, 1);
            $peer->nack($frame);
            return ['answer' => shown($peer->readFrame())];
        case 'transaction':
            $sender = connect($given);
            $seen = [];
            foreach (['abort', 'commit'] as $end) {
                $sender->begin($end, ['receipt' => uniqid()]);
                send($sender, $destination, $given['bodies'], ['transaction' => $end]);
                $sender->$end($end, ['receipt' => uniqid()]);
            }
            $peer->subscribe($destination, ['ack' => 'client-individual']);
            $frames = read($peer, count($given['bodies']));
            $seen['bodies'] = bodies($frames);
            $seen['silent'] = nothing($peer);
            foreach (['abort', 'commit'] as $end) {
                $peer->begin("acks-$end", ['receipt' => uniqid()]);
                if ($end === 'commit') {
                    $frames = read($peer, count($frames)); // they came again
                    $seen['again'] = bodies($frames);
                }
                foreach ($frames as $frame) {
                    $peer->ack($frame, ['transaction' => "acks-$end", 'receipt' => uniqid()]);
                }
                $peer->$end("acks-$end", ['receipt' => uniqid()]);
            }
            return $seen;
        case 'refused':
            return ['sent' => send($peer, $destination, $given['bodies']), 'error' => $peer->error()];
    }
    throw new Exception("no scenario $scenario");
}

try {
    $seen = play($scenario, $given, $destination);
} catch (StompException $error) {
    $seen = ['exception' => $error->getMessage()];
}
echo json_encode($seen, JSON_THROW_ON_ERROR);
