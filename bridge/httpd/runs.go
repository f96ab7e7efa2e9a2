package httpd

import (
	"context"
	"io"
	"net/http"

	"nexus.internal/bridge/rpc"
)

// Runs are the records of runs of plans that other machines ask for. It is safe for concurrent use.
type Runs interface {
	// Receive writes the record of a run that a machine has, and gives to this one.
	Receive(ctx context.Context, run, from string, record io.Reader) error
	// Digest is what tells the run that is recorded here from others of its id.
	Digest(run string) (string, error)
}

// serveRun takes the record of a run that another machine gives, or says which run is recorded here.
func serveRun(s *Server, x *request, run string) {
	var digest string
	var err error
	switch x.r.Method {
	case http.MethodPost:
		if err = s.o.Runs.Receive(x.r.Context(), run, x.machine, x.r.Body); err == nil {
			x.whole = true
		}
	case http.MethodGet:
		digest, err = s.o.Runs.Digest(run)
	default:
		s.refuse(x, unknownPath)
		return
	}
	if err != nil {
		s.refuse(x, new(rpc.ToError(err)))
		return
	}
	s.write(x, http.StatusOK, "text/plain", []byte(digest))
}
