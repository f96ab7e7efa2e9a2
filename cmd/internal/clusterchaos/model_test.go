package clusterchaos

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model takes what can have happened, and nothing else.
func TestModel(t *testing.T) {
	send := func(from, to int64, id, outcome string) porcupine.Operation {
		return porcupine.Operation{ClientId: int(from % 2), Input: op{agent: "a", send: id}, Call: from, Return: to, Output: answer{outcome: outcome}}
	}
	read := func(from, to int64, beside []string, turns ...string) porcupine.Operation {
		return porcupine.Operation{ClientId: int(from % 2), Input: op{agent: "a", beside: beside}, Call: from, Return: to, Output: answer{turns: turns}}
	}
	late := func(o porcupine.Operation) porcupine.Operation {
		asked := o.Input.(op)
		asked.late = true
		o.Input = asked
		return o
	}
	for name, tc := range map[string]struct {
		history []porcupine.Operation
		good    bool
	}{
		"one after the other":           {[]porcupine.Operation{send(0, 1, "x", completed), send(2, 3, "y", completed), read(4, 5, nil, "x", "y")}, true},
		"beside each other":             {[]porcupine.Operation{send(0, 3, "x", completed), send(1, 2, "y", completed), read(4, 5, nil, "y", "x")}, true},
		"in another order":              {[]porcupine.Operation{send(0, 1, "x", completed), send(2, 3, "y", completed), read(4, 5, nil, "y", "x")}, false},
		"lost":                          {[]porcupine.Operation{send(0, 1, "x", completed), read(2, 3, nil)}, false},
		"there twice":                   {[]porcupine.Operation{send(0, 1, "x", completed), read(2, 3, nil, "x", "x")}, false},
		"crashed and there":             {[]porcupine.Operation{send(0, 1, "x", crashed), read(2, 3, nil, "x"), read(4, 5, nil, "x")}, true},
		"crashed and not there":         {[]porcupine.Operation{send(0, 1, "x", crashed), read(2, 3, nil)}, true},
		"there, and then not":           {[]porcupine.Operation{send(0, 1, "x", crashed), read(2, 3, nil, "x"), read(4, 5, nil)}, false},
		"two outcomes":                  {[]porcupine.Operation{send(0, 1, "x", crashed), send(2, 3, "x", completed), read(4, 5, nil, "x")}, false},
		"told twice":                    {[]porcupine.Operation{send(0, 1, "x", completed), send(2, 3, "x", completed), read(4, 5, nil, "x")}, true},
		"nobody was told":               {[]porcupine.Operation{send(0, 9, "x", unknown), read(2, 3, []string{"x"}), read(4, 5, []string{"x"}, "x"), read(10, 11, nil, "x")}, true},
		"nobody was told, and gone":     {[]porcupine.Operation{send(0, 1, "x", unknown), read(2, 3, nil, "x"), read(4, 5, nil)}, false},
		"not answered, and done later":  {[]porcupine.Operation{send(0, math.MaxInt64, "x", unknown), send(2, 3, "y", completed), read(4, 5, nil, "y"), read(6, 7, nil, "y", "x")}, true},
		"not answered, and never done":  {[]porcupine.Operation{send(0, math.MaxInt64, "x", unknown), send(2, 3, "y", completed), read(6, 7, nil, "y")}, true},
		"not answered, and done twice":  {[]porcupine.Operation{send(0, math.MaxInt64, "x", unknown), read(6, 7, nil, "x", "x")}, false},
		"by another try":                {[]porcupine.Operation{send(0, 1, "x", unknown), read(2, 3, nil), send(4, 5, "x", completed), read(6, 7, nil, "x")}, true},
		"before it was asked":           {[]porcupine.Operation{read(0, 1, nil, "x"), send(2, 3, "x", completed), read(4, 5, nil, "x")}, false},
		"not read in the end":           {[]porcupine.Operation{send(0, 1, "x", crashed), late(read(2, 3, nil))}, false},
		"beside what was read":          {[]porcupine.Operation{send(0, 5, "x", completed), read(1, 2, []string{"x"}, "x"), read(3, 4, []string{"x"}), read(6, 7, nil, "x")}, true},
		"late":                          {[]porcupine.Operation{send(0, 1, "x", completed), send(2, 3, "y", completed), late(read(4, 5, nil, "x")), read(6, 7, nil, "x", "y")}, true},
		"late, and of what came later":  {[]porcupine.Operation{send(0, 1, "x", completed), late(read(2, 3, nil, "x", "y")), send(4, 5, "y", completed), read(6, 7, nil, "x", "y")}, false},
		"late, with what was cut off":   {[]porcupine.Operation{send(0, 1, "x", crashed), late(read(2, 3, nil, "x")), read(4, 5, nil), late(read(6, 7, nil, "x"))}, true},
		"late, and of another order":    {[]porcupine.Operation{send(0, 1, "x", completed), send(2, 3, "y", completed), late(read(4, 5, nil, "y")), read(6, 7, nil, "x", "y")}, false},
		"late, of what was begun again": {[]porcupine.Operation{send(0, 9, "y", completed), send(1, 3, "x", completed), late(read(10, 11, nil, "y")), read(12, 13, nil, "x", "y")}, true},
		"late, and sent behind another": {[]porcupine.Operation{send(4, 9, "y", completed), send(1, 3, "x", completed), late(read(10, 11, nil, "y")), read(12, 13, nil, "x", "y")}, false},
		"read at once, of the like":     {[]porcupine.Operation{send(0, 9, "y", completed), send(1, 3, "x", completed), read(10, 11, nil, "y"), read(12, 13, nil, "x", "y")}, false},
		"of another agent's log nobody": {[]porcupine.Operation{read(0, 1, nil, "z")}, false},
	} {
		history, faults := place(tc.history)
		if got := len(faults) == 0 && porcupine.CheckOperations(model(), history); got != tc.good {
			t.Errorf("%s: %t, want %t; %q", name, got, tc.good, faults)
		}
	}
}

// A history of many sends that crashed while others read is judged in an instant: which of them are in the log is known.
func TestManyCrashes(t *testing.T) {
	var history []porcupine.Operation
	var there []string
	for i := range int64(2000) {
		id := fmt.Sprint(i)
		history = append(history, porcupine.Operation{ClientId: 0, Input: op{agent: "a", send: id}, Call: 10 * i, Return: 10*i + 15, Output: answer{outcome: crashed}})
		if i%2 == 0 {
			there = append(there, id)
		}
		history = append(history, porcupine.Operation{ClientId: 1, Input: op{agent: "a", beside: []string{id}}, Call: 10*i + 1, Return: 10*i + 2, Output: answer{turns: slices.Clone(there)}})
	}
	history = append(history, porcupine.Operation{ClientId: 1, Input: op{agent: "a"}, Call: 30000, Return: 30001, Output: answer{turns: there}})
	placed, faults := place(history)
	if result, _ := porcupine.CheckOperationsVerbose(model(), placed, time.Minute); result != porcupine.Ok || len(faults) > 0 {
		t.Errorf("it is %s; %q", result, faults)
	}
}
