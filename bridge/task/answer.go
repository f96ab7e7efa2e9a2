package task

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/strict"
)

const (
	// MaxAnswer bounds the JSON of an answer, in bytes.
	MaxAnswer = 1 << 20
	// maxStarts is how many lines that begin like an object are tried.
	maxStarts = 200
	// maxProblems is how many faults of a plan are listed at once.
	maxProblems = 5
)

// ShapeError says why a reply holds no answer of the shape. Its text is fit for
// the model and for the client.
type ShapeError struct{ Problem string }

func (e *ShapeError) Error() string { return e.Problem }

// Answer is what an executor says of its task.
type Answer struct {
	TaskID      string `json:"task_id" wire:"default"` // of the task that it is the answer to; "" if it does not say
	Status      string `json:"status"`                 // success or failed
	Code        string `json:"code"`
	Explanation string `json:"explanation"`
}

// ReadAnswer finds the answer to the task of that id in a reply. The error is a *ShapeError; one
// that is to another task is refused.
func ReadAnswer(reply, id string) (Answer, error) {
	var a Answer
	err := read(reply, "status, code and explanation", func(raw []byte) error {
		a = Answer{}
		return fill(raw, &a)
	})
	if err != nil {
		return Answer{}, err
	}
	if a.TaskID != "" && a.TaskID != id {
		return Answer{}, &ShapeError{fmt.Sprintf("it is the answer to another task: task_id is %.100q, and must be %q", a.TaskID, id)}
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
	var plan api.Plan
	err := read(reply, "tasks, estimated_time_seconds and explanation", func(raw []byte) error {
		// A planner that keeps to the result of create_plan wraps the plan.
		var wrapped struct {
			Plan *api.Plan `json:"plan,omitzero"`
		}
		if err := fill(raw, &wrapped); err == nil && wrapped.Plan != nil {
			plan = *wrapped.Plan
			return nil
		}
		plan = api.Plan{}
		return fill(raw, &plan)
	})
	if err != nil {
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

// read decodes the answer in a reply: the object that ends it, or else the only
// one in it that decode takes. want names the shape, for who has to correct it.
func read(reply, want string, decode func(raw []byte) error) error {
	list, problem := objects(reply)
	if n := len(list); n > 0 && list[n-1].last {
		return decode(list[n-1].raw)
	}
	var fitting [][]byte
	for _, o := range list {
		if decode(o.raw) == nil {
			fitting = append(fitting, o.raw)
		}
	}
	switch {
	case len(fitting) == 1:
		return decode(fitting[0])
	case len(fitting) > 1:
		problem = fmt.Sprintf("it has %d JSON objects of the shape, and ends with none of them", len(fitting))
	case problem == "":
		problem = "it does not end with a JSON object"
	}
	return &ShapeError{problem + "; want one object with the members " + want + ", on lines of its own, in a fence or not"}
}

func fill(raw []byte, into any) error {
	if err := strict.Fill(raw, into, strict.IgnoreUnknown); err != nil {
		return &ShapeError{err.Error()}
	}
	return nil
}

// object is one JSON object of a reply.
type object struct {
	raw  []byte
	last bool // nothing but the end of a fence comes after it
}

var (
	// opening is how a line with an object begins; the fence may be on it.
	opening = regexp.MustCompile("(?m)^[ \\t]*(?:(?:`+|~{3,})[\\w.+-]*[ \\t]*)?\\{")
	// closing is the rest of the line on which it ends; inner, of an object that
	// is only a part of another.
	closing = regexp.MustCompile("^[ \\t\\r]*[`~]*[ \\t\\r]*(?:\\n|$)")
	inner   = regexp.MustCompile(`^\s*[],:}]`)
	ending  = regexp.MustCompile("^[\\s`~]*$")
)

// objects are the JSON objects that stand on lines of their own, or if no line begins with one
// the one that ends the reply. A fence is no
// matter, as no string of JSON has a line break in it. problem says why the last
// that looked like one is none, "" if there was nothing like that.
func objects(reply string) (list []object, problem string) {
	text := []byte(strings.TrimPrefix(reply, "\uFEFF"))
	if len(text) > MaxAnswer {
		text = text[len(text)-MaxAnswer:]
	}
	for tries := 0; tries < maxStarts; tries++ {
		at := opening.FindIndex(text)
		if at == nil {
			break
		}
		text = text[at[1]-1:]
		decoder := jsontext.NewDecoder(bytes.NewBuffer(text))
		raw, err := decoder.ReadValue()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, "its JSON is cut off" // and whatever is in there is a part of that
		}
		rest := text[decoder.InputOffset():]
		switch {
		case err != nil:
			problem = "its JSON cannot be read: " + strict.Valid(text).Error()
			rest = text
		case !closing.Match(rest) || inner.Match(rest):
			problem = "more stands behind its JSON object on the line"
		default:
			list = append(list, object{raw: slices.Clone(raw), last: ending.Match(rest)})
		}
		_, text, _ = bytes.Cut(rest, []byte("\n"))
	}
	if i := bytes.IndexByte(text, '{'); list == nil && problem == "" && i >= 0 { // no line begins with one
		decoder := jsontext.NewDecoder(bytes.NewBuffer(text[i:]))
		if raw, err := decoder.ReadValue(); err == nil && ending.Match(text[i:][decoder.InputOffset():]) {
			list = []object{{raw: slices.Clone(raw), last: true}}
		}
	}
	return list, problem
}
