"""Exchange messages between the scripts of one user on one machine, without any set-up.

Example:
    The first call starts a private broker::

        import radiator.local

        with radiator.local.connect() as channels:
            channels.publish("news.sport", "1:0")

The first script that connects starts a private broker for its *home*, a directory. Other scripts find the broker there
by its unix socket. The broker ends after a time without connections. ``docs/local.md`` is the guide. The modules:
``home`` (the directory; finds or starts the broker), ``process`` (the broker process), ``channels`` (the public API).
"""

from radiator.local.channels import Channels, connect
from radiator.local.home import HomeError

__all__ = ["Channels", "HomeError", "connect"]
