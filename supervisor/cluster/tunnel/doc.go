// Package tunnel carries connections between machines as messages of NATS.
//
//	t := tunnel.New(nc, later)
//	defer t.Close()
//	listener, err := t.Listen("machines.a")
//	conn, err := t.Dial(ctx, "machines.a") // on this machine or on another one
//
// A connection is a [net.Conn]: HTTP speaks over it as over TCP. NATS delivers a message at most once, and
// drops what nobody takes. So each message of a connection has a number, and a hole ends the connection with
// [ErrLost]; each side lets the other send [window] bytes before they are read; and a side that is not heard of for
// [silence] is gone.
package tunnel
