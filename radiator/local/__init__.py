"""Messages between scripts of one user on one machine, with nothing to set up.

    import radiator.local

    with radiator.local.connect() as channels:
        channels.publish("news.sport", "1:0")

The first script that connects starts a private broker for its *home*, a directory; the others find it there by its unix
socket, and when nobody has been connected for a while it ends. ``docs/local.md`` is the guide. The parts: ``home`` (the
directory, finding or starting the broker), ``process`` (what is started), ``channels`` (the small API).
"""

from radiator.local.channels import Channels, connect
from radiator.local.home import HomeError

__all__ = ["Channels", "HomeError", "connect"]
