package task

import (
	"errors"
	"fmt"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/strict"
)

const (
	// MaxAnswer bounds the JSON of an answer, in bytes.
	MaxAnswer = 1 << 20
	// maxStarts is how many lines that begin like an object are tried.
	maxStarts = 200
	// maxProblems is how many faults of a plan are told at once.
	maxProblems = 5
)

// ShapeError says why a reply holds no answer of the shape. Its text is fit for
// the model and for the client.
type ShapeError struct{ Problem string }

func (e *ShapeError) Error() string { return e.Problem }

// Answer is what an executor says of its task.
type Answer struct {
	Status      string `json:"status"` // success or failed
	Code        string `json:"code"`
	Explanation string `json:"explanation"`
}

// ReadAnswer finds the answer in a reply. The error is a *ShapeError.
func ReadAnswer(reply string) (Answer, error) {
	var a Answer
	if err := read(reply, &a); err != nil {
		return Answer{}, err
	}
	if a.Status != api.TaskSuccess && a.Status != api.TaskFailed {
		return Answer{}, &ShapeError{fmt.Sprintf("status must be %s or %s, is %.40q", api.TaskSuccess, api.TaskFailed, a.Status)}
	}
	return a, nil
}

// ReadPlan finds a plan of at most most tasks in a reply, estimated at no more
// than limit seconds unless that is 0. The error is a *ShapeError that names up
// to five faults.
func ReadPlan(reply string, most int, limit float64) (api.Plan, error) {
	// A planner that keeps to the seed's result wraps the plan.
	var wrapped struct {
		Plan *api.Plan `json:"plan,omitzero"`
	}
	var plan api.Plan
	if err := read(reply, &wrapped); err == nil && wrapped.Plan != nil {
		plan = *wrapped.Plan
	} else if err := read(reply, &plan); err != nil {
		return api.Plan{}, err
	}
	var said []string
	for i, problem := range plan.Problems(most) {
		if i == maxProblems {
			said = append(said, "and more")
			break
		}
		said = append(said, strings.TrimPrefix(problem.Problem, "Invalid parameter "))
	}
	if plan.EstimatedTimeSeconds < 0 || limit > 0 && plan.EstimatedTimeSeconds > limit {
		said = append(said, fmt.Sprintf("estimated_time_seconds: want 0 to %g, have %g", limit, plan.EstimatedTimeSeconds))
	}
	if said != nil {
		return api.Plan{}, &ShapeError{strings.Join(said, "; ")}
	}
	for i := range plan.Tasks {
		if plan.Tasks[i].Dependencies == nil {
			plan.Tasks[i].Dependencies = []string{}
		}
	}
	return plan, nil
}

// read decodes the object that ends the reply. Members that nobody asked for are
// passed over.
func read(reply string, into any) error {
	raw, err := object(reply)
	if err != nil {
		return err
	}
	if err := strict.Fill([]byte(raw), into, strict.IgnoreUnknown); err != nil {
		return &ShapeError{err.Error()}
	}
	return nil
}

// object is the JSON object with which a reply ends, be it in a fence. Where the
// reply is none as a whole, the object begins with a line.
func object(reply string) (string, error) {
	text := strings.TrimSpace(reply)
	if fenced, ok := strings.CutSuffix(text, "```"); ok {
		// No string of JSON has a line break in it, so this fence is the object's.
		if open := strings.LastIndex("\n"+fenced, "\n```"); open >= 0 {
			_, text, _ = strings.Cut(fenced[open:], "\n")
			text = strings.TrimSpace(text)
		}
	}
	if len(text) > MaxAnswer {
		text = text[len(text)-MaxAnswer:]
	}
	problem := errors.New("it does not end with a JSON object")
	for at, tries := 0, 0; at < len(text) && tries < maxStarts; {
		line := text[at:]
		if rest := strings.TrimLeft(line, " \t"); strings.HasPrefix(rest, "{") {
			err := strict.Valid([]byte(rest))
			if err == nil {
				return rest, nil
			}
			if tries++; rest == line {
				problem = fmt.Errorf("its JSON cannot be read: %w", err)
			}
		}
		next := strings.IndexByte(line, '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return "", &ShapeError{problem.Error()}
}
