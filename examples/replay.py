"""Read a topic from its start, then continue with live messages, with radiator.client.

    python examples/replay.py [--url HOST:PORT]

A late subscriber misses nothing: every destination stores its history, and live messages follow without gap or repeat.
The second part reads only a range of the history and ends by itself.
"""

from __future__ import annotations

import argparse
import secrets
import threading

from radiator.client import connect

HISTORY, LIVE = 500, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:61613")
    options = parser.parse_args()
    topic = f"/topic/replay.{secrets.token_hex(4)}"

    with connect(options.url) as publisher, connect(options.url) as latecomer:
        publisher.send_many((topic, str(number)) for number in range(HISTORY))

        more = [(topic, str(number)) for number in range(HISTORY, HISTORY + LIVE)]
        publishing = threading.Thread(target=publisher.send_many, args=(more,))
        publishing.start()
        numbers = []
        with latecomer.subscribe(topic, start_position="first") as subscription:
            for message in subscription:
                assert message.offset == len(numbers), (message.offset, len(numbers))
                numbers.append(int(message.text))
                if len(numbers) == HISTORY + LIVE:
                    break
        publishing.join()
        assert numbers == list(range(HISTORY + LIVE))
        print(f"{len(numbers)} messages from the start, while {LIVE} of them were being published")

        window = latecomer.subscribe(topic, start_position="last:5", stop_position="end")
        print("the last five:", ", ".join(message.text for message in window))


if __name__ == "__main__":
    main()
