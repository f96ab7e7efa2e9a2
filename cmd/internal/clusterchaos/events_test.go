package clusterchaos

import "testing"

// What a subscription tells has no hole and no double, and a number is one event, whoever tells it.
func TestEvents(t *testing.T) {
	event := func(seq, sum uint64) seen { return seen{seq: seq, from: seq, sum: sum} }
	end := func(seq uint64, outcome string) seen {
		return seen{seq: seq, from: seq, sum: seq, turn: "x", outcome: outcome}
	}
	gap := func(from, to uint64) seen { return seen{seq: to, from: from, gap: true} }
	for name, tc := range map[string]struct {
		told [][]seen // by subscription; each follows the one before
		good bool
	}{
		"one after the other":        {[][]seen{{event(1, 1), event(2, 2)}}, true},
		"from later on":              {[][]seen{{event(7, 1), event(8, 2)}}, true},
		"a hole":                     {[][]seen{{event(1, 1), event(3, 3)}}, false},
		"a hole that is told":        {[][]seen{{event(1, 1), gap(2, 2), event(3, 3)}}, true},
		"a double":                   {[][]seen{{event(1, 1), event(1, 1)}}, false},
		"back":                       {[][]seen{{event(2, 2), event(1, 1)}}, false},
		"resumed":                    {[][]seen{{event(1, 1)}, {event(2, 2)}}, true},
		"resumed with a hole":        {[][]seen{{event(1, 1)}, {event(3, 3)}}, false},
		"a gap to before its start":  {[][]seen{{event(1, 1), gap(3, 2)}}, false},
		"ended twice, alike":         {[][]seen{{end(1, completed), end(2, completed)}}, true},
		"ended twice, not alike":     {[][]seen{{end(1, completed), end(2, crashed)}}, false},
		"another event of a number":  {[][]seen{{event(1, 1)}, nil, {event(1, 2)}}, false},
		"the same event of a number": {[][]seen{{event(1, 1)}, nil, {event(1, 1)}}, true},
	} {
		all, last, broken := newEvents(), uint64(0), ""
		for _, subscription := range tc.told {
			if subscription == nil { // from the beginning
				last = 0
			}
			for _, e := range subscription {
				if said := all.take(last, e); said != "" {
					broken = said
				}
				last = e.seq
			}
		}
		if (broken == "") != tc.good {
			t.Errorf("%s: %q", name, broken)
		}
	}
}
