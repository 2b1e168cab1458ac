# The stomp gem: Stomp::Connection, which by default is "reliable": it comes back and subscribes again by itself.

require "base64"
require "json"
require "stomp"
require "timeout"

$stdout.sync = true

class Quiet < Stomp::NullLogger
end

# One connection. `receive` blocks, so a thread of its own calls it and sorts what comes.
class Line
  attr_reader :version

  def initialize(order)
    endpoint = order["endpoint"]
    headers = order["version"] == "1.0" ? {} : { "accept-version" => order["version"], "host" => "here" }
    headers["heart-beat"] = order["heart_beat"].join(",") if order["version"] != "1.0"
    host = { login: order["login"], passcode: order["passcode"], host: endpoint["host"], port: endpoint["port"] }
    host[:ssl] = Stomp::SSLParams.new(ts_files: endpoint["ca"]) if endpoint["transport"] == "tls"
    @stomp = Stomp::Connection.new(
      hosts: [host], connect_headers: headers, logger: Quiet.new, max_hbread_fails: 0, autoflush: true,
    )
    frame = @stomp.connection_frame
    raise "refused: #{frame&.headers&.fetch("message", "")}" unless frame && frame.command == "CONNECTED"

    @version = @stomp.protocol
    @messages, @receipts, @failures = Queue.new, Queue.new, Queue.new
    @handles, @count = [], 0
    @reader = Thread.new { read }
    @reader.report_on_exception = false
  end

  def read
    while (frame = @stomp.receive)
      case frame.command
      when "MESSAGE" then @messages << frame
      when "RECEIPT" then @receipts << frame.headers["receipt-id"]
      when "ERROR"
        @failures << frame.headers["message"]
        @receipts << "ERROR #{frame.headers["message"]}"
        break # or it would connect again, and go on
      end
    end
  end

  def take(queue, seconds)
    Timeout.timeout(seconds) { queue.pop }
  rescue Timeout::Error
    nil
  end

  def send(order, more = {})
    body = Base64.decode64(order["body"])
    body.force_encoding("UTF-8") if order["text"]
    headers = order["headers"].merge(more)
    headers["transaction"] = order["transaction"] unless order["transaction"].empty?
    @stomp.publish(order["destination"], body, headers)
    nil
  end

  def stored(order)
    @count += 1
    send(order, "receipt" => "r-#{@count}")
    got = take(@receipts, 30)
    raise "#{got.inspect} instead of the receipt" unless got == "r-#{@count}"
  end

  def subscribe(order)
    headers = order["headers"].merge("ack" => order["ack"])
    @stomp.subscribe(order["destination"], headers, order["id"])
    nil
  end

  def unsubscribe(order)
    @stomp.unsubscribe(order["destination"], {}, order["id"])
    nil
  end

  def receive(order)
    frame = take(@messages, order["seconds"]) or return nil
    @handles << frame
    { handle: @handles.size - 1, headers: frame.headers, body: Base64.strict_encode64(frame.body) }
  end

  def answer(order)
    headers = @handles[order["handle"]].headers
    more = order["transaction"].empty? ? {} : { "transaction" => order["transaction"] }
    more["subscription"] = headers["subscription"] if @version == "1.1"
    [@version == "1.2" ? headers["ack"] : headers["message-id"], more]
  end

  def ack(order)
    @stomp.ack(*answer(order))
    nil
  end

  def nack(order)
    @stomp.nack(*answer(order))
    nil
  end

  def begin(order)
    @stomp.begin(order["transaction"])
    nil
  end

  def commit(order)
    @stomp.commit(order["transaction"])
    nil
  end

  def abort(order)
    @stomp.abort(order["transaction"])
    nil
  end

  def failure(order)
    take(@failures, order["seconds"])
  end

  def rest(order)
    sleep(order["seconds"])
    raise "no beats came" unless @stomp.hb_received && @stomp.hb_sent && @stomp.hbsend_count.positive?
  end

  def back(_order)
    nil # it has noticed, and comes back, by itself
  end

  def disconnect(_order)
    @reader.kill.join
    @stomp.disconnect("receipt" => "bye")
    raise "no receipt" unless @stomp.disconnect_receipt.command == "RECEIPT"
  end

  def forget
    @reader.kill.join
    @stomp.disconnect if @stomp.open?
  rescue StandardError
    nil
  end
end

lines = {}
$stdin.each_line do |text|
  order = JSON.parse(text)
  begin
    ok =
      case order["op"]
      when "hello" then "stomp gem #{Stomp::Version::STRING}"
      when "forget"
        lines.each_value(&:forget)
        lines.clear
        nil
      when "connect" then (lines[order["c"]] = Line.new(order)).version
      else lines[order["c"]].public_send(order["op"], order)
      end
    puts JSON.generate(ok: ok)
  rescue StandardError => e
    warn e.full_message
    puts JSON.generate(error: "#{e.class}: #{e.message}")
  end
end
