package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
)

// RunPlanStream carries out a plan and gives what it tells as it comes, from the
// goroutine that ranges over it; to leave earlier ends no run. The last pair is
// the result or an error. It is tried again like Call if p has a RequestID; then
// the run is told from its start again, by another api.PlanStart.
func (c *Client) RunPlanStream(ctx context.Context, p api.RunPlanParams) iter.Seq2[PlanPart, error] {
	return func(yield func(PlanPart, error) bool) {
		raw, repeatable, err := encode("run_plan", p)
		if err == nil {
			err = c.again(ctx, repeatable, func() error { return c.followPlan(ctx, raw, yield) })
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// followPlan reads one connection's part. Nil is the end, also where the caller
// left.
func (c *Client) followPlan(ctx context.Context, raw jsontext.Value, yield func(PlanPart, error) bool) error {
	response, err := c.post(ctx, RootPath, "run_plan", raw, "text/event-stream, application/json")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var result api.RunPlanResult
	if !isStream(response) {
		if err := finish(ctx, "run_plan", response, &result); err != nil {
			return err
		}
		yield(PlanResult(result), nil)
		return nil
	}
	for event, err := range readEvents(response.Body) {
		if err != nil {
			return fmt.Errorf("call run_plan: read the stream: %w", broken(ctx, err))
		}
		if event.Type != "response" {
			part, err := planPart(event.Type, jsontext.Value(gjson.GetBytes(event.Data, "params").Raw))
			if err != nil {
				return err
			}
			if !yield(part, nil) {
				return nil
			}
			continue
		}
		if err := decode("run_plan", event.Data, response.StatusCode, &result); err != nil {
			return err
		}
		yield(PlanResult(result), nil)
		return nil
	}
	return nil
}
