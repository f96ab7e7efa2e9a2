package httpd

import (
	"net"
	"net/http"
	"time"
)

// Wrap returns a listener whose connections are as those of a Server. These need the
// ConnContext, and the handler Handling.
func Wrap(ln net.Listener) net.Listener {
	return listener{Listener: ln, limiter: newConnLimiter(10, time.Second)}
}

// ConnContext is that of a Server.
var ConnContext = withConn

// Handling tells the connection that a handler runs.
func Handling(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r.Context())
		c.handling(true)
		defer c.handling(false)
		h(w, r)
	})
}
