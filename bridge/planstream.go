package bridge

import (
	"context"
	"errors"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
)

// servePlanStream answers run_plan as it goes (SPEC §6.7): its notifications,
// from the first on, and the response. A run that is not begun is answered as any
// other request; of one that has ended before, the beginning and the end are told.
func (s *Server) servePlanStream(x *exchange, c *call) {
	ctx, start := s.beginSpan(x, c), time.Now()
	run, err := s.acceptPlan(ctx, c)
	if err != nil {
		if response, status := s.failure(x, c, start, err); response != nil {
			s.answer(x, status, jsonrpc.AppendResponse(nil, *response))
		}
		return
	}
	out := s.openStream(x)
	if err = s.followPlan(ctx, out, run); errors.Is(err, errSlowClient) {
		s.recordCall(x, c, start, errClientLeft, nil)
		return
	}
	var response *jsonrpc.Response
	if err == nil {
		var value any
		if value, err = run.wait(ctx); err == nil {
			response, err = result(c.request.ID, value)
		}
	}
	if err == nil {
		s.recordCall(x, c, start, nil, nil)
	} else if response, _ = s.failure(x, c, start, err); response == nil {
		return
	}
	_ = out.send(appendEvent(nil, "", "response", jsonrpc.AppendResponse(nil, *response))) // a client that left has no use for an error
}

func (s *Server) acceptPlan(ctx context.Context, c *call) (*planRun, error) {
	if err := s.admit(c); err != nil {
		return nil, err
	}
	p, err := api.Decode[api.RunPlanParams](c.request.Params)
	if err != nil {
		return nil, err
	}
	s.intend(c)
	return s.beginPlan(ctx, c, p)
}

// followPlan passes on all notifications of a run until it has ended. Errors are
// errSlowClient and that of ctx.
func (s *Server) followPlan(ctx context.Context, out *stream, run *planRun) error {
	beat := time.NewTicker(s.o.Heartbeat)
	defer beat.Stop()
	for sent, last := 0, false; ; {
		notes, more := run.since(sent)
		var batch []byte
		for _, n := range notes {
			batch = appendEvent(batch, "", n.method, n.line)
		}
		if batch != nil {
			if err := out.send(batch); err != nil {
				return err
			}
		}
		sent += len(notes)
		if last {
			return nil
		}
		select {
		case <-more:
		case <-run.done: // all has been noted by now
			last = true
		case <-beat.C:
			if err := out.beat(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
