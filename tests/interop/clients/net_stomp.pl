# Net::Stomp: one frame after the other, no heart-beats, no escapes; its headers are those of the frame, as they are.

use strict;
use warnings;
use Encode qw(decode_utf8 encode_utf8);
use JSON::PP;
use MIME::Base64;
use Net::Stomp;
use Time::HiRes qw(time sleep);

$| = 1;
my $json = JSON::PP->new->canonical;
my %connections;

package Connection {
    use parent -norequire;

    sub new {
        my ($class, $order) = @_;
        my $endpoint = $order->{endpoint};
        my $stomp = Net::Stomp->new({
            hostname => $endpoint->{host},
            port => $endpoint->{port},
            $endpoint->{transport} eq 'tls'
                ? (ssl => 1, ssl_options => { SSL_ca_file => $endpoint->{ca}, SSL_hostname => $endpoint->{host} })
                : (),
            connect_delay => 0.05,
            reconnect_attempts => 200,
            timeout => 30,
        });
        my $frame = $stomp->connect({
            login => $order->{login},
            passcode => $order->{passcode},
            'accept-version' => $order->{version},
            host => 'here',
        });
        my $told = $frame ? $frame->command . ' ' . ($frame->headers->{message} // '') : 'no answer';
        die "refused: $told\n" unless $frame && $frame->command eq 'CONNECTED';
        my $version = $frame->headers->{version} // '1.0';
        return bless {
            stomp => $stomp, version => $version, waiting => [], handles => [], subscribed => 0, receipts => 0
        }, $class;
    }

    # The next frame of that kind; others wait. Nothing if none comes within that time.
    sub next_frame {
        my ($self, $wanted, $seconds) = @_;
        my $end = Time::HiRes::time() + $seconds;
        while (1) {
            my $left = $end - Time::HiRes::time();
            return undef unless $self->{stomp}->can_read({ timeout => $left > 0 ? $left : 0 });
            my $frame = $self->{stomp}->receive_frame or die "the connection was closed\n";
            return $frame if $frame->command eq $wanted;
            die "ERROR $frame->{headers}{message}\n" if $frame->command eq 'ERROR';
            push @{ $self->{waiting} }, $frame;
        }
    }

    sub _message {
        my ($order) = @_;
        my %headers = map { Encode::encode_utf8($_) } %{ $order->{headers} };
        my $body = MIME::Base64::decode_base64($order->{body});
        return {
            %headers,
            destination => Encode::encode_utf8($order->{destination}),
            $order->{transaction} ? (transaction => $order->{transaction}) : (),
            $order->{text} ? () : ('content-length' => length $body),
            body => $body,
        };
    }

    sub send { my ($self, $order) = @_; $self->{stomp}->send(_message($order)); return undef }

    # send_with_receipt takes the next frame for the receipt, so it is for connections that subscribe to nothing.
    sub stored {
        my ($self, $order) = @_;
        my $message = _message($order);
        if (!$self->{subscribed}) {
            $self->{stomp}->send_with_receipt($message) or die "no receipt\n";
            return undef;
        }
        my $receipt = 'r-' . ++$self->{receipts};
        $self->{stomp}->send({ %$message, receipt => $receipt });
        my $frame = $self->next_frame('RECEIPT', 30) or die "no receipt\n";
        die "another receipt\n" if $frame->headers->{'receipt-id'} ne $receipt;
        return undef;
    }

    sub subscribe {
        my ($self, $order) = @_;
        $self->{subscribed} = 1;
        my $names = { destination => $order->{destination}, id => $order->{id}, ack => $order->{ack} };
        $self->{stomp}->subscribe({ %$names, %{ $order->{headers} } });
        return undef;
    }

    sub unsubscribe {
        my ($self, $order) = @_;
        $self->{stomp}->unsubscribe({ destination => $order->{destination}, id => $order->{id} });
        return undef;
    }

    sub receive {
        my ($self, $order) = @_;
        my $frame = shift @{ $self->{waiting} } // $self->next_frame('MESSAGE', $order->{seconds});
        return undef unless $frame;
        push @{ $self->{handles} }, $frame;
        my %headers = map { Encode::decode_utf8($_) } %{ $frame->headers };
        my $body = MIME::Base64::encode_base64($frame->body // '', '');
        return { handle => $#{ $self->{handles} }, headers => \%headers, body => $body };
    }

    sub _answer {
        my ($self, $order) = @_;
        return {
            frame => $self->{handles}[$order->{handle}],
            $order->{transaction} ? (transaction => $order->{transaction}) : (),
        };
    }

    sub ack { my ($self, $order) = @_; $self->{stomp}->ack($self->_answer($order)); return undef }
    sub nack { my ($self, $order) = @_; $self->{stomp}->nack($self->_answer($order)); return undef }

    sub _frame {
        my ($self, $command, $order) = @_;
        my $headers = { transaction => $order->{transaction} };
        $self->{stomp}->send_frame(Net::Stomp::Frame->new({ command => $command, headers => $headers }));
        return undef;
    }

    sub begin { my ($self, $order) = @_; return $self->_frame('BEGIN', $order) }
    sub commit { my ($self, $order) = @_; return $self->_frame('COMMIT', $order) }
    sub abort { my ($self, $order) = @_; return $self->_frame('ABORT', $order) }

    sub failure {
        my ($self, $order) = @_;
        my $frame = $self->next_frame('ERROR', $order->{seconds}) or die "no ERROR\n";
        return $frame->headers->{message};
    }

    # A dead connection is an undefined frame at most once; the next call connects and subscribes again, by itself.
    sub back {
        my ($self, $order) = @_;
        my $frame = $self->{stomp}->receive_frame({ timeout => $order->{seconds} })
            // $self->{stomp}->receive_frame({ timeout => $order->{seconds} });
        push @{ $self->{waiting} }, $frame // die "nothing came\n";
        return undef;
    }

    sub disconnect { my ($self) = @_; $self->{stomp}->disconnect; return undef }
    sub forget { my ($self) = @_; $self->{stomp}->socket->close if $self->{stomp}->socket; return undef }
}

while (my $line = <STDIN>) {
    my $order = $json->decode(decode_utf8($line));
    my ($op, $name) = @$order{qw(op c)};
    my $ok = eval {
        if ($op eq 'hello') { "Net::Stomp $Net::Stomp::VERSION" }
        elsif ($op eq 'forget') { $_->forget for values %connections; %connections = (); undef }
        elsif ($op eq 'connect') { ($connections{$name} = Connection->new($order))->{version} }
        else { $connections{$name}->$op($order) }
    };
    my $answer = $@ ? { error => "$@" } : { ok => $ok };
    print encode_utf8($json->encode($answer)), "\n";
}
