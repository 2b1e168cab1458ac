"""The gevent shell: sockets, greenlets, the disk threads, signals. The only package that imports gevent."""
