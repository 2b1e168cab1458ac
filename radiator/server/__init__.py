"""Run the broker on gevent: sockets, greenlets, disk threads and signals. Only this package imports gevent."""
