"""What STOMP's bytes travel in, where it is not a bare socket: TLS, WebSocket, or WebSocket in TLS.

Each is a function of bytes, for both ends of a connection; nothing here opens a socket or knows STOMP. ``tunnel`` says
what all of them offer, ``tls`` and ``websocket`` are two of them, ``both`` joins these, ``certificates`` makes TLS
contexts of files, ``http`` reads the request that opens a WebSocket.
"""
