// Package httpapi is what every provider that speaks to a real service shares:
// where the service is and how it is asked, the tries for an answer, the watch
// over its silence, its event stream, its errors in clear words without a key in
// them, and the parts of a conversation that all vendors want alike.
//
//	s, err := httpapi.New(options, httpapi.Vendor{Version: "/v1"})
//	return s.Answer(ctx, request, func(ctx context.Context, t *httpapi.Attempt, r provider.Request) error {
//		err := t.Stream(ctx, "/ask", translate(r), func(e eventstream.Event) error {
//			err := httpapi.Decode(e.Data, &event)
//			…
//			t.Emit(delta)
//			return err
//		})
//		return t.Outcome(ctx, err, whole)
//	})
//
// A try that fails before its first delta, in a way that may pass, is made again
// after a wait that heeds Retry-After; after the first delta nothing is tried
// again, since what was said cannot be taken back. The end of ctx ends a wait, a
// silent connection and a stream at once.
//
// The environment is not read, redirects are not followed, and the key appears
// in no error. A Service is safe for concurrent use and starts no goroutine of
// its own but those of its HTTP client; an Attempt belongs to one goroutine. The
// contract is SPEC.md §4.3.
package httpapi
