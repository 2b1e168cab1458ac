<?php
// PHP's stomp extension: one frame after the other, no heart-beats; `ack` takes the frame itself.

class Connection
{
    public string $version;
    private Stomp $stomp;
    private array $handles = [];
    private array $subscribed = [];
    private int $receipts = 0;

    public function __construct(private array $order)
    {
        $this->open();
        $this->version = $order['version'];
    }

    private function open(): void
    {
        ['endpoint' => $endpoint, 'version' => $version, 'login' => $login, 'passcode' => $passcode] = $this->order;
        $scheme = $endpoint['transport'] === 'tls' ? 'ssl' : 'tcp';
        $headers = $version === '1.0' ? [] : ['accept-version' => $version, 'host' => 'here'];
        $this->stomp = new Stomp("$scheme://{$endpoint['host']}:{$endpoint['port']}", $login, $passcode, $headers);
        $this->stomp->setReadTimeout(30);
    }

    /** The next MESSAGE, or null if none comes within that time. */
    private function next(float $seconds): ?StompFrame
    {
        $this->stomp->setReadTimeout((int) $seconds, (int) (fmod($seconds, 1) * 1e6));
        $frame = $this->stomp->hasFrame() ? $this->stomp->readFrame() : null;
        $this->stomp->setReadTimeout(30);
        return $frame ?: null;
    }

    private function headers(array $order): array
    {
        return $order['transaction'] === '' ? $order['headers'] : $order['headers'] + ['transaction' => $order['transaction']];
    }

    public function send(array $order): void
    {
        $this->stomp->send($order['destination'], base64_decode($order['body']), $this->headers($order));
    }

    /** With a `receipt` header the extension itself waits for the answer; it keeps what comes before it. */
    public function stored(array $order): void
    {
        $headers = $this->headers($order) + ['receipt' => 'r-' . ++$this->receipts];
        if (!$this->stomp->send($order['destination'], base64_decode($order['body']), $headers)) {
            throw new Exception('no receipt: ' . $this->stomp->error());
        }
    }

    public function subscribe(array $order): void
    {
        $this->subscribed[$order['id']] = $order;
        $this->stomp->subscribe($order['destination'], $order['headers'] + ['id' => $order['id'], 'ack' => $order['ack']]);
    }

    public function unsubscribe(array $order): void
    {
        $this->stomp->unsubscribe($order['destination'], ['id' => $order['id']]);
    }

    public function receive(array $order): ?array
    {
        $frame = $this->next($order['seconds']);
        if ($frame === null) {
            return null;
        }
        $this->handles[] = $frame;
        $body = base64_encode($frame->body ?? '');
        return ['handle' => count($this->handles) - 1, 'headers' => $frame->headers, 'body' => $body];
    }

    private function more(array $order): array
    {
        return $order['transaction'] === '' ? [] : ['transaction' => $order['transaction']];
    }

    public function ack(array $order): void
    {
        $this->stomp->ack($this->handles[$order['handle']], $this->more($order));
    }

    public function begin(array $order): void
    {
        $this->stomp->begin($order['transaction']);
    }

    public function commit(array $order): void
    {
        $this->stomp->commit($order['transaction']);
    }

    public function abort(array $order): void
    {
        $this->stomp->abort($order['transaction']);
    }

    public function failure(array $order): string
    {
        try {
            $this->next($order['seconds']);
        } catch (StompException $error) {
            return $error->getMessage() . ' ' . $error->getDetails();
        }
        return $this->stomp->error() ?: throw new Exception('no ERROR');
    }

    public function back(array $order): void
    {
        $end = microtime(true) + $order['seconds'];
        while (true) {
            try {
                $this->open();
                array_walk($this->subscribed, fn ($each) => $this->subscribe($each));
                return;
            } catch (StompException $error) {
                if (microtime(true) > $end) {
                    throw $error;
                }
                usleep(50000);
            }
        }
    }

    public function disconnect(): void
    {
        unset($this->stomp);
    }

    public function forget(): void
    {
        unset($this->stomp);
    }
}

$connections = [];
while (($line = fgets(STDIN)) !== false) {
    $order = json_decode($line, true, flags: JSON_THROW_ON_ERROR);
    $op = $order['op'];
    try {
        if ($op === 'hello') {
            $ok = 'php-stomp ' . phpversion('stomp');
        } elseif ($op === 'forget') {
            array_walk($connections, fn ($each) => $each->forget());
            $connections = [];
            $ok = null;
        } elseif ($op === 'connect') {
            $connections[$order['c']] = new Connection($order);
            $ok = $connections[$order['c']]->version;
        } else {
            $ok = $connections[$order['c']]->$op($order);
        }
        $answer = ['ok' => $ok];
    } catch (Throwable $error) {
        fwrite(STDERR, $error . "\n");
        $answer = ['error' => get_class($error) . ': ' . $error->getMessage()];
    }
    echo json_encode($answer, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}
